"""An engine that answers from a script: what the server does with events, without a model.

A script is a list of steps. A string is a piece of text (one token), an event is itself, a number is a
pause in seconds, an exception is raised, a :class:`Hold` waits for the test. A script without a
``Finished`` gets one at its end.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from mashbox.engine.engine import EngineStatus, ModelCard
from mashbox.engine.events import Event, Finished, FinishReason, Text, Thinking, Timings, ToolCall, Usage
from mashbox.engine.request import EncodedPrompt, Request


class Hold:
    """A step that waits until the test, in another thread, lets it go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()

    def release(self) -> None:
        self._go.set()

    async def wait(self) -> None:
        self.reached.set()
        while not self._go.is_set():
            await asyncio.sleep(0.002)


Step = str | float | Event | Exception | Hold
Script = Sequence[Step]

CARD = ModelCard(
    id="scripted", max_model_len=4096, weights="scripted.gguf", gb=0.1, bpw=4.5, slots=2, cache_ram_mib=0
)


class ScriptedEngine:
    """Implements :class:`mashbox.engine.engine.Engine`; ``script`` may choose by request."""

    def __init__(
        self,
        script: Script | Callable[[Request], Script] = ("Hello", " world"),
        *,
        card: ModelCard = CARD,
        status: EngineStatus | None = None,
        encode: Callable[[Request], EncodedPrompt] | Hold | None = None,
    ) -> None:
        self.card = card
        self.script = script
        self.encoding = encode
        self.requests: list[Request] = []
        self.running = 0
        self.most_running = 0
        self.cancelled = 0
        self.started = self.stopped = False
        self._status = status

    def status(self) -> EngineStatus:
        return self._status or EngineStatus(
            state="ok", live_rows=self.running, worker_pid=4242, compiles_after_ready=0
        )

    def become(self, status: EngineStatus | None) -> None:
        """Show another status; None is a ready one."""
        self._status = status

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True

    async def encode(self, request: Request) -> EncodedPrompt:
        if isinstance(self.encoding, Hold):
            await self.encoding.wait()
        elif self.encoding is not None:
            return self.encoding(request)
        return EncodedPrompt(ids=[1, 2, 3, 4, 5])

    async def generate(
        self, request: Request, prompt: EncodedPrompt, queue_ms: float = 0.0
    ) -> AsyncIterator[Event]:
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        ended = False
        script = self.script(request) if callable(self.script) else self.script
        try:
            async for event in self._play(
                script, len(prompt.ids), queue_ms, request.max_tokens, request.counted
            ):
                yield event
            ended = True
        except Exception:
            ended = True
            raise
        finally:
            self.running -= 1
            self.cancelled += not ended

    async def _play(
        self, script: Script, prompt_tokens: int, queue_ms: float, limit: int | None, counted: bool
    ) -> AsyncIterator[Event]:
        tokens, thought, called = 0, 0, False
        for step in script:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Hold):
                await step.wait()
            elif isinstance(step, int | float):
                await asyncio.sleep(step)
            elif isinstance(step, Finished):
                yield step
                return
            elif limit is not None and tokens == limit:
                yield finished(prompt_tokens, tokens, queue_ms, "length", thought)
                return
            else:
                tokens += 1
                thought += isinstance(step, Thinking)
                called = called or isinstance(step, ToolCall)
                event = Text(step) if isinstance(step, str) else step
                counts = counted and isinstance(event, Text | Thinking)
                yield msgspec.structs.replace(event, tokens=tokens) if counts else event
        yield finished(prompt_tokens, tokens, queue_ms, "tool_calls" if called else "stop", thought)


def finished(
    prompt: int, new: int, queue_ms: float = 0.0, reason: FinishReason = "stop", thought: int = 0
) -> Finished:
    """An end whose figures are easy to check: 10 ms of reading, 20 ms for each token after the first."""
    return Finished(
        reason=reason,
        usage=Usage(
            prompt_tokens=prompt,
            completion_tokens=new,
            cached_tokens=prompt // 2,
            thinking_tokens=thought,
        ),
        timings=Timings(queue_ms=queue_ms, prompt_ms=10.0, predicted_ms=20.0 * max(0, new - 1)),
    )


__all__ = ["CARD", "Hold", "Script", "ScriptedEngine", "Thinking", "finished"]
