"""One streamed request on a connection of its own, with the time at which each piece came.

Measuring must not take from what is measured, often on the same cores: the loop only reads and looks at the
clock, and what the bytes say is looked at when the answer has ended.
"""

import contextlib
import dataclasses
import http.client
import itertools
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from mashbox.cli.client import CONNECT_SECONDS, SILENT_SECONDS, chunk_of, refused
from mashbox.cli.sse import Parser
from mashbox.errors import RemoteError, Unreachable

READ_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer. Times are monotonic seconds; ``arrivals`` has one for each piece with text, thought or a
    call.

    ``prompt_tokens``, ``tokens`` (of the answer) and ``cached`` (tokens of the prompt that were not read
    again) are the server's own counts, or made from what came where ``exact`` is false (``cached`` is then
    None). ``cut`` tells that we ended it because its time was over; ``stream`` is which of several at a
    time it was.
    """

    asked: float
    arrivals: tuple[float, ...]
    ended: float
    limit: int
    finish: str | None = None
    prompt_tokens: int = 0
    tokens: int = 0
    cached: int | None = None
    exact: bool = True
    cut: bool = False
    stream: int = 0

    @property
    def first(self) -> float | None:
        """Seconds to the first piece; None when none came."""
        return self.arrivals[0] - self.asked if self.arrivals else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces."""
        return [after - before for before, after in itertools.pairwise(self.arrivals)]


@dataclasses.dataclass(frozen=True)
class Route:
    """Where and how to ask: the server's address without a path, the route's path, and headers."""

    url: str
    path: str
    headers: Mapping[str, str]


class Open:
    """The connections that are open, so that all can be ended from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self.ended = False

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.add(sock)
        if self.ended:
            _shut(sock)

    def remove(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(sock)

    def end(self) -> None:
        """End them all; whoever reads from one sees its end."""
        self.ended = True
        with self._lock:
            for sock in self._sockets:
                _shut(sock)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it had ended by itself
        sock.shutdown(socket.SHUT_RDWR)


def ask(route: Route, body: Mapping[str, Any], limit: int, deadline: float, connections: Open) -> Answer:
    """The answer to ``body``, ended by us at ``deadline``; the clock starts when the connection stands.

    Raises Unreachable, and RemoteError for what the server refuses.
    """
    connection = _connect(route)
    sock = connection.sock  # the connection forgets it where the server says that it will close
    connections.add(sock)
    try:
        asked, pieces, cut = _exchange(route, connection, json.dumps(body).encode(), deadline)
    finally:
        connections.remove(sock)
        connection.close()
    return _read(route, pieces, asked=asked, ended=time.monotonic(), limit=limit, cut=cut)


def _connect(route: Route) -> http.client.HTTPConnection:
    url = httpx.URL(route.url)
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(url.host, url.port, timeout=CONNECT_SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(url.host, url.port, timeout=CONNECT_SECONDS)
    try:
        connection.connect()
    except OSError as problem:
        raise Unreachable(f"No server answers at {route.url} ({problem}).", "Is it still running?") from None
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _exchange(
    route: Route, connection: http.client.HTTPConnection, content: bytes, deadline: float
) -> tuple[float, list[tuple[float, bytes]], bool]:
    """When it was asked, the bytes of the answer with their times, and whether we ended it."""
    pieces: list[tuple[float, bytes]] = []
    sock = connection.sock
    path = httpx.URL(route.url).path.rstrip("/") + route.path
    try:
        asked = time.monotonic()
        connection.request("POST", path, content, {**route.headers, "Content-Type": "application/json"})
        sock.settimeout(_patience(deadline))
        with connection.getresponse() as response:
            if response.status != 200:
                raise _refusal(route, response)
            while data := response.read1(READ_BYTES):
                now = time.monotonic()
                pieces.append((now, data))
                if now > deadline:
                    return asked, pieces, True
                sock.settimeout(_patience(deadline))
    except TimeoutError:
        if time.monotonic() < deadline:
            raise Unreachable(f"{route.url} does not answer (silent for too long).") from None
        return asked, pieces, True
    except (http.client.HTTPException, OSError) as problem:
        if not pieces:
            raise Unreachable(f"{route.url} closed the connection without an answer ({problem}).") from None
    return asked, pieces, False


def _patience(deadline: float) -> float:
    return min(SILENT_SECONDS, max(0.01, deadline - time.monotonic()))


def _refusal(route: Route, response: http.client.HTTPResponse) -> RemoteError:
    content = response.read()
    request = httpx.Request("POST", route.url + route.path)
    headers = [(name, value) for name, value in response.getheaders() if name.lower() == "retry-after"]
    return refused(httpx.Response(response.status, headers=headers, request=request), content)


@dataclasses.dataclass
class _Chunks:
    """What the chunks of a stream said in all."""

    arrivals: list[float] = dataclasses.field(default_factory=list)
    finish: str | None = None
    usage: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    done: bool = False

    def take(self, moment: float, data: str) -> None:
        if data == "[DONE]":
            self.done = True
            return
        chunk = chunk_of(data)
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or []:
            if _says_something(choice):
                self.arrivals.append(moment)
            self.finish = choice.get("finish_reason") or self.finish


_SAID = ("content", "reasoning_content", "reasoning", "tool_calls")


def _says_something(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(choice.get("text")) or any(delta.get(name) for name in _SAID)


def _read(
    route: Route,
    pieces: Sequence[tuple[float, bytes]],
    *,
    asked: float,
    ended: float,
    limit: int,
    cut: bool,
) -> Answer:
    parser, chunks = Parser(), _Chunks()
    for moment, data in pieces:
        for event in parser.feed(data):
            chunks.take(moment, event.data)
    if not (cut or chunks.done or chunks.finish):
        raise Unreachable(f"{route.url} broke off in the middle of an answer.", "Its log may say why.")
    tokens, exact = _tokens(chunks, limit)
    details = chunks.usage.get("prompt_tokens_details") or {}
    return Answer(
        asked=asked,
        arrivals=tuple(chunks.arrivals),
        ended=chunks.arrivals[-1] if cut and chunks.arrivals else ended,
        limit=limit,
        finish=chunks.finish,
        prompt_tokens=chunks.usage.get("prompt_tokens") or 0,
        tokens=tokens,
        cached=details.get("cached_tokens"),
        exact=exact and bool(chunks.usage.get("prompt_tokens")),
        cut=cut,
    )


def _tokens(chunks: _Chunks, limit: int) -> tuple[int, bool]:
    """Tokens of the answer, and whether that is a count: an answer that reached its limit has as many."""
    told = chunks.usage.get("completion_tokens")
    if isinstance(told, int):
        return told, True
    if chunks.finish == "length":
        return limit, True
    return len(chunks.arrivals), False


def together(jobs: Sequence[Callable[[], list[Answer]]], connections: Open) -> list[list[Answer]]:
    """Run the jobs at once, a thread each; Ctrl-C or a failure of one ends the connections of all.

    Raises the first failure.
    """
    results: list[list[Answer]] = [[] for _ in jobs]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            results[number] = jobs[number]()
        except BaseException as problem:
            failures.append(problem)
            connections.end()

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(jobs))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        connections.end()
        raise
    if failures:
        raise failures[0]
    return results
