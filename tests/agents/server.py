"""The live server in front of a scripted model, and the requests that reached it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from litestar.types import ASGIApp, Message, Receive, Send

from mashbox.server.settings import ServerSettings
from tests.scripted_model.engine import CTX, ScriptedModel, Turn
from tests.scripted_model.script import Rule
from tests.server.live import Live, eventually

KEY = "sk-mashbox-test"


class Asked(msgspec.Struct):
    """One request: its route, its JSON body, and the answer's status."""

    route: str
    body: Any = None
    status: int = 0


class Recorder:
    """An ASGI application around the server's that keeps what was asked."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.asked: list[Asked] = []

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        asked = Asked(f"{scope['method']} {scope['path']}")
        self.asked.append(asked)
        chunks: list[bytes] = []

        async def receiving() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                chunks.append(message["body"])
                if not message["more_body"] and any(chunks):
                    asked.body = msgspec.json.decode(b"".join(chunks))
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                asked.status = message["status"]
            await send(message)

        await self._app(scope, receiving, sending)


class AgentServer(Live):
    """A server on a free port whose model answers by rules."""

    def __init__(self, model: ScriptedModel, keys: tuple[str, ...]) -> None:
        super().__init__(model, ServerSettings(port=0, drain_s=2.0, api_keys=keys))
        self.model = model
        app: Any = self.server.config.app
        app.asgi_handler = self._recorder = Recorder(app.asgi_handler)

    @property
    def asked(self) -> list[Asked]:
        return self._recorder.asked

    @property
    def ctx(self) -> int:
        return self.model.card.max_model_len

    @property
    def routes(self) -> list[str]:
        """The routes asked for, in order."""
        return [asked.route for asked in self.asked]

    @property
    def turns(self) -> list[Turn]:
        return self.model.turns

    @property
    def refused(self) -> list[Asked]:
        """What was not answered by 200."""
        return [asked for asked in self.asked if asked.status != 200]


@contextmanager
def serving(
    tokenizer: Path,
    rules: Sequence[Rule],
    folder: Path,
    *,
    name: str = "scripted-8b",
    ctx: int = CTX,
    keyed: bool = False,
) -> Iterator[AgentServer]:
    """A ready server, which asks for KEY if ``keyed``; ``folder`` takes the script."""
    model = ScriptedModel(tokenizer, rules, folder, name, ctx)
    server = AgentServer(model, (KEY,) if keyed else ())
    with server:
        eventually(lambda: model.status().state != "loading", within=60)
        assert model.status().state == "ok", model.failure
        yield server
