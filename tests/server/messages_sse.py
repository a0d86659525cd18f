"""Reads a stream of Messages as a client would, checking the order of its events on the way."""

import json
from typing import Any

DELTAS = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
}


def events_of(stream: str) -> list[dict[str, Any]]:
    """The events, each an ``event:`` and a ``data:`` line of one type."""
    events = []
    assert stream.endswith("\n\n")
    for frame in stream.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def folded(stream: str) -> dict[str, Any]:
    """The message that a stream tells. Asserts that its events come in the order the API promises."""
    first, *middle, last_but_one, last = [e for e in events_of(stream) if e["type"] != "ping"]
    message: dict[str, Any] = first["message"]
    assert first["type"] == "message_start"
    assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
    assert last == {"type": "message_stop"}
    assert last_but_one["type"] == "message_delta"
    message.update(last_but_one["delta"])
    message["usage"] |= last_but_one["usage"]
    while middle:
        message["content"].append(_block(middle, len(message["content"])))
    return message


def _block(events: list[dict[str, Any]], index: int) -> dict[str, Any]:
    start = events.pop(0)
    assert (start["type"], start["index"]) == ("content_block_start", index)
    block: dict[str, Any] = start["content_block"]
    kind, arguments = block["type"], ""
    while events[0]["type"] == "content_block_delta":
        delta = events.pop(0)
        assert delta["index"] == index
        field = DELTAS[kind][delta["delta"]["type"]]
        if kind == "tool_use":
            arguments += delta["delta"][field]
        else:
            assert "signature" not in block or not block["signature"], "a delta behind the signature"
            block[field] += delta["delta"][field]
    assert events.pop(0) == {"type": "content_block_stop", "index": index}
    if kind == "tool_use":
        assert block["input"] == {}
        block["input"] = json.loads(arguments)
    return block
