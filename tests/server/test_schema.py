"""Every kind of answer of every route, held to the description; and what holds them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from mashbox.engine.engine import EngineStatus
from mashbox.engine.events import Thinking, ToolCall
from mashbox.errors import WorkerFault
from tests.server.live import Live, eventually, live
from tests.server.schema import check_response
from tests.server.scripted import Hold, Script, ScriptedEngine, finished

SAY: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAY},
    "/v1/completions": {"prompt": "hi"},
    "/v1/messages": {"messages": SAY},
    "/v1/responses": {"input": "hi"},
}
COUNT = "/v1/messages/count_tokens"
POSTS = {**BODIES, COUNT: {"messages": SAY}}
GETS = ["/", "/health", "/v1/health", "/v1/models", "/v1/models/scripted", "/metrics", "/openapi.json"]

SCRIPTS: dict[str, Script] = {
    "text": ["Hello", " world"],
    "nothing": [],
    "everything": [Thinking("hm"), "so", ToolCall("call_1", "f", '{"x":1}'), ToolCall("call_2", "g", "{}")],
    "stop string": ["a", finished(5, 1)],
    "cut off": ["a", finished(5, 1, reason="length")],
}
LOADING = EngineStatus(state="loading")


def usage_asked(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "stream_options": {"include_usage": True}} if "chat" in path else body


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_answers(path: str, script: str) -> None:
    with live(ScriptedEngine(SCRIPTS[script])) as server, server.client() as client:
        body = usage_asked(path, BODIES[path])
        whole, stream = client.post(path, json=body), client.post(path, json={**body, "stream": True})
    assert (whole.status_code, stream.status_code) == (200, 200)
    assert whole.headers["content-type"] == "application/json"
    assert stream.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("path", BODIES)
def test_keep_alives(path: str) -> None:
    script: Script = [0.3, Thinking("hm"), 0.3, "a"]
    with live(ScriptedEngine(script), keep_alive_s=0.1) as server, server.client() as client:
        assert client.post(path, json={**BODIES[path], "stream": True}).status_code == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("fault", [WorkerFault("The device failed."), ValueError("unforeseen")])
def test_faults(path: str, fault: Exception) -> None:
    with live(ScriptedEngine(["a", fault])) as server, server.client() as client:
        assert client.post(path, json=BODIES[path]).status_code == 500
        assert client.post(path, json={**BODIES[path], "stream": True}).status_code == 200


@pytest.mark.parametrize("path", POSTS)
def test_refusals_of_a_post(path: str) -> None:
    body = POSTS[path]
    with live(ScriptedEngine(), api_keys=("k",), max_body_mib=1) as server:
        with server.client() as client:
            assert client.post(path, json=body).status_code == 401
        with server.client(headers={"x-api-key": "k"}) as client:
            assert (
                client.post(path, content=b"{", headers={"content-type": "application/json"}).status_code
                == 400
            )
            assert client.post(path, json={}).status_code == 400
            assert client.post(path, json=body, headers={"origin": "http://other"}).status_code == 403
            assert client.put(path, json=body).status_code == 405
            assert client.post(path, json={**body, "user": "x" * (1 << 20)}).status_code == 413
            assert client.post(path, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
            other = client.post(path, json={**body, "model": "other"})
            assert other.status_code == (200 if "messages" in path else 404)
            assert client.post(f"{path}/more", json=body).status_code == 404


@pytest.mark.parametrize("path", GETS)
def test_gets(path: str) -> None:
    engine = ScriptedEngine()
    with live(engine, api_keys=("k",)) as server:
        with server.client() as client:
            assert client.get(path).status_code == (200 if path in ("/", "/health") else 401)
        with server.client(headers={"authorization": "Bearer k"}) as client:
            assert client.get(path).status_code == 200
            assert client.get(path, headers={"host": "other"}).status_code == 403
            assert client.post(path, json={}).status_code == 405
            assert client.head(path).status_code == 200
            assert client.head(path, headers={"host": "other"}).status_code == 403
            engine.become(LOADING)
            health = path in ("/", "/health", "/v1/health")
            assert client.get(path).status_code == (503 if health else 200)
            assert client.head(path).status_code == 503


def test_another_model_is_not_found() -> None:
    with live(ScriptedEngine()) as server, server.client() as client:
        assert client.get("/v1/models/other").status_code == 404


@pytest.mark.parametrize("path", POSTS)
def test_posts_while_loading(path: str) -> None:
    with live(ScriptedEngine(status=LOADING)) as server, server.client() as client:
        assert client.post(path, json=POSTS[path]).status_code == (529 if "messages" in path else 503)


def test_counting_that_fails_unexpectedly() -> None:
    def fail(_: object) -> Any:
        raise ValueError("unforeseen")

    with live(ScriptedEngine(encode=fail)) as server, server.client() as client:
        assert client.post(COUNT, json=POSTS[COUNT]).status_code == 500


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("everyone", [False, True])
def test_a_full_line(path: str, everyone: bool) -> None:
    hold = Hold()
    limits = {"waiting_in_all": 1} if everyone else {"waiting_per_tenant": 1}

    def ask(server: Live) -> httpx.Response:
        with server.client() as client:
            return client.post(path, json=BODIES[path])

    with live(ScriptedEngine([hold, "a"]), **limits) as server, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, server) for _ in range(3)]
        eventually(lambda: server.service.line.waiting == 1)
        full = ask(server)
        hold.release()
        assert [answer.result().status_code for answer in asked] == [200] * 3
    assert full.status_code == (529 if everyone and "messages" in path else 429)


ERROR = {"error": {"message": "m", "type": "server_error", "param": None, "code": None}}
CHUNK = {
    "id": "i",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}],
}
CHAT = "/v1/chat/completions"


def line(value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"


@pytest.mark.parametrize(
    ("path", "method", "status", "body"),
    [
        ("/v1/models", "GET", 200, json.dumps({"object": "list"})),
        ("/v1/models", "GET", 200, json.dumps({"object": "lists", "data": []})),
        ("/v1/models", "GET", 200, json.dumps({"object": "list", "data": [], "more": 1})),
        ("/v1/models", "GET", 200, json.dumps({"object": "list", "data": [{"id": 1}]})),
        ("/v1/models", "GET", 500, json.dumps(ERROR)),
        ("/health", "HEAD", 200, "{}"),
        ("/unknown", "GET", 200, "{}"),
        (CHAT, "POST", 400, json.dumps({"type": "error", **ERROR})),
        ("/v1/messages", "POST", 400, json.dumps(ERROR)),
        (CHAT, "POST", 200, line(CHUNK)),
        (CHAT, "POST", 200, line({**CHUNK, "choices": [{"delta": {}}]}) + "data: [DONE]\n\n"),
        (CHAT, "POST", 200, line(CHUNK) + "data: [DONE]\n\n" + line(CHUNK)),
        (CHAT, "POST", 200, line(CHUNK) + line(ERROR) + "data: [DONE]\n\n"),
        (CHAT, "POST", 200, line(CHUNK) + "data: [DONE]\n"),
        ("/v1/messages", "POST", 200, "event: ping\n" + line({"type": "pong"})),
        ("/v1/messages", "POST", 200, "event: ping\n" + line({"type": "ping"})),
        ("/v1/models", "GET", 200, "# HELP a text\n"),
    ],
)
def test_what_is_not_as_described_is_found(path: str, method: str, status: int, body: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        check_response(path, method, status, body)


@pytest.mark.parametrize("body", [line(CHUNK) + "data: [DONE]\n\n", ": hm\n\n" + line(CHUNK) + line(ERROR)])
def test_what_is_as_described_passes(body: str) -> None:
    check_response(CHAT, "POST", 200, body)
