"""Waiting, leaving, stalling and failing, seen from the socket."""

import itertools
import json
import random
import socket
import sys
import time
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mashbox.engine.engine import EngineStatus
from mashbox.engine.events import Text, Thinking, ToolCall
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.errors import EngineLoading, InvalidRequest, PromptTooLong, WorkerFault
from tests.hypotheses import examples
from tests.patience import PATIENCE
from tests.server.live import Live, events_of, eventually, live
from tests.server.scripted import CARD, Hold, Script, ScriptedEngine, Step

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ASK = {"messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {CHAT: ASK, COMPLETIONS: {"prompt": "hi"}}


def idle(server: Live, engine: ScriptedEngine) -> bool:
    line = server.service.line
    return (line.running, line.waiting, engine.running, len(server.service._enders)) == (0, 0, 0, 0)


def wait_for_waiting(server: Live, count: int) -> None:
    eventually(lambda: server.service.line.waiting == count)


# --- leaving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_while_answered_is_dropped(path: str, stream: bool) -> None:
    hold = Hold()
    engine = ScriptedEngine(["a", hold, "b"])
    with live(engine) as server:
        with server.connect() as sock:
            server.post_raw(path, {**BODIES[path], "stream": stream}, sock)
            assert hold.reached.wait(PATIENCE)
        eventually(lambda: idle(server, engine))
        assert engine.cancelled == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_the_line_never_starts(stream: bool) -> None:
    hold = Hold()
    engine = ScriptedEngine([hold, "x"])
    with live(engine) as server:
        with server.connect() as first, server.connect() as second:
            for sock in (first, second):
                server.post_raw(CHAT, ASK, sock)
            eventually(lambda: engine.running == 2)
            with server.connect() as third:
                server.post_raw(CHAT, {**ASK, "stream": stream}, third)
                eventually(lambda: server.service.line.waiting == 1)
            eventually(lambda: server.service.line.waiting == 0)
            hold.release()
            for sock in (first, second):
                assert sock.recv(15) == b"HTTP/1.1 200 OK"
        assert len(engine.requests) == 2


def test_a_client_that_leaves_while_its_prompt_is_encoded() -> None:
    hold = Hold()
    engine = ScriptedEngine(encode=hold)
    with live(engine) as server:
        with server.connect() as sock:
            server.post_raw(CHAT, ASK, sock)
            assert hold.reached.wait(PATIENCE)
            assert len(server.service._enders) == 1
        eventually(lambda: not server.service._enders)
        hold.release()
        assert engine.requests == []


def test_a_client_that_leaves_with_a_second_request_on_its_way() -> None:
    hold = Hold()
    engine = ScriptedEngine([hold, "x"])
    with live(engine) as server:
        with server.connect() as sock:
            server.post_raw(CHAT, ASK, sock)
            assert hold.reached.wait(PATIENCE)
            server.post_raw(CHAT, ASK, sock)
            time.sleep(0.05)
        eventually(lambda: idle(server, engine))


def test_many_leaving_at_random_leave_nothing_behind() -> None:
    pairs: list[Step] = ["x", 0.001]
    engine = ScriptedEngine([0.005, *pairs * 20])
    dice = random.Random(1)
    with live(engine) as server:
        open_: list[socket.socket] = []
        for _ in range(40):
            sock = server.connect()
            server.post_raw(CHAT, {**ASK, "stream": dice.random() < 0.5}, sock)
            open_.append(sock)
            if dice.random() < 0.6 or len(open_) > 20:
                open_.pop(dice.randrange(len(open_))).close()
        for sock in open_:
            sock.close()
        eventually(lambda: idle(server, engine))
        with server.client() as client:
            assert client.post(CHAT, json={**ASK, "max_tokens": 1}).status_code == 200
    assert engine.most_running <= engine.card.slots


def test_a_client_that_reads_nothing_is_disconnected() -> None:
    def endless(_: Request) -> Script:
        return ["word " * 400, 0.001] * 100_000

    engine = ScriptedEngine(endless)
    with live(engine, stalled_reader_s=0.6, keep_alive_s=60) as server:
        with server.connect(receive_buffer=4096) as sock:
            server.post_raw(CHAT, {**ASK, "stream": True}, sock)
            eventually(lambda: engine.running == 1)
            started = time.monotonic()
            eventually(lambda: idle(server, engine))
            assert time.monotonic() - started >= 0.5
        assert engine.cancelled == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's queue is read on Linux only")
def test_a_stall_of_few_bytes_is_noticed_too() -> None:
    """Less than the socket's send buffer is waiting: only the kernel's queue tells."""
    hold = Hold()
    engine = ScriptedEngine([*["word " * 400] * 6, hold])
    with (
        live(engine, stalled_reader_s=0.6, keep_alive_s=60) as server,
        server.connect(receive_buffer=2048) as sock,
    ):
        server.post_raw(CHAT, {**ASK, "stream": True}, sock)
        assert hold.reached.wait(PATIENCE)
        eventually(lambda: idle(server, engine))


def test_a_slow_reader_is_kept() -> None:
    engine = ScriptedEngine(["word " * 400] * 60)
    with live(engine, stalled_reader_s=1.2) as server, server.connect(receive_buffer=4096) as sock:
        server.post_raw(CHAT, {**ASK, "stream": True}, sock)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            part = sock.recv(1500)
            assert part, "the server hung up"
            received += part
            time.sleep(0.02)
    assert received.count(b"word ") == 60 * 400
    assert engine.cancelled == 0


# --- silence ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_streams_are_never_silent_for_long(path: str) -> None:
    with (
        live(ScriptedEngine([1.0, "a", 1.0, "b"]), keep_alive_s=0.1) as server,
        server.client() as client,
        client.stream("POST", path, json={**BODIES[path], "stream": True}) as it,
    ):
        text = "".join(it.iter_text())
    # Ten at most in each of the two pauses.
    before, _, after = text.partition('"a"')
    between, _, _ = after.partition('"b"')
    assert min(pause.count(": keep-alive\n\n") for pause in (before, between)) >= 3
    assert events_of(text)[-1] == "[DONE]"


def test_a_waiting_stream_has_its_status_and_keep_alives_before_its_turn() -> None:
    hold = Hold()
    engine = ScriptedEngine([hold, "x"])
    with (
        live(engine, keep_alive_s=0.05) as server,
        server.client() as client,
        server.connect() as first,
        server.connect() as second,
    ):
        for sock in (first, second):
            server.post_raw(CHAT, ASK, sock)
        eventually(lambda: engine.running == 2)
        with client.stream("POST", CHAT, json={**ASK, "stream": True}) as waiting:
            assert waiting.status_code == 200
            lines = waiting.iter_lines()
            while ": keep-alive" not in next(lines):
                pass
            assert server.service.line.waiting == 1
            assert client.get("/health").json()["waiting"] == 1
            hold.release()
            assert list(lines)[-2] == "data: [DONE]"


# --- the line --------------------------------------------------------------------------------------


def test_the_line_answers_429_with_a_real_status() -> None:
    hold = Hold()
    engine = ScriptedEngine([hold, "x"])
    with live(engine, waiting_per_tenant=2) as server, server.client() as client:
        socks = [server.connect() for _ in range(4)]
        for sock in socks:
            server.post_raw(CHAT, ASK, sock)
        eventually(lambda: server.service.line.waiting == 2)
        for stream in (True, False):
            refused = client.post(CHAT, json={**ASK, "stream": stream})
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert refused.json()["error"]["type"] == "unavailable"
        hold.release()
        for sock in socks:
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
            sock.close()
    assert engine.most_running == 2


def test_a_prompt_that_can_not_be_encoded_is_refused_before_it_waits() -> None:
    def refuse(request: Request) -> EncodedPrompt:
        raise PromptTooLong(5000, 4096)

    with live(ScriptedEngine(encode=refuse)) as server, server.client() as client:
        for path, stream in itertools.product(BODIES, (True, False)):
            refused = client.post(path, json={**BODIES[path], "stream": stream})
            assert refused.status_code == 400
            error = refused.json()["error"]
            assert error["code"] == "context_length_exceeded"
            assert error["param"] == ("messages" if path == CHAT else "prompt")
            assert "5000" in error["message"]
            assert "4096" in error["message"]


def test_a_prompt_that_is_nested_too_deeply_is_the_clients_fault() -> None:
    def sink(request: Request) -> EncodedPrompt:
        return sink(request)

    with live(ScriptedEngine(encode=sink)) as server, server.client() as client:
        refused = client.post(CHAT, json=ASK)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "messages"


def test_tenants_take_turns() -> None:
    hold = Hold()
    engine = ScriptedEngine([hold], card=msgspec.structs.replace(CARD, slots=1))
    keys = ("a", "a", "a", "a", "b", "c", "b")
    with live(engine, api_keys=("a", "b", "c")) as server:
        socks = [server.connect() for _ in keys]
        for i, (sock, key) in enumerate(zip(socks, keys, strict=True)):
            server.post_raw(CHAT, ASK, sock, f"x-api-key: {key}")
            eventually(lambda: engine.running == 1)
            wait_for_waiting(server, i)
        hold.release()
        for sock in socks:
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
            sock.close()
    names = {request.tenant: None for request in engine.requests}
    turns = "".join("abc"[list(names).index(request.tenant)] for request in engine.requests)
    assert turns == "aabcaba"


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (WorkerFault("The device failed."), 500, "server_error"),
        (EngineLoading(retry_after=7), 503, "unavailable"),
        (InvalidRequest("The template refused."), 400, "invalid_request_error"),
        (ZeroDivisionError("secret detail"), 500, "server_error"),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_failure_of_a_whole_answer(path: str, error: Exception, status: int, kind: str) -> None:
    with live(ScriptedEngine(["a", error])) as server, server.client() as client:
        answer = client.post(path, json=BODIES[path])
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == kind
    assert "secret" not in answer.text
    assert answer.headers.get("retry-after") == ("7" if status == 503 else None)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "script", [["a", WorkerFault("The device failed.")], [WorkerFault("The device failed.")]]
)
def test_a_failure_of_a_stream_ends_it_with_an_error_event(path: str, script: list[Step]) -> None:
    with live(ScriptedEngine(script)) as server, server.client() as client:
        answer = client.post(path, json={**BODIES[path], "stream": True})
    assert answer.status_code == 200
    events = events_of(answer.text)
    assert "[DONE]" not in events
    error = events[-1]
    assert error["error"]["type"] == "server_error"
    assert "The device failed." in error["error"]["message"]
    prefix = "chatcmpl-" if path == CHAT else "cmpl-"
    assert error["request_id"].startswith(prefix)
    assert all(event["id"] == error["request_id"] for event in events[:-1])


def test_an_answer_without_an_end_is_a_fault() -> None:
    class Broken(ScriptedEngine):
        async def generate(self, request: Any, prompt: Any, queue_ms: float = 0.0) -> Any:
            yield Text("a")

    with live(Broken()) as server, server.client() as client:
        assert client.post(CHAT, json=ASK).status_code == 500
        assert "[DONE]" not in client.post(CHAT, json={**ASK, "stream": True}).text


def test_an_engine_that_failed_says_why() -> None:
    engine = ScriptedEngine(status=EngineStatus(state="failed", stage="weights are damaged"))
    with live(engine) as server, server.client() as client:
        answer = client.post(CHAT, json=ASK)
    assert answer.status_code == 503
    assert "weights are damaged" in answer.json()["error"]["message"]


# --- both modes ------------------------------------------------------------------------------------

pieces = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
calls = st.builds(
    lambda i, name, value: ToolCall(f"call_{i}", name, json.dumps({"x": value})),
    st.integers(0, 9),
    st.text("abc", min_size=1, max_size=3),
    pieces,
)
steps = st.lists(st.one_of(pieces, st.builds(Thinking, pieces), calls), max_size=12)


@pytest.fixture(scope="module")
def playing() -> Any:
    engine = ScriptedEngine()
    with live(engine) as server, server.client() as client:
        yield engine, client


@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(script=steps, limit=st.none() | st.integers(1, 12))
def test_a_stream_and_a_whole_answer_say_the_same(playing: Any, script: Script, limit: int | None) -> None:
    engine, client = playing
    engine.script = script
    body = {**ASK, "max_tokens": limit}
    whole = client.post(CHAT, json=body).json()
    streamed = events_of(
        client.post(CHAT, json={**body, "stream": True, "stream_options": {"include_usage": True}}).text
    )
    assert streamed.pop() == "[DONE]"
    message, usage = {"content": "", "reasoning_content": ""}, streamed.pop()
    made: list[Any] = []
    for chunk in streamed:
        delta = chunk["choices"][0]["delta"]
        for field in message:
            message[field] += delta.get(field, "")
        made += delta.get("tool_calls", [])
    choice = whole["choices"][0]
    assert message["content"] == (choice["message"]["content"] or "")
    assert message["reasoning_content"] == choice["message"].get("reasoning_content", "")
    assert [{k: v for k, v in call.items() if k != "index"} for call in made] == choice["message"].get(
        "tool_calls", []
    )
    assert [call["index"] for call in made] == list(range(len(made)))
    assert streamed[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert usage["usage"] == whole["usage"]
    text = client.post(COMPLETIONS, json={"prompt": "x", "max_tokens": limit}).json()
    chunks = events_of(
        client.post(COMPLETIONS, json={"prompt": "x", "max_tokens": limit, "stream": True}).text
    )[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text["choices"][0]["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == text["choices"][0]["finish_reason"]
