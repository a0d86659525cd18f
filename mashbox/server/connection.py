"""One TCP connection: small buffers, and an end to clients that take nothing or say nothing.

A client that stops reading must be noticed, so little may hide in buffers: the listening socket's send
buffer and the transport's write buffer are both kept small (see :data:`~mashbox.server.listen.BUFFER_BYTES`).
"""

import array
import asyncio
import logging
import sys
import uuid
from typing import Any, cast

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mashbox.server.listen import BUFFER_BYTES

if sys.platform != "win32":
    import fcntl
    import termios

MOST_PIPELINED = 8
"""Requests that a client may send ahead on one connection."""

MOST_HEAD_BYTES = 64 * 1024
"""The longest request line and headers together, counted in whole reads."""

CHECKS = 30
"""How often a connection is looked at within its limit."""

_log = logging.getLogger("mashbox.server.connection")
# uvicorn warns of what clients send wrong: they are told, and the operator can't mend it.
_log.setLevel(logging.ERROR)


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


def close_delimited(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """``app`` for a client of HTTP/1.0: what has no length ends with the connection, never in chunks."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def unframed(message: Message) -> None:
            if message["type"] == "http.response.start":
                if not any(name.lower() == b"content-length" for name, _ in message["headers"]):
                    cycle.chunked_encoding, cycle.expected_content_length = False, sys.maxsize
            elif message["type"] == "http.response.body" and not message["more_body"]:
                # uvicorn holds an answer to its length: this piece is the rest of it.
                cycle.expected_content_length = len(message["body"])
            await send(message)

        await app(scope, receive, unframed)

    return answer


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP protocol with these habits. Its limits are set by :func:`connection_class`."""

    stalled_reader_s = 30.0
    read_timeout_s = 30.0
    _watch: StallWatch | None = None
    _late: asyncio.TimerHandle | None = None
    _quiet_since = 0.0
    _head_begun = False
    _answering: RequestResponseCycle | None = None
    _in_head = True
    _head_bytes = 0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=BUFFER_BYTES, low=BUFFER_BYTES // 4)
        counting = CountingTransport(transport)
        super().connection_made(cast("asyncio.Transport", counting))
        self._watch = StallWatch(counting, self.stalled_reader_s)
        self._quiet_since = self.loop.time()
        self._check_late()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._late is not None:
            self._late.cancel()
        # uvicorn tells only the newest request of a connection, not the one being answered, when a
        # client has sent the next one early.
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        if cycle.scope["http_version"] == "1.0":
            app = close_delimited(app, cycle)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def _check_late(self) -> None:
        """Close when a request that is awaited doesn't come. The body of one being answered is not ours."""
        answering = self._answering is not None and not self._answering.response_complete
        awaited = not answering and self.timeout_keep_alive_task is None
        if awaited and self.loop.time() - self._quiet_since >= self.read_timeout_s:
            if self._head_begun and not self.transport.is_closing():
                self._refuse("408 Request Timeout", "The request's headers did not come in time.")
            self.transport.close()
            return
        self._late = self.loop.call_later(self.read_timeout_s / CHECKS, self._check_late)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's headers are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._head_begun = True
        self._quiet_since = self.loop.time()

    def on_headers_complete(self) -> None:
        self._in_head = self._head_begun = False
        self._head_bytes = 0
        super().on_headers_complete()
        if not self.pipeline:
            return
        # uvicorn stops reading here, which would hide that the client has left.
        if len(self.pipeline) > MOST_PIPELINED:
            self.transport.abort()
        else:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        self._refuse("400 Bad Request", msg)

    def _refuse(self, status: str, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        body = msgspec.json.encode({"error": error})
        self.transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n"
            b"x-request-id: req_%s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
            % (status.encode(), uuid.uuid4().hex.encode(), len(body), body)
        )
        self.transport.close()


def connection_class(stalled_reader_s: float, read_timeout_s: float) -> type[Connection]:
    """The protocol class that cuts clients which take nothing, or owe a request, for so many seconds."""
    limits = {"stalled_reader_s": stalled_reader_s, "read_timeout_s": read_timeout_s}
    return type("Connection", (Connection,), limits)
