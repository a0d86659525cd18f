"""A small HTTP server that answers like an OpenAI-compatible one, from a script."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.http_server import http_server, read_body

Step = dict[str, Any] | str | float
"""A chunk as a dict, raw bytes of the stream as text, or a pause in seconds."""


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


def finish(reason: str = "stop", rate: float | None = 40.0) -> list[Step]:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    return [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": usage, "timings": {"predicted_per_second": rate}},
        "data: [DONE]\n\n",
    ]


def answer(*texts: str, reason: str = "stop") -> list[Step]:
    return [delta(role="assistant", content=""), *(delta(content=text) for text in texts), *finish(reason)]


class Refusal:
    """An answer other than 200."""

    def __init__(self, status: int, body: Any, **headers: str) -> None:
        self.status = status
        self.body = body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


Reply = Sequence[Step] | Refusal


class ScriptedServer:
    """Answers each chat request with the next reply; ``requests`` are the bodies it saw."""

    def __init__(
        self,
        *replies: Reply,
        model: str = "tiny",
        owner: str = "someone",
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.cut_off = threading.Event()
        self.model = model
        self.owner = owner
        self.ready = ready
        self.url = ""


def _handler(script: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                card = {"id": script.model, "max_model_len": 512, "owned_by": script.owner}
                self._json(200, {"data": [card]})
            elif self.path == "/health":
                ready = script.ready()
                self._json(200 if ready else 503, {"status": "ok" if ready else "loading"})
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            body = json.loads(read_body(self))
            script.requests.append(body)
            script.keys.append(self.headers["authorization"])
            reply = script.replies.pop(0)
            if isinstance(reply, Refusal):
                self._json(reply.status, reply.body, reply.headers)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for step in reply:
                    self._step(step)
            except OSError:
                script.cut_off.set()

        def _step(self, step: Step) -> None:
            if isinstance(step, float):
                time.sleep(step)
                return
            text = step if isinstance(step, str) else f"data: {json.dumps(step)}\n\n"
            self.wfile.write(text.encode())
            self.wfile.flush()

        def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    return Handler


@contextlib.contextmanager
def serving(script: ScriptedServer, port: int = 0) -> Iterator[ScriptedServer]:
    with http_server(_handler(script), port) as server:
        script.url = server.url
        yield script
