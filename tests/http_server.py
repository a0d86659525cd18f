"""A plain HTTP server on a free port of this machine, for tests that script the other side."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """A client may leave at any time; any other exception of a handler is in ``faults``, never on stderr."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int) -> None:
        self.faults: list[BaseException] = []
        super().__init__(("127.0.0.1", port), handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        fault = sys.exc_info()[1]
        if fault is not None and not isinstance(fault, OSError):
            self.faults.append(fault)


def read_body(handler: BaseHTTPRequestHandler) -> bytes:
    """The request's body. Raises ConnectionError where the client left before its end."""
    length = int(handler.headers["content-length"])
    body = handler.rfile.read(length)
    if len(body) < length:
        raise ConnectionError(f"{len(body)} of {length} bytes came")
    return body


@contextlib.contextmanager
def http_server(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[Server]:
    """Serve with ``handler``; what went wrong in it is raised at the end."""
    server = Server(handler, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    if server.faults:
        raise server.faults[0]
