"""Server-sent events: framing of ``text/event-stream`` as WHATWG HTML, section 9.2, has it."""

from typing import Any

import msgspec

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

HEADERS: list[tuple[bytes, bytes]] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx and its kin otherwise hold a stream back until their buffer is full
    (b"x-accel-buffering", b"no"),
]

json_bytes = msgspec.json.Encoder().encode


def data(value: Any) -> bytes:
    """One ``data:`` event. JSON text holds no raw line break, so one line is enough."""
    return b"data: " + json_bytes(value) + b"\n\n"


def event(value: dict[str, Any]) -> bytes:
    """One event named by its ``type``, as Anthropic's Messages and OpenAI's Responses stream them."""
    return b"event: " + str(value["type"]).encode() + b"\n" + data(value)
