"""Events in the words of the Responses API: items that are added, grow and are done.

The order of events is that of OpenAI's streaming reference
(https://platform.openai.com/docs/api-reference/responses-streaming). A whole answer is the final response of
the same stream.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from mashbox.engine.events import Event, Finished, Text, Thinking, ToolCall, Usage
from mashbox.server import sse
from mashbox.server.failure import Failure
from mashbox.server.protocols.common import new_id
from mashbox.server.protocols.responses_items import carry_thinking
from mashbox.server.protocols.responses_tools import INPUT, Toolbox

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """What a response repeats of its request."""

    parallel_tool_calls: bool
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]


class _TextItem:
    """A message or a thought that still grows, in its one content part."""

    def __init__(self, kind: type[Text] | type[Thinking], index: int) -> None:
        self.kind = kind
        self.index = index
        self._texts: list[str] = []
        self._item: dict[str, Any] = (
            {"type": "message", "id": new_id("msg_"), "role": "assistant"}
            if kind is Text
            else {"type": "reasoning", "id": new_id("rs_"), "summary": []}
        )
        self._part_type = "output_text" if kind is Text else "reasoning_text"
        self.text_event = f"response.{self._part_type}"
        # Deltas differ in their number and text: what stands around them is encoded once.
        name = f"{self.text_event}.delta".encode()
        self._before = b"event: " + name + b'\ndata: {"type":"' + name + b'","sequence_number":'
        self._between = b"," + sse.json_bytes({**self.place, **self.logprobs})[1:-1] + b',"delta":'

    @property
    def place(self) -> dict[str, Any]:
        """Where an event of the part belongs."""
        return {"item_id": self._item["id"], "output_index": self.index, "content_index": 0}

    @property
    def logprobs(self) -> dict[str, Any]:
        """A field that OpenAI's text events always have."""
        return {"logprobs": []} if self.kind is Text else {}

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def part(self) -> dict[str, Any]:
        part = {"type": self._part_type, "text": self.text}
        return {**part, "annotations": []} if self.kind is Text else part

    def item(self, status: Status, *, carry: bool = False) -> dict[str, Any]:
        """The item; its content is empty until it is done."""
        content = [] if status == "in_progress" else [self.part()]
        item = {**self._item, "status": status, "content": content}
        if carry and self.kind is Thinking:
            item["encrypted_content"] = carry_thinking(self.text)
        return item

    def delta(self, number: int, text: str) -> bytes:
        """The event that adds ``text``."""
        self._texts.append(text)
        return self._before + str(number).encode() + self._between + sse.json_bytes(text) + b"}\n\n"


class ResponsesAnswer:
    """One response. ``carry`` puts ``encrypted_content`` into done reasoning items."""

    prompt_field = "input"

    def __init__(self, request_id: str, model: str, echo: Echo, box: Toolbox, *, carry: bool = False) -> None:
        self._id = request_id
        self._model = model
        self._created = int(time.time())
        self._echo = echo
        self._box = box
        self._carry = carry
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: _TextItem | None = None

    @property
    def keep_alive(self) -> bytes:
        """The state again: it counts as an event like all others."""
        return self._event("response.in_progress", response=self._response("in_progress"))

    def opening(self) -> bytes:
        created = self._event("response.created", response=self._response("in_progress"))
        return created + self.keep_alive

    def event(self, event: Event) -> bytes:
        if isinstance(event, Text | Thinking):
            return self._text(event)
        closed = self._close()
        if isinstance(event, ToolCall):
            return closed + self._call(event)
        response = self._final(event)
        return closed + self._event(f"response.{response['status']}", response=response)

    def failed(self, failure: Failure) -> bytes:
        # OpenAI's event has its fields flat, the other routes' in "error"; its SDKs raise on the latter.
        known = failure.event("openai", self._id)
        flat = {"code": failure.code or failure.type, "message": failure.message, "param": failure.param}
        error = {"code": flat["code"], "message": failure.message}
        response = {**self._response("failed"), "error": error}
        return self._event("error", **flat, **known) + self._event("response.failed", response=response)

    def whole(self, events: Sequence[Event]) -> bytes:
        finished = events[-1]
        assert isinstance(finished, Finished)
        for event in _merged(events[:-1]):
            self.event(event)
        self._close()
        return sse.json_bytes(self._final(finished))

    def _event(self, kind: str, **fields: Any) -> bytes:
        return sse.event({"type": kind, "sequence_number": self._next(), **fields})

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _response(self, status: Status, usage: Usage | None = None) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._model,
            "output": self._output,
            "parallel_tool_calls": self._echo.parallel_tool_calls,
            "tool_choice": self._echo.tool_choice,
            "tools": self._echo.tools,
            "usage": None if usage is None else usage_json(usage),
        }

    def _final(self, finished: Finished) -> dict[str, Any]:
        if finished.reason != "length":
            return self._response("completed", finished.usage)
        details = {"reason": "max_output_tokens"}
        return {**self._response("incomplete", finished.usage), "incomplete_details": details}

    def _text(self, event: Text | Thinking) -> bytes:
        before = b""
        if self._open is None or self._open.kind is not type(event):
            before = self._close()
            self._open = opened = _TextItem(type(event), len(self._output))
            before += self._event(
                "response.output_item.added", output_index=opened.index, item=opened.item("in_progress")
            )
            before += self._event("response.content_part.added", **opened.place, part=opened.part())
        return before + self._open.delta(self._next(), event.text)

    def _close(self) -> bytes:
        """End the text item that is open, if one is."""
        done, self._open = self._open, None
        if done is None:
            return b""
        out = self._event(f"{done.text_event}.done", **done.place, text=done.text, **done.logprobs)
        out += self._event("response.content_part.done", **done.place, part=done.part())
        return out + self._done(done.item("completed", carry=self._carry))

    def _call(self, call: ToolCall) -> bytes:
        item, field, events = self._call_item(call)
        index, value = len(self._output), item[field]
        place = {"item_id": item["id"], "output_index": index}
        out = self._event(
            "response.output_item.added",
            output_index=index,
            item={**item, "status": "in_progress", field: ""},
        )
        out += self._event(f"{events}.delta", **place, delta=value)
        out += self._event(f"{events}.done", **place, **{field: value})
        return out + self._done(item)

    def _call_item(self, call: ToolCall) -> tuple[dict[str, Any], str, str]:
        """The done item, the field that grows, and what its events are called."""
        tool = self._box.called(call.name)
        named = {"call_id": call.id, "name": tool.name if tool else call.name}
        if tool and tool.namespace is not None:
            named["namespace"] = tool.namespace
        if tool and tool.kind == "custom":
            item = {"type": "custom_tool_call", "id": new_id("ctc_"), "status": "completed", **named}
            return {**item, INPUT: _free_input(call.arguments)}, INPUT, "response.custom_tool_call_input"
        item = {"type": "function_call", "id": new_id("fc_"), "status": "completed", **named}
        return {**item, "arguments": call.arguments}, "arguments", "response.function_call_arguments"

    def _done(self, item: dict[str, Any]) -> bytes:
        index = len(self._output)
        self._output.append(item)
        return self._event("response.output_item.done", output_index=index, item=item)


def _free_input(arguments: str) -> str:
    """A custom tool's text. A model that was not held to the one parameter may have written another."""
    given = msgspec.json.decode(arguments)
    if isinstance(given, dict):
        value = next(iter(given.values())) if len(given) == 1 else given.get(INPUT)
        if isinstance(value, str):
            return value
    return arguments


def _merged(events: Sequence[Event]) -> Iterator[Event]:
    """The same events with neighbouring pieces of one kind as one."""
    for kind, group in groupby(events, type):
        if issubclass(kind, Text | Thinking):
            yield kind("".join(event.text for event in group if isinstance(event, Text | Thinking)))
        else:
            yield from group


def usage_json(usage: Usage) -> dict[str, Any]:
    """Token counts under Responses' names."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
