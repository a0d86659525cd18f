"""A local HTTP server that speaks the hub's routes, and misbehaves on request.

Each download of a file consumes one entry of :attr:`Hub.faults` (see :data:`FAULTS`); an empty list means
that all is well. Requests are kept in :attr:`Hub.requests`.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.http_server import http_server

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LFS_SUFFIXES = (".gguf", ".safetensors")

FAULTS = {
    "drop": "half of what is asked for, then the connection breaks",
    "flip": "one bit of the last byte is another",
    "truncate": "half of the file, declared as all of it",
    "empty": "no byte, declared as all of it",
    "whole": "the whole file with status 200, whatever range was asked for",
    "shifted": "a range that starts one byte later than asked for",
    "busy": "503 with Retry-After: 0",
    "limited": "429 with Retry-After: 0",
    "gated": "403 with the hub's code for a gated repository",
    "unauthorized": "401 with the hub's code for a gated repository",
    "missing": "404",
    "redirect": "to another host, which has the file",
    "nowhere": "to another host, which refuses",
    "portal": "200 with a page for people",
}


@dataclass
class Asked:
    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Hub:
    """The server's state: ``repos`` by name, and plain ``files`` by path (served below ``/files/``)."""

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    listing_faults: list[str] = field(default_factory=list)
    etags: bool = True
    requests: list[Asked] = field(default_factory=list)
    # Set: a download sends its first half and waits for this before the rest.
    hold: threading.Event | None = None
    halfway: threading.Event = field(default_factory=threading.Event)

    def downloads(self, name: str) -> list[Asked]:
        return [asked for asked in self.requests if asked.method == "GET" and asked.path.endswith("/" + name)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(
            Asked(self.command, path, self.headers.get("range"), self.headers.get("authorization"))
        )
        words = path.strip("/").split("/")
        if path.startswith("/files/"):
            self._file(self.hub.files.get(path.removeprefix("/files/")), with_body, {})
        elif words[:2] == ["api", "models"] and len(words) == 6 and words[4] == "revision":
            self._listing("/".join(words[2:4]), words[5])
        elif len(words) >= 5 and words[2] == "resolve":
            name = "/".join(words[4:])
            content = self.hub.repos.get("/".join(words[:2]), {}).get(name)
            self._file(content, with_body, {"X-Repo-Commit": COMMIT})
        else:
            self._refuse(404, {})

    def _listing(self, repo: str, revision: str) -> None:
        fault = self.hub.listing_faults.pop(0) if self.hub.listing_faults else None
        if self._faulty(fault):
            return
        if fault == "portal":
            self._send(200, b"<html>Please log in</html>", {})
            return
        files = self.hub.repos.get(repo)
        if files is None:
            self._refuse(401, {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", COMMIT):
            self._refuse(404, {"X-Error-Code": "RevisionNotFound"})
        else:
            siblings = [_sibling(name, content) for name, content in files.items()]
            self._send(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode(), {})

    def _faulty(self, fault: str | None) -> bool:
        """Answers the faults that are refusals."""
        if fault in ("busy", "limited"):
            self._refuse(503 if fault == "busy" else 429, {"Retry-After": "0"})
        elif fault in ("gated", "unauthorized"):
            self._refuse(403 if fault == "gated" else 401, {"X-Error-Code": "GatedRepo"})
        elif fault == "missing":
            self._refuse(404, {"X-Error-Code": "EntryNotFound"})
        else:
            return False
        return True

    def _file(self, content: bytes | None, with_body: bool, headers: dict[str, str]) -> None:
        if content is None:
            self._refuse(404, {"X-Error-Code": "EntryNotFound"})
            return
        if self.hub.etags:
            headers["ETag"] = f'"{hashlib.sha256(content).hexdigest()}"'
        fault = self.hub.faults.pop(0) if self.hub.faults and with_body else None
        if self._faulty(fault):
            return
        if fault in ("redirect", "nowhere"):
            self.hub.files["elsewhere"] = content
            elsewhere = f"http://localhost:{self.server.server_address[1]}/files/elsewhere"
            self.hub.faults[:0] = ["unauthorized"] if fault == "nowhere" else []
            self._send(302, b"", {**headers, "Location": elsewhere})
            return
        if fault == "flip":
            content = content[:-1] + bytes([content[-1] ^ 1])
        elif fault in ("truncate", "empty"):
            content = content[: len(content) // 2 if fault == "truncate" else 0]
        status, start = 200, 0
        asked = self.headers.get("range")
        stale = self.headers.get("if-range") not in (None, headers.get("ETag"))
        if asked and fault != "whole" and not stale:
            start = int(asked.removeprefix("bytes=").split("-")[0]) + (fault == "shifted")
            if start >= len(content):
                self._refuse(416, {"Content-Range": f"bytes */{len(content)}"})
                return
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(status, content[start:], headers, with_body=with_body, drop=fault == "drop")

    def _refuse(self, status: int, headers: dict[str, str]) -> None:
        self._send(status, b"{}", headers, with_body=self.command != "HEAD")

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str],
        *,
        with_body: bool = True,
        drop: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if not with_body:
            return
        half = len(body) // 2
        self.wfile.write(body[:half])
        if drop:
            self.close_connection = True
            return
        if self.hub.hold is not None and "resolve" in self.path:
            self.wfile.flush()
            self.hub.halfway.set()
            self.hub.hold.wait(30)
        try:
            self.wfile.write(body[half:])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": blob}
    if name.endswith(LFS_SUFFIXES):
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
    return entry


@contextmanager
def serve() -> Iterator[Hub]:
    """The hub, on a free port of the loopback interface."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with http_server(handler) as server:
        hub.url = server.url
        try:
            yield hub
        finally:
            if hub.hold is not None:
                hub.hold.set()
