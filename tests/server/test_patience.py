"""Clients that are slow, silent, old or crooked, seen from the socket."""

import gc
import json
import logging
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from mashbox.engine.request import Conversation
from mashbox.engine.stops import StopFinder
from tests.patience import PATIENCE
from tests.server.live import Live, eventually, live
from tests.server.schema import check_response
from tests.server.scripted import CARD, Hold, ScriptedEngine

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
ASK = {"messages": [{"role": "user", "content": "hi"}]}
LIMIT = 0.6


@pytest.fixture
def hasty() -> Iterator[Live]:
    """A server that waits for nothing longer than LIMIT seconds."""
    with live(ScriptedEngine(), read_timeout_s=LIMIT) as server:
        yield server


def received(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def head(path: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode()


# --- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES, f"{MESSAGES}/count_tokens", "/v1/responses"])
@pytest.mark.parametrize("begun", [b"", b'{"messages": '])
def test_a_body_that_does_not_come_is_408_in_the_routes_shape(hasty: Live, path: str, begun: bytes) -> None:
    started = time.monotonic()
    with hasty.connect() as sock:
        sock.sendall(head(path, "Content-Length: 1000") + begun)
        answer = received(sock)
    assert time.monotonic() - started >= LIMIT
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer and b"x-request-id: req_" in answer
    check_response(path, "POST", 408, body_of(answer))
    assert b"did not come within 0.6 s" in answer


def test_a_slow_body_that_goes_on_is_read(hasty: Live) -> None:
    raw = json.dumps(ASK).encode()
    with hasty.connect() as sock:
        sock.sendall(head(CHAT, f"Content-Length: {len(raw)}", "Connection: close"))
        for index in range(0, len(raw), 4):
            time.sleep(LIMIT / 6)
            sock.sendall(raw[index : index + 4])
        assert received(sock).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_leaves_within_its_body_is_nothing_to_log(
    hasty: Live, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        with hasty.connect() as sock:
            sock.sendall(head(CHAT, "Content-Length: 1000") + b"{")
            eventually(lambda: hasty.server.server_state.tasks)
        eventually(lambda: not hasty.server.server_state.tasks)
    assert not caplog.records


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"", b""),
        (b"\r\n\r\n", b""),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: local", b"HTTP/1.1 408 "),
    ],
    ids=["nothing", "empty lines", "half a head"],
)
def test_a_connection_that_asks_nothing_is_closed(hasty: Live, sent: bytes, told: bytes) -> None:
    with hasty.connect() as sock:
        sock.sendall(sent)
        answer = received(sock)
    assert answer.startswith(told)
    if told:
        assert json.loads(body_of(answer))["error"]["type"] == "invalid_request_error"
    else:
        assert answer == b""


def test_headers_that_drip_are_not_awaited_for_ever(hasty: Live) -> None:
    with hasty.connect() as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        with pytest.raises(ConnectionError):
            for _ in range(50):
                time.sleep(LIMIT / 6)
                sock.sendall(b"x")


def test_a_refused_body_is_not_awaited_for_ever(hasty: Live) -> None:
    with hasty.connect() as sock:
        sock.sendall(head("/v1/nothing", "Content-Length: 100000"))
        assert sock.recv(12) == b"HTTP/1.1 404"
        with pytest.raises(ConnectionError):
            for _ in range(50):
                time.sleep(LIMIT / 6)
                sock.sendall(b"x")


def test_an_answer_may_take_longer_than_its_client(hasty: Live) -> None:
    engine = ScriptedEngine(["a", LIMIT * 2, "b"])
    with live(engine, read_timeout_s=LIMIT) as server, server.client() as client:
        assert client.post(CHAT, json=ASK).json()["choices"][0]["message"]["content"] == "ab"
        # The connection waits for the next request as long as uvicorn keeps it.
        time.sleep(LIMIT * 2)
        (connection,) = server.server.server_state.connections
        assert client.post(CHAT, json=ASK).status_code == 200
        assert server.server.server_state.connections == {connection}


def test_a_client_that_is_gone_without_a_word_is_noticed_by_the_system(hasty: Live) -> None:
    with hasty.connect():
        eventually(lambda: hasty.server.server_state.connections)
        (connection,) = hasty.server.server_state.connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if sys.platform == "linux":
            silence = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            probes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            assert silence + probes * sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 60


# --- many ------------------------------------------------------------------------------------------


def memory() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.slow
def test_a_thousand_idle_connections_and_streams_cost_little() -> None:
    """Measured with their clients' sockets, which live in this process too."""
    hold = Hold()
    engine = ScriptedEngine([hold, "x"], card=CARD)
    ask = json.dumps({**ASK, "stream": True, "max_tokens": 1}).encode()
    with live(engine, waiting_per_tenant=1000, waiting_in_all=1000, keep_alive_s=1.0) as server:
        before = memory()
        socks = [server.connect() for _ in range(1000)]
        for sock in socks[:500]:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for sock in socks[500:]:
            sock.sendall(head(CHAT, f"Content-Length: {len(ask)}") + ask)
        for sock in socks:
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
        eventually(lambda: server.service.line.waiting == 498, within=20)
        with server.client() as client:
            assert client.get("/health").json()["waiting"] == 498
        assert memory() - before < 100 << 20
        hold.release()
        for sock in socks[500:]:
            while not (part := sock.recv(65536)).endswith(b"0\r\n\r\n"):
                assert part
        for sock in socks:
            sock.close()
        eventually(lambda: not server.server.server_state.connections, within=20)
        assert (server.service.line.running, server.service.line.waiting) == (0, 0)


def test_the_limit_of_open_files_is_raised_as_far_as_it_may() -> None:
    script = """
import resource
from mashbox.server.serve import allow_files
for hard, wanted in ((9000, 8192), (5000, 5000)):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    allow_files()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (wanted, hard)
"""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 9000:
        pytest.skip("this system's own limit is lower")
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE)


def test_a_flood_of_headers_is_refused() -> None:
    with live(ScriptedEngine()) as server, server.connect() as sock:
        flood = b"".join(b"X-%d: y\r\n" % index for index in range(20_000))
        answer = b""
        try:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + flood + b"\r\n")
            answer = received(sock)
        except ConnectionError:
            pass
        assert b"200 OK" not in answer
        with server.client() as client:
            assert client.get("/health").status_code == 200


def test_a_huge_list_of_tools_is_read() -> None:
    tool = {
        "description": "d" * 50,
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    tools = [{"type": "function", "function": {"name": f"tool_{i}", **tool}} for i in range(5_000)]
    engine = ScriptedEngine()
    with live(engine) as server, server.client() as client:
        assert client.post(CHAT, json={**ASK, "tools": tools}).status_code == 200
    prompt = engine.requests[0].prompt
    assert isinstance(prompt, Conversation) and len(prompt.tools) == 5_000


@pytest.mark.parametrize(
    "stops", [["x"] * 257, ["x" * 16_385], ["x" * 100] * 164], ids=["many", "long", "both"]
)
def test_a_huge_list_of_stops_is_refused_and_the_largest_is_taken(stops: list[str]) -> None:
    """Every letter of every answer is held against each of them, on the loop that serves all."""
    with live(ScriptedEngine()) as server, server.client() as client:
        for path, field in ((CHAT, "stop"), (MESSAGES, "stop_sequences")):
            refused = client.post(path, json={**ASK, "max_tokens": 9, field: stops})
            assert refused.status_code == 400
            assert field in refused.json()["error"]["message"]
        most = [f"{index:064}" for index in range(1, 257)]
        assert client.post(CHAT, json={**ASK, "stop": most}).status_code == 200
    finder = StopFinder(most)
    assert finder.push("0" * 1000) and finder.matched is None


# --- form ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip"])
def test_a_compressed_body_is_415_and_named(hasty: Live, coding: str) -> None:
    with hasty.client() as client:
        for path in (CHAT, MESSAGES):
            answer = client.post(path, json=ASK, headers={"content-encoding": coding})
            assert answer.status_code == 415
            assert repr(coding) in answer.json()["error"]["message"]
            assert answer.headers["accept-encoding"] == "identity"
        assert client.post(CHAT, json=ASK, headers={"content-encoding": "identity"}).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_of_http_1_0_gets_no_chunks(stream: bool) -> None:
    engine = ScriptedEngine(["Hello", 0.05, " world"])
    with live(engine) as server, server.connect() as sock:
        raw = json.dumps({**ASK, "stream": stream}).encode()
        old = head(CHAT, f"Content-Length: {len(raw)}").replace(b"HTTP/1.1", b"HTTP/1.0")
        sock.sendall(old + raw)
        answer = received(sock)
    top = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"transfer-encoding" not in top and b"connection: close" in top
    check_response(CHAT, "POST", 200, body_of(answer))
    assert b"world" in answer
    assert body_of(answer).endswith(b"data: [DONE]\n\n") == stream


def test_the_page_of_metrics_and_heads_go_to_http_1_0_too(hasty: Live) -> None:
    for method, path in (("GET", "/metrics"), ("HEAD", "/health"), ("GET", "/v1/none")):
        with hasty.connect() as sock:
            sock.sendall(f"{method} {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            answer = received(sock)
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert len(body_of(answer)) == length


@pytest.mark.parametrize(
    "crooked",
    [b"\x16\x03\x01 nonsense\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n"
     b"Connection: Upgrade\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"],
    ids=["bytes of TLS", "an upgrade", "a version"],
)  # fmt: skip
def test_what_clients_send_wrong_is_not_the_operators(
    hasty: Live, caplog: pytest.LogCaptureFixture, crooked: bytes
) -> None:
    with caplog.at_level(logging.WARNING), hasty.connect() as sock:
        sock.sendall(crooked)
        assert sock.recv(9) == b"HTTP/1.1 "
    assert not caplog.records
