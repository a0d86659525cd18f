"""One TCP connection: small buffers, and an end to clients that take nothing.

A client that stops reading must be noticed, so little may hide in buffers: the listening socket's send
buffer and the transport's write buffer are both kept small (see :data:`BUFFER_BYTES`).
"""

import array
import asyncio
import sys
import uuid
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

if sys.platform != "win32":
    import fcntl
    import termios

BUFFER_BYTES = 16 * 1024
"""Asked of the kernel for a socket's send buffer (Linux doubles it) and of the transport."""

MOST_PIPELINED = 8
"""Requests that a client may send ahead on one connection."""

MOST_HEAD_BYTES = 64 * 1024
"""The longest request line and headers together, counted in whole reads."""

CHECKS = 30
"""How often a connection is looked at within its limit."""


def unacknowledged(descriptor: int) -> int:
    """Bytes in a socket's send queue that the other side has not acknowledged; 0 where unknown."""
    if sys.platform == "win32":
        return 0
    count = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.TIOCOUTQ, count)
    except OSError:
        return 0
    return count[0]


class CountingTransport:
    """A transport that counts the bytes written to it; all else is the wrapped one's."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pending(self) -> int:
        """Bytes written that the client has not taken, here and in the kernel."""
        waiting = self._transport.get_write_buffer_size()
        sock = self._transport.get_extra_info("socket")
        return waiting + (unacknowledged(sock.fileno()) if sock is not None else 0)


class StallWatch:
    """Cuts a connection whose waiting bytes made no progress for ``limit_s`` seconds."""

    def __init__(self, transport: CountingTransport, limit_s: float) -> None:
        self._transport = transport
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._taken = 0
        self._since = self._loop.time()
        self._timer = self._loop.call_later(limit_s / CHECKS, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        pending = self._transport.pending()
        taken = self._transport.written - pending
        now = self._loop.time()
        if pending == 0 or taken != self._taken:
            self._taken, self._since = taken, now
        elif now - self._since >= self._limit_s:
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self._limit_s / CHECKS, self._check)


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with these habits. ``stalled_reader_s`` is set by :func:`connection_class`."""

    stalled_reader_s = 30.0
    _watch: StallWatch | None = None
    _answering: RequestResponseCycle | None = None
    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=BUFFER_BYTES, low=BUFFER_BYTES // 4)
        counting = CountingTransport(transport)
        super().connection_made(cast("asyncio.Transport", counting))
        self._watch = StallWatch(counting, self.stalled_reader_s)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.stop()
        # uvicorn tells only the newest request of a connection, not the one being answered, when a
        # client has sent the next one early.
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's headers are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()
        if not self.pipeline:
            return
        # uvicorn stops reading here, which would hide that the client has left.
        if len(self.pipeline) > MOST_PIPELINED:
            self.transport.abort()
        else:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        error = {"message": msg, "type": "invalid_request_error", "param": None, "code": None}
        body = msgspec.json.encode({"error": error})
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"x-request-id: req_%s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
            % (uuid.uuid4().hex.encode(), len(body), body)
        )
        self.transport.close()


def connection_class(stalled_reader_s: float) -> type[Connection]:
    """The protocol class that cuts clients which take nothing for so many seconds."""
    return type("Connection", (Connection,), {"stalled_reader_s": stalled_reader_s})
