"""Server-sent events: bytes, cut anywhere, to events.

Follows the parsing rules of the HTML standard, section 9.2.6 (lines end in LF, CR or CRLF, a blank line
ends an event, an event without data is none, an unfinished one at the end is dropped).
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ServerSentEvent:
    """``event`` is "message" unless the stream named it; ``data`` has its lines joined with LF."""

    data: str
    event: str = "message"
    id: str = ""


class Parser:
    """Feed it bytes as they come; it returns the events that they completed."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False
        self._after_cr = False
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Events completed by ``data``; its border may cut a line, a character or a CRLF."""
        events = []
        for line in self._lines(data):
            if line:
                self._field(line)
            else:
                events += self._dispatch()
        return events

    def _lines(self, data: bytes) -> list[bytes]:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        pieces = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = pieces.pop()
        if pieces and not self._started:
            self._started = True
            pieces[0] = pieces[0].removeprefix(b"\xef\xbb\xbf")
        return pieces

    def _field(self, line: bytes) -> None:
        name, _, raw = line.partition(b":")
        value = raw.removeprefix(b" ").decode("utf-8", "replace")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._event = value
            case b"id" if "\0" not in value:
                self._id = value
            case _:
                pass  # comments (an empty name), retry, and fields unknown to the standard

    def _dispatch(self) -> list[ServerSentEvent]:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not data:
            return []
        return [ServerSentEvent("\n".join(data), event or "message", self._id)]
