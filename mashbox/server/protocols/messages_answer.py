"""Events in the words of Anthropic's Messages: content blocks, streamed or whole."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mashbox.engine.events import Event, Finished, Text, Thinking, ToolCall, Usage
from mashbox.server import sse
from mashbox.server.failure import Failure

SIGNATURE = "mashbox-local"
"""Stands where Anthropic's signature of a thought would: this server neither makes nor checks one."""

_EMPTY = {"type": "text", "text": ""}
"""The one block of an answer without any: Claude Code asks again when a stream had no block."""


class MessageAnswer:
    """Thoughts and texts that follow each other are one block, each call is one; whole answers fold alike."""

    keep_alive = sse.event({"type": "ping"})
    prompt_field = "messages"

    def __init__(self, message_id: str, model: str) -> None:
        self._id = message_id
        self._model = model
        self._prompt_tokens = 0
        self._blocks = 0
        self._open: type[Event] | None = None
        self._before = self._after = b""

    def encoded(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens

    def opening(self) -> bytes:
        # What the cache held is known only with the answer: until then the whole prompt counts as read.
        usage = Usage(prompt_tokens=self._prompt_tokens, completion_tokens=0)
        return sse.event({"type": "message_start", "message": self._message([], None, usage)})

    def event(self, event: Event) -> bytes:
        if isinstance(event, Text | Thinking):
            out = b"" if self._open is type(event) else self._close() + self._start(type(event))
            return out + self._before + sse.json_bytes(event.text) + self._after
        if isinstance(event, ToolCall):
            return self._close() + self._call(event)
        return self._close() + self._end(event)

    def failed(self, failure: Failure) -> bytes:
        return sse.event(failure.event("anthropic", self._id))

    def whole(self, events: Sequence[Event]) -> bytes:
        finished = events[-1]
        assert isinstance(finished, Finished)
        content = list(_blocks(events)) or [_EMPTY]
        return sse.json_bytes(self._message(content, finished, finished.usage))

    def _message(
        self, content: list[dict[str, Any]], finished: Finished | None, usage: Usage
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            **(_stop(finished) if finished else {"stop_reason": None, "stop_sequence": None}),
            "usage": usage_json(usage),
        }

    def _start(self, kind: type[Text] | type[Thinking]) -> bytes:
        """Open a block. Its deltas differ in one string: what stands around it is encoded once."""
        self._open = kind
        name = "text" if kind is Text else "thinking"
        block = _EMPTY if kind is Text else {"type": "thinking", "thinking": "", "signature": ""}
        head = (
            f'{{"type":"content_block_delta","index":{self._blocks},"delta":{{"type":"{name}_delta","{name}":'
        )
        self._before = b"event: content_block_delta\ndata: " + head.encode()
        self._after = b"}}\n\n"
        return self._block_event("content_block_start", content_block=block)

    def _close(self) -> bytes:
        """Close the block that is open, if one is."""
        if self._open is None:
            return b""
        out = b""
        if self._open is Thinking:
            delta = {"type": "signature_delta", "signature": SIGNATURE}
            out = self._block_event("content_block_delta", delta=delta)
        out += self._block_event("content_block_stop")
        self._open = None
        self._blocks += 1
        return out

    def _call(self, call: ToolCall) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": call.arguments}
        out = self._block_event("content_block_start", content_block=_call_block(call, b"{}"))
        out += self._block_event("content_block_delta", delta=delta)
        out += self._block_event("content_block_stop")
        self._blocks += 1
        return out

    def _block_event(self, kind: str, **more: Any) -> bytes:
        return sse.event({"type": kind, "index": self._blocks, **more})

    def _end(self, finished: Finished) -> bytes:
        out = b"" if self._blocks else self._start(Text) + self._close()
        usage = usage_json(finished.usage)
        out += sse.event({"type": "message_delta", "delta": _stop(finished), "usage": usage})
        return out + sse.event({"type": "message_stop"})


def usage_json(usage: Usage) -> dict[str, int]:
    """The ``MessageUsage`` schema: the three input figures add up to the prompt's tokens."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _stop(finished: Finished) -> dict[str, str | None]:
    if finished.stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stop_sequence}
    reason = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[finished.reason]
    return {"stop_reason": reason, "stop_sequence": None}


def _blocks(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    for kind, run in itertools.groupby(events, type):
        if kind is ToolCall:
            for call in run:
                assert isinstance(call, ToolCall)
                yield _call_block(call, call.arguments.encode())
        elif kind is not Finished:
            text = "".join(piece.text for piece in run if isinstance(piece, Text | Thinking))
            if kind is Text:
                yield {"type": "text", "text": text}
            else:
                yield {"type": "thinking", "thinking": text, "signature": SIGNATURE}


def _call_block(call: ToolCall, arguments: bytes) -> dict[str, Any]:
    call_id = f"toolu_{call.id.removeprefix('call_')}"
    return {"type": "tool_use", "id": call_id, "name": call.name, "input": msgspec.Raw(arguments)}
