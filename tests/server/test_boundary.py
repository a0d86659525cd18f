"""What is refused before any route runs, on every registered route."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mashbox.engine.engine import EngineStatus
from mashbox.server.boundary import Routes
from tests.server.live import Live, live
from tests.server.scripted import ScriptedEngine

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "hi"}]}

OPEN = {"/": 200, "/health": 200, "/assets/scripted": 404}
"""What needs no key, and how a server without the page answers."""


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with live(ScriptedEngine(), max_body_mib=1, allow_hosts=("tunnel.example",)) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[Live]:
    with live(ScriptedEngine(), api_keys=("secret-one", "secret-two")) as running:
        yield running


def openai_error(answer: httpx.Response, kind: str = "invalid_request_error") -> dict[str, Any]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"] == kind
    assert "access-control-allow-origin" not in answer.headers
    return dict(error)


def anthropic_error(answer: httpx.Response, kind: str = "invalid_request_error") -> None:
    body = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert body["error"]["type"] == kind
    assert answer.headers["request-id"] == answer.headers["x-request-id"] == body["request_id"]


def routes_of(server: Live) -> list[tuple[str, str]]:
    app: Any = server.server.config.app
    paths = [(route.path, method) for route in app.routes for method in route.methods]
    return [(re.sub(r"\{\w+:path\}", "scripted", path), method) for path, method in paths]


# --- host and origin -------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example"])
def test_a_foreign_host_is_refused_everywhere(server: Live, host: str) -> None:
    with server.client() as client:
        for path in ("/", "/health", "/v1/models", "/nothing"):
            answer = client.get(path, headers={"host": host})
            assert answer.status_code == 403
            openai_error(answer)
            assert client.head(path, headers={"host": host}).status_code == 403
        answer = client.post("/v1/messages", json={}, headers={"host": host})
    assert answer.status_code == 403
    anthropic_error(answer)


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "tunnel.example:443", "192.168.1.9"])
def test_known_hosts_are_answered_on_any_port(server: Live, host: str) -> None:
    with server.client() as client:
        assert client.get("/v1/models", headers={"host": host}).status_code == 200


def test_a_request_without_one_host_is_bad(server: Live) -> None:
    for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        with server.connect() as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
            assert received(sock).startswith(b"HTTP/1.1 400 ")


def test_origins(server: Live) -> None:
    own = f"http://127.0.0.1:{server.port}"
    with server.client() as client:
        assert client.post(CHAT, json=ASK, headers={"origin": own}).status_code == 200
        for foreign in ("https://evil.example", "null", "http://127.0.0.1:1"):
            answer = client.post(CHAT, json=ASK, headers={"origin": foreign})
            assert answer.status_code == 403
            openai_error(answer)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_fetch_metadata(server: Live, site: str) -> None:
    navigation = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    with server.client() as client:
        assert client.get("/", headers=navigation).status_code == 200
        assert client.get("/v1/models", headers=navigation).status_code == 403
        assert client.post(CHAT, json=ASK, headers=navigation).status_code == 403
        assert client.get("/", headers={"sec-fetch-site": site}).status_code == 403
        framed = {**navigation, "sec-fetch-dest": "iframe"}
        assert client.get("/", headers=framed).status_code == 403
        for own in ("same-origin", "none"):
            assert client.get("/v1/models", headers={"sec-fetch-site": own}).status_code == 200


def test_options_never_grants(server: Live) -> None:
    asked = {"access-control-request-method": "POST"}
    with server.client() as client:
        for path in (CHAT, "/v1/messages", "/nothing", "/"):
            plain = client.options(path, headers=asked)
            foreign = client.options(path, headers={**asked, "origin": "https://evil.example"})
            assert (plain.status_code, foreign.status_code) == (405, 403)
            for answer in (plain, foreign):
                assert not [name for name in answer.headers if name.startswith("access-control")]


# --- keys ------------------------------------------------------------------------------------------


def test_every_route_but_health_needs_a_key(guarded: Live) -> None:
    known = routes_of(guarded)
    assert (CHAT, "POST") in known
    extra = [("/v1/messages", "POST"), ("/v1/messages/", "POST"), ("/metrics", "GET"), ("/v1", "GET")]
    extra += [("/openapi.json", "GET"), ("/%761/models", "GET")]
    with guarded.client() as client:
        for path, method in [*known, *extra]:
            answer = client.request(method, path)
            if method in ("OPTIONS", "HEAD"):
                continue
            expected = OPEN.get(path, 401)
            assert answer.status_code == expected, (method, path)
            if expected == 401:
                assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"])
def test_no_method_is_a_way_around_the_key(guarded: Live, method: str) -> None:
    paths = {path for path, _ in routes_of(guarded)} - set(OPEN)
    assert len(paths) >= 10
    with guarded.client() as client:
        for path in sorted(
            paths | {"/v1", "/v1/", "/v1/nothing", "/v1/messages/", "/metrics/", "/openapi.json/"}
        ):
            request = client.build_request(method, path)
            assert client.send(request).status_code == 401, path
            allowed = client.options(path)
            assert allowed.status_code == 405
        for path, status in OPEN.items():
            assert client.send(client.build_request(method, path)).status_code == (
                status if method == "GET" else 405
            )


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/messages/count_tokens", "/v1/nothing"])
@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
def test_a_key_is_asked_for_before_the_body_is_read(guarded: Live, path: str, expect: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{expect}"
    with guarded.connect() as sock:
        sock.sendall(head.encode() + b"Content-Length: 1000\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 401"


def test_a_doubled_slash_is_no_way_around_the_key(guarded: Live, server: Live) -> None:
    request = (
        b"POST //v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    for running, status in ((guarded, b"401"), (server, b"404")):
        with running.connect() as sock:
            sock.sendall(request)
            assert received(sock).split(b" ")[1] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer secret-one"}, 200),
        ({"authorization": "bearer  secret-two"}, 200),
        ({"x-api-key": "secret-one"}, 200),
        ({"authorization": "Bearer wrong", "x-api-key": "secret-two"}, 200),
        ({"authorization": "Bearer secret-one", "x-api-key": "wrong"}, 200),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic secret-one"}, 401),
        ({"authorization": "secret-one"}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"x-api-key": ""}, 401),
        ({"x-api-key": "secret-on"}, 401),
        ({"x-api-key": "secret-one\xff"}, 401),
    ],
)
def test_keys(guarded: Live, headers: dict[str, str], status: int) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    with guarded.client() as client:
        answer = client.get("/v1/models", headers=raw)
    assert answer.status_code == status
    if status == 401:
        openai_error(answer)


def test_keys_are_tenants_of_their_own() -> None:
    engine = ScriptedEngine()
    with live(engine, api_keys=("one", "two")) as server, server.client() as client:
        for key in ("one", "two", "one"):
            client.post(CHAT, json=ASK, headers={"x-api-key": key})
    first, second, again = [request.tenant for request in engine.requests]
    assert first == again != second
    assert "one" not in first


def test_a_key_that_nobody_asked_for_is_ignored(server: Live) -> None:
    with server.client() as client:
        assert client.get("/v1/models", headers={"authorization": "Bearer any"}).status_code == 200


# --- paths and methods -----------------------------------------------------------------------------


def test_unknown_paths_in_their_familys_shape(server: Live) -> None:
    with server.client() as client:
        for path in ("/v1/nothing", "/v1/models/", "/x", "/v1/chat/completions/x", "/v2"):
            answer = client.get(path)
            if path == "/v1/models/":
                assert answer.status_code == 200
                continue
            assert answer.status_code == 404, path
            openai_error(answer)
        for path in ("/v1/messages/unknown", "/v1/messages/batches"):
            answer = client.post(path, json={})
            assert answer.status_code == 404
            anthropic_error(answer)


def test_wrong_methods_name_the_right_ones(server: Live) -> None:
    cases = [("GET", CHAT, {"HEAD", "POST"}), ("POST", "/v1/models", {"GET", "HEAD"})]
    cases += [("DELETE", "/v1/models/scripted", {"GET", "HEAD"}), ("PUT", "/", {"GET", "HEAD"})]
    with server.client() as client:
        for method, path, allowed in cases:
            answer = client.request(method, path)
            assert answer.status_code == 405
            assert set(answer.headers["allow"].split(", ")) == allowed
            openai_error(answer)


def test_a_path_that_is_a_prefix_is_not_a_route(server: Live) -> None:
    app: Any = server.server.config.app
    routes = Routes(app)
    assert routes.methods("/v1/models/a/b") == {"GET"}
    assert routes.methods("/v1/modelsx") == set()
    assert routes.methods("//v1/models") == set()


def test_every_answer_has_an_id_of_its_own(server: Live) -> None:
    with server.client() as client:
        answers = [client.get("/health"), client.head("/x"), client.get("/x"), client.options("/")]
        answers += [client.post(CHAT, json=ASK), client.post(CHAT, json={**ASK, "stream": True})]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)


# --- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonx", 415),
        (None, 415),
    ],
)
def test_content_types(server: Live, kind: str | None, status: int) -> None:
    headers = {} if kind is None else {"content-type": kind}
    with server.client() as client:
        answer = client.post(CHAT, content=json.dumps(ASK).encode(), headers=headers)
    assert answer.status_code == status
    if status == 415:
        openai_error(answer)


def test_a_large_body_is_refused_unread(server: Live) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with server.connect() as sock:
        sock.sendall(head.encode() + b"Content-Length: 1048577\r\n\r\n{")
        answer = received(sock)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    assert b'"invalid_request_error"' in answer


def test_a_chunked_body_is_counted(server: Live) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"messages":[{"role":"user","content":"'
        for _ in range(40):
            yield b"x" * 32768
        yield b'"}]}'

    with server.client() as client:
        answer = client.post(CHAT, content=chunks(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
        openai_error(answer)
        small = client.post(
            CHAT, content=iter([json.dumps(ASK).encode()]), headers={"content-type": "application/json"}
        )
    assert small.status_code == 200


def test_a_body_just_under_the_limit_is_read(server: Live) -> None:
    body = {"messages": [{"role": "user", "content": "x" * (2**20 - 100)}]}
    with server.client() as client:
        assert client.post(CHAT, json=body).status_code == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b"\xff\xfe{}",
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"unknown": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b', "messages": []}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "a"}], "seed": ' + b"9" * 10_000 + b"}",
    ],
    ids=lambda raw: raw[:30].decode("latin-1") or "empty",
)
def test_bad_json_is_400(server: Live, raw: bytes) -> None:
    with server.client() as client:
        answer = client.post(CHAT, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    openai_error(answer)


def test_nul_and_pairs_are_text() -> None:
    engine = ScriptedEngine()
    raw = b'{"messages": [{"role": "user", "content": "a\\u0000\\ud83d\\ude00"}]}'
    with live(engine) as server, server.client() as client:
        answer = client.post(CHAT, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    prompt: Any = engine.requests[0].prompt
    assert prompt.messages[0]["content"] == "a\0😀"


def test_posts_while_loading() -> None:
    engine = ScriptedEngine(status=EngineStatus(state="loading"))
    with live(engine) as server, server.client() as client:
        for path in (CHAT, "/v1/completions"):
            answer = client.post(path, json={})
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            openai_error(answer, "unavailable")


def test_garbage_is_answered_in_json(server: Live) -> None:
    with server.connect() as sock:
        sock.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        answer = received(sock)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"x-request-id: req_" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


def test_endless_headers_are_cut(server: Live) -> None:
    with server.connect() as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                sock.sendall(b"x" * 65536)
            pytest.fail("64 MB of headers were taken")


def test_several_requests_on_one_connection(server: Live) -> None:
    one = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Some: " + b"x" * 30_000 + b"\r\n"
    with server.connect() as sock:
        for _ in range(4):
            sock.sendall(one + b"\r\n")
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
            while b'"has_more":false}' not in sock.recv(65536):
                pass
        sock.sendall(one + b"\r\n" + one + b"Connection: close\r\n\r\n")
        assert received(sock).count(b"HTTP/1.1 200 OK") == 2


def received(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)
