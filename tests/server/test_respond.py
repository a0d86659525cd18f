"""The driver alone: how much it sends and schedules for a token."""

import asyncio
from typing import Any

import pytest

from mashbox.engine.events import Event, Finished, Text
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.server.protocols.completions import CompletionAnswer
from mashbox.server.respond import Respond
from mashbox.server.service import Service
from mashbox.server.settings import ServerSettings
from tests.server.scripted import Hold, Script, ScriptedEngine


class Exchange:
    """One request driven in-process: what was sent, and the most tasks that were alive."""

    def __init__(self, script: Script, *, stream: bool) -> None:
        self.sent: list[dict[str, Any]] = []
        self.tasks = 0
        self.leave = asyncio.Event()
        self.engine = ScriptedEngine(script)
        self.service = Service(self.engine, ServerSettings())
        request = Request(id="cmpl-1", prompt="x")
        self.respond = Respond(self.service, request, CompletionAnswer("cmpl-1", "m", 1), stream=stream)

    async def receive(self) -> Any:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.tasks = max(self.tasks, len(asyncio.all_tasks()))

    async def run(self) -> None:
        scope: Any = {"type": "http", "path": "/v1/completions"}
        before = asyncio.all_tasks()
        await self.respond(scope, self.receive, self.send)
        assert asyncio.all_tasks() == before, "a task outlived its request"


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_queued_goes_out_in_one_write(stream: bool) -> None:
    async def scene() -> Exchange:
        exchange = Exchange(["x"] * 1000, stream=stream)
        await exchange.run()
        return exchange

    exchange = asyncio.run(scene())
    assert exchange.sent[0]["type"] == "http.response.start"
    body = b"".join(message.get("body", b"") for message in exchange.sent)
    assert body.count(b"x") >= 1000
    assert len(exchange.sent) <= 4
    assert exchange.sent[-1]["more_body"] is False


def test_tokens_that_come_one_by_one_go_out_one_by_one_without_tasks() -> None:
    class Slow(ScriptedEngine):
        async def generate(self, request: Request, prompt: EncodedPrompt, queue_ms: float = 0.0) -> Any:
            for _ in range(100):
                for _ in range(3):
                    await asyncio.sleep(0)
                yield Text("x")
            async for event in super().generate(request, prompt, queue_ms):
                yield event

    async def scene() -> Exchange:
        exchange = Exchange(["y"], stream=True)
        exchange.service.engine = Slow(["y"])
        await exchange.run()
        return exchange

    exchange = asyncio.run(scene())
    assert len(exchange.sent) >= 100
    assert exchange.tasks <= 3


@pytest.mark.parametrize("stream", [True, False])
def test_everything_of_a_request_is_gone_when_its_client_is(stream: bool) -> None:
    hold = Hold()

    async def scene() -> Exchange:
        exchange = Exchange(["x", hold], stream=stream)
        running = asyncio.create_task(exchange.run())
        while not hold.reached.is_set():
            await asyncio.sleep(0.001)
        exchange.leave.set()
        await running
        return exchange

    exchange = asyncio.run(scene())
    assert exchange.engine.cancelled == 1
    assert exchange.service.line.running == 0


def test_the_fold_ends_at_the_end() -> None:
    """What an engine says after its end changes nothing."""

    class Chatty(ScriptedEngine):
        async def generate(self, request: Request, prompt: EncodedPrompt, queue_ms: float = 0.0) -> Any:
            last: Event | None = None
            async for event in super().generate(request, prompt, queue_ms):
                last = event
                yield event
            assert isinstance(last, Finished)
            raise RuntimeError("too late")

    async def scene() -> Exchange:
        exchange = Exchange(["x"], stream=False)
        exchange.service.engine = Chatty(["x"])
        await exchange.run()
        return exchange

    exchange = asyncio.run(scene())
    assert exchange.sent[0]["status"] == 200
