"""A live server in a thread, for what an in-process client can't show: streams, disconnects, sockets."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from mashbox.engine.engine import Engine
from mashbox.server.app import create_app, service_of
from mashbox.server.keys import Keys
from mashbox.server.listen import open_socket
from mashbox.server.serve import build_server
from mashbox.server.settings import ServerSettings
from tests.patience import PATIENCE
from tests.server.schema import check


class CheckingClient(httpx.Client):
    """Holds every whole answer to the description. What is read as it comes (``stream``) is left alone."""

    def request(self, *args: Any, **options: Any) -> httpx.Response:
        answer = super().request(*args, **options)
        check(answer)
        return answer


class Live:
    """``url`` to ask, ``service`` to look into."""

    def __init__(self, engine: Engine, settings: ServerSettings, keys: Keys | None = None) -> None:
        app = create_app(engine, settings, keys)
        self.service = service_of(app)
        self._sock = open_socket(settings)
        self.server = build_server(app, settings, sock=self._sock)
        self.url = self.server.url
        self.port: int = self._sock.getsockname()[1]
        self._thread = threading.Thread(target=self.server.run, args=([self._sock],), daemon=True)

    def __enter__(self) -> "Live":
        self._thread.start()
        eventually(lambda: self.server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(timeout=PATIENCE)
        assert not self._thread.is_alive(), "the server did not end"
        self._sock.close()

    def client(self, **options: Any) -> CheckingClient:
        return CheckingClient(base_url=self.url, timeout=PATIENCE, trust_env=False, verify=False, **options)

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(PATIENCE)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def post_raw(self, path: str, body: Any, sock: socket.socket, *headers: str) -> None:
        """Send a POST and return without reading the answer."""
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        head += "".join(f"{header}\r\n" for header in headers)
        sock.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(raw) + raw)


@contextlib.contextmanager
def live(engine: Engine, *, keys: Keys | None = None, **settings: Any) -> Iterator[Live]:
    """A server of ``engine`` on a free port."""
    with Live(engine, ServerSettings(port=0, **{"drain_s": 2.0, **settings}), keys) as server:
        yield server


def eventually(holds: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait until something becomes true."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


def events_of(text: str) -> list[Any]:
    """The ``data:`` lines of a stream: JSON values, and the string ``[DONE]``."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
