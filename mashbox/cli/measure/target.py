"""One server under measurement: how it is asked, and what it says of itself."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from mashbox.cli.client import Client, Model
from mashbox.cli.measure import wire
from mashbox.cli.measure.report import Server
from mashbox.cli.measure.texts import Lengths, Messages, plain
from mashbox.cli.measure.wire import Answer, Open, Route
from mashbox.errors import RemoteError

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Target:
    """Asks one server. ``salt`` makes its prompts unlike another's that has the same address."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        key: str | None = None,
        model: str | None = None,
        slots: int | None = None,
        context: int | None = None,
        own: bool = False,
        chat: bool = True,
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.slots = slots
        self.context = context
        self.lengths = Lengths()
        self.connections = Open()
        self.salt = ""
        self.counted = True
        self._own = own
        self._chat = chat
        self._sampling = {"temperature": 1.0} if sampling is None else sampling
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._route = Route(url, CHAT if chat else COMPLETIONS, headers)

    def ask(self, messages: Messages, limit: int, deadline: float, seed: int = 0) -> Answer:
        """An answer of at most ``limit`` tokens, ended at ``deadline``. Raises RemoteError."""
        body: dict[str, Any] = {"messages": messages} if self._chat else {"prompt": plain(messages)}
        body |= {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": limit, "seed": seed}
        if self.model:
            body["model"] = self.model
        answer = wire.ask(self._route, {**body, **self._sampling}, limit, deadline, self.connections)
        if not answer.prompt_tokens:
            words = len(plain(messages).split())
            answer = dataclasses.replace(answer, prompt_tokens=self.lengths.tokens(words))
        self.counted = self.counted and (answer.exact or answer.cut)
        return answer

    def described(self) -> Server:
        return Server(
            name=self.name,
            url=self._route.url,
            model=self.model,
            own=self._own,
            slots=self.slots,
            context=self.context,
            counts="server" if self.counted else "estimated",
        )


def choose_model(client: Client, wanted: str | None) -> Model:
    """The model to ask for: the wanted one, else the first that is listed. A server need not list any.

    Raises RemoteError when others are listed only, or when there is none to choose.
    """
    try:
        models = client.models()
    except RemoteError as problem:
        if problem.status != 404 or wanted is None:
            raise
        models = []
    if not models:
        return Model(wanted or "")
    for model in models:
        if wanted in (None, model.id):
            return model
    served = ", ".join(model.id for model in models[:5])
    raise RemoteError(f"The server at {client.url} has {served}, not {wanted}.", "Name one of these.")


def slots_and_context(client: Client, model: Model) -> tuple[int | None, int | None]:
    """How many answers the server gives at a time and the tokens that each has, where it tells.

    mashbox tells in its list of models, llama-server under ``/props``.
    """
    slots, context = model.slots, model.context
    if slots is None or context is None:
        props = client.details("/props")
        settings = props.get("default_generation_settings")
        slots = slots or _whole(props.get("total_slots"))
        context = context or _whole(settings.get("n_ctx") if isinstance(settings, dict) else None)
    return slots, context


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
