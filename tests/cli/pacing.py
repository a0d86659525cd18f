"""A server of known speed: it waits so long for each token of a prompt and of an answer, and counts exactly.

Prompts are read one at a time, and their known beginnings take no time; answers are written at once, or where
``together`` is false one token at a time in all, like a machine that is fully used.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.http_server import http_server, read_body


class PacedServer:
    """``read`` and ``write`` are tokens (words) per second, 0 takes no time; ``requests`` are the bodies."""

    def __init__(
        self,
        *,
        read: float = 0,
        write: float = 0,
        usage: bool = True,
        slots: int | None = 2,
        context: int | None = 4_096,
        stop_after: int | None = None,
        piece: int = 1,
        break_after: int | None = None,
        refuse_from: int | None = None,
        key: str | None = None,
        together: bool = True,
    ) -> None:
        self.read, self.write = read, write
        self.usage = usage
        self.slots, self.context = slots, context
        self.stop_after = stop_after
        self.piece = piece
        self.break_after = break_after
        self.refuse_from = refuse_from
        self.key = key
        self.together = together
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self.known: list[list[str]] = []
        self.running = 0
        self.most = 0
        self.lock = threading.Lock()
        self.step = threading.Lock()

    def cached(self, words: list[str]) -> int:
        """Words that an earlier prompt began with."""
        with self.lock:
            best = max((_shared(words, known) for known in self.known), default=0)
            self.known.append(words)
        return min(best, len(words) - 1)


def _shared(left: list[str], right: list[str]) -> int:
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return min(len(left), len(right))


def _handler(server: PacedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/health":
                self._json(200, {"status": "ok"})
            elif self.path == "/v1/models":
                entry = {"id": "paced", "slots": server.slots, "max_model_len": server.context}
                self._json(200, {"data": [entry]})
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            body = json.loads(read_body(self))
            with server.lock:
                server.requests.append(body)
                number = len(server.requests)
            if server.key and self.headers["authorization"] != f"Bearer {server.key}":
                self._json(401, {"error": {"message": "no"}})
                return
            if body["model"] != "paced":
                self._json(404, {"error": {"message": f"The model {body['model']} is not served here."}})
                return
            if server.refuse_from is not None and server.running >= server.refuse_from:
                self._json(429, {"error": {"message": "The line is full."}})
                return
            with server.lock:
                server.running += 1
                server.most = max(server.most, server.running)
            try:
                self._answer(body, number)
            finally:
                with server.lock:
                    server.running -= 1

        def _answer(self, body: dict[str, Any], number: int) -> None:
            said = body["prompt"] if "prompt" in body else " ".join(m["content"] for m in body["messages"])
            words = said.split()
            cached = server.cached(words)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            if server.read:
                with server.step:
                    time.sleep((len(words) - cached) / server.read)
            limit = body["max_tokens"]
            tokens = min(limit, server.stop_after or limit)
            for token in range(0, tokens, server.piece):
                if server.break_after is not None and number > server.break_after:
                    return
                if server.write:
                    with contextlib.nullcontext() if server.together else server.step:
                        time.sleep(min(server.piece, tokens - token) / server.write)
                chat = {"delta": {"content": "word "}} if "messages" in body else {"text": "word "}
                self._data({"choices": [{"index": 0, **chat, "finish_reason": None}]})
            reason = "length" if tokens == limit else "stop"
            self._data({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
            if server.usage:
                details = {"cached_tokens": cached}
                usage = {"prompt_tokens": len(words), "completion_tokens": tokens}
                self._data({"choices": [], "usage": {**usage, "prompt_tokens_details": details}})
            self.wfile.write(b"data: [DONE]\n\n")

        def _data(self, chunk: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        def _json(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


@contextlib.contextmanager
def paced(port: int = 0, **options: Any) -> Iterator[PacedServer]:
    script = PacedServer(**options)
    with http_server(_handler(script), port) as server:
        script.url = server.url
        yield script
