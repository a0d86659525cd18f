"""Serving the chat page: which files, in which coding, with which headers. The page itself: ``tests/ui``."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mashbox.engine.engine import EngineStatus
from mashbox.server import page
from tests.server.live import Live, live
from tests.server.scripted import ScriptedEngine

INDEX = b'<!doctype html><script type="module" src="/assets/app-1a2b3c4d.js"></script>'
SCRIPT = b"export const answer = 42;" * 40
STYLE = b"body{}"
LOADING = EngineStatus(state="loading", stage="reading weights", progress=0.5)


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a small bundle, which servers that start now serve; beside it lies a secret."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(INDEX)
    (folder / "assets" / "app-1a2b3c4d.js").write_bytes(SCRIPT)
    (folder / "assets" / "app-1a2b3c4d.js.gz").write_bytes(gzip.compress(SCRIPT))
    (folder / "assets" / "app-1a2b3c4d.js.br").write_bytes(b"as brotli")
    (folder / "assets" / "app-5e6f7a8b.css").write_bytes(STYLE)
    (folder / "assets" / "unlisted.js").write_bytes(b"unlisted")
    listed(folder, "index.html", "assets/app-1a2b3c4d.js", "assets/app-5e6f7a8b.css")
    monkeypatch.setattr(page.load, "__defaults__", (folder,))
    return folder


def listed(folder: Path, *files: str) -> None:
    (folder / "bundle.json").write_text(json.dumps({"sources": "x", "files": files}))


@pytest.fixture
def server(bundle: Path) -> Iterator[Live]:
    with live(ScriptedEngine(status=LOADING), ui=True, api_keys=("secret-one",)) as running:
        yield running


def raw(server: Live, path: str, **headers: str) -> httpx.Response:
    """The answer with its body as it came, not decoded."""
    with server.client() as client, client.stream("GET", path, headers=headers) as answer:
        answer._content = b"".join(answer.iter_raw())
        return answer


def test_the_page_is_there_from_the_start_and_without_a_key(server: Live) -> None:
    with server.client() as client:
        answer = client.get("/")
        assert client.get("/health").status_code == 503
        assert client.get("/v1/models").status_code == 401
    assert (answer.status_code, answer.content) == (200, INDEX)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"


def test_the_page_is_asked_for_anew_but_sent_once(server: Live) -> None:
    with server.client() as client:
        etag = client.get("/").headers["etag"]
        for held in (etag, f'"other", {etag}', f"W/{etag}", "*"):
            again = client.get("/", headers={"if-none-match": held})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == etag
        assert client.get("/", headers={"if-none-match": '"other"'}).status_code == 200


def test_files_keep_for_ever_in_the_best_coding(server: Live) -> None:
    path = "/assets/app-1a2b3c4d.js"
    best = raw(server, path, **{"accept-encoding": "gzip, deflate, br"})
    zipped = raw(server, path, **{"accept-encoding": "gzip, br;q=0"})
    plain = raw(server, path, **{"accept-encoding": ""})
    assert best.content == b"as brotli"
    assert gzip.decompress(zipped.content) == plain.content == SCRIPT
    assert [answer.headers.get("content-encoding") for answer in (best, zipped, plain)] == [
        "br",
        "gzip",
        None,
    ]
    assert len({answer.headers["etag"] for answer in (best, zipped, plain)}) == 3
    for answer in (best, zipped, plain):
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.headers["vary"] == "accept-encoding"
    assert "content-encoding" not in raw(server, "/assets/app-5e6f7a8b.css").headers


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", "identity"),
        ("br", "br"),
        ("gzip;q=1.0, br;q=0.001", "br"),
        ("br;q=0, gzip;q=0.000", "identity"),
        ("*", "br"),
        ("*;q=0", "identity"),
        ("br;q=0, *", "gzip"),
        (" GZIP ; q=0.5", "gzip"),
        ("identity", "identity"),
        (";;,,=", "identity"),
    ],
)
def test_codings(accepted: str, chosen: str) -> None:
    assert page.choose_coding(accepted, {"identity": b"", "gzip": b"", "br": b""}) == chosen


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets/unlisted.js",
        "/assets/app-1a2b3c4d.js.gz",
        "/assets/../bundle.json",
        "/assets/../../secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/assets/app-1a2b3c4d.js",
        "/assets/index.html",
        "/bundle.json",
        "/index.html",
        "/assets/app-1a2b3c4d.js%00",
    ],
)
def test_only_what_is_listed_is_served(server: Live, path: str) -> None:
    with server.connect() as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404 "), path
    assert b"secret.txt" not in answer.partition(b"\r\n\r\n")[0]
    assert not answer.endswith((b"secret", b"unlisted"))


def test_the_page_is_fenced_in(server: Live) -> None:
    with server.client() as client:
        etag = client.get("/").headers["etag"]
        answers = [client.get("/"), client.get("/", headers={"if-none-match": etag})]
        answers += [client.get("/assets/app-1a2b3c4d.js"), client.get("/assets/app-5e6f7a8b.css")]
    for answer in answers:
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == policy.pop("base-uri") == "'none'"
        assert policy.pop("form-action") == policy.pop("frame-ancestors") == "'none'"
        assert policy.pop("require-trusted-types-for") == "'script'"
        assert policy.pop("trusted-types") == "mashbox"
        assert set(policy) >= {"script-src", "style-src", "connect-src"}
        assert set(policy.values()) == {"'self'"}
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "camera=()" in answer.headers["permissions-policy"]


def test_the_guards_hold_for_the_page_too(server: Live) -> None:
    framed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    with server.client() as client:
        for path in ("/", "/assets/app-1a2b3c4d.js"):
            assert client.get(path, headers={"host": "evil.example"}).status_code == 403
            assert client.get(path, headers={"origin": "https://evil.example"}).status_code == 403
            assert client.get(path, headers={"sec-fetch-site": "cross-site"}).status_code == 403
            assert client.get(path, headers=framed).status_code == 403
            assert client.post(path, json={}).status_code == 405
            assert client.head(path).status_code == 503
            for host in ("localhost:9000", "[::1]:9000", "127.0.0.1:1"):
                own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
                assert client.get(path, headers=own).status_code == 200


@pytest.mark.usefixtures("bundle")
def test_without_ui_there_is_no_page() -> None:
    with live(ScriptedEngine()) as server, server.client() as client:
        assert client.get("/").json()["status"] == "ok"
        assert client.get("/assets/app-1a2b3c4d.js").status_code == 404


def test_a_page_that_is_not_built_says_how_to_build_it(bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    with live(ScriptedEngine(status=LOADING), ui=True) as server, server.client() as client:
        left_out = client.get("/")
        assert client.get("/assets/app-1a2b3c4d.js").status_code == 404
    (bundle / "missing.txt").write_text("npm said <no>.\n")
    with live(ScriptedEngine(), ui=True) as server, server.client() as client:
        told = client.get("/")
    for answer in (left_out, told):
        assert answer.status_code == 200
        assert "<code>make ui</code>" in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
    assert "left out when mashbox was installed" in left_out.text
    assert "npm said &lt;no&gt;." in told.text


@pytest.mark.parametrize("files", [["assets/gone.js"], ["../secret.txt"], ["assets/app-1a2b3c4d.js"], [1]])
def test_a_damaged_bundle_is_not_served(bundle: Path, files: list[str]) -> None:
    listed(bundle, *files)
    with live(ScriptedEngine(), ui=True) as server, server.client() as client:
        assert "not built" in client.get("/").text
        assert client.get("/assets/app-1a2b3c4d.js").status_code == 404
