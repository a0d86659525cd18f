"""What the log tells of requests, and what it must never tell."""

import io
import json
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from mashbox.engine.engine import EngineStatus
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.errors import InvalidRequest, PromptTooLong, WorkerFault
from mashbox.server import logs
from mashbox.server.record import Record
from tests.patience import PATIENCE
from tests.server.live import Live, eventually, live
from tests.server.scripted import Hold, ScriptedEngine

CHAT = "/v1/chat/completions"
SECRET = "xyzzy-plugh"
KEY = "mashbox-key-of-alice"
ASK = {"messages": [{"role": "user", "content": SECRET}]}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What is logged; the loggers are as before afterwards."""
    loggers = [logging.getLogger(), logging.getLogger("mashbox")]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    stream = io.StringIO()
    yield stream
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


def lines(log: io.StringIO, at_least: int = 1) -> list[str]:
    """A request's line follows its last byte, so it may come a moment after the client has it."""
    eventually(lambda: log.getvalue().count("\n") >= at_least)
    return log.getvalue().splitlines()


def objects(log: io.StringIO, at_least: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(log, at_least)]


def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(f"{KEY} alice\nunnamed-{KEY}\n")
    return path


@pytest.mark.parametrize("stream", [False, True])
def test_a_line_of_json_for_a_request(log: io.StringIO, tmp_path: Path, stream: bool) -> None:
    logs.configure(as_json=True, stream=log)
    body = {**ASK, "seed": 7, "stream": stream, "prompt_cache_key": "my session"}
    with live(ScriptedEngine(), key_file=key_file(tmp_path)) as server:
        with server.client(headers={"x-api-key": KEY}) as client:
            answer = client.post(CHAT, json=body)
        (line,) = objects(log)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line.pop("id").startswith("chatcmpl-")
    assert line.pop("request_id") == answer.headers["x-request-id"]
    assert line.pop("queue_ms") >= 0
    assert line.pop("total_ms") > 0
    assert line == {
        "level": "info",
        "event": "request",
        "method": "POST",
        "route": CHAT,
        "status": 200,
        "tenant": "alice",
        "session": "my session",
        "stream": stream,
        "seed": 7,
        "prompt_tokens": 5,
        "cached_tokens": 2,
        "new_tokens": 2,
        "prompt_ms": 10.0,
        "predicted_ms": 20.0,
        "finish": "stop",
    }


def test_a_line_of_text_for_a_request(log: io.StringIO) -> None:
    logs.configure(as_json=False, stream=log)
    with live(ScriptedEngine()) as server, server.client() as client:
        client.post("/v1/messages", json={**ASK, "max_tokens": 1}, headers={"x-session-id": "a\tb c=d"})
        (line,) = lines(log)
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d POST /v1/messages 200 request_id=req_\w+ id=msg_\w+ ", line
    )
    assert r" session='a\tb c=d' stream=no seed=" in line
    assert line.endswith(" finish=length")
    assert " tenant=" not in line


def test_a_tag_can_not_forge_a_line() -> None:
    tag = "x' finish=stop\n2026-01-01 forged \x1b[2J\u2028é"
    record = Record(request_id="req_1", method="POST", route="/", id="a")
    record.asked(Request(id="a", prompt="x", session=tag + "y" * 1000))
    shown = str(record)
    assert shown.isascii()
    assert shown.isprintable()
    assert "\"x' finish=stop\\n" in shown
    assert "y" * 80 not in shown


def test_probes_and_scrapes_leave_no_line_and_refusals_do(log: io.StringIO, tmp_path: Path) -> None:
    logs.configure(as_json=True, stream=log)
    engine = ScriptedEngine()
    with live(engine, key_file=key_file(tmp_path)) as server, server.client() as client:
        key = {"x-api-key": KEY}
        for path in ("/", "/health", "/v1/models", "/v1/models/scripted", "/metrics"):
            assert client.get(path, headers=key).status_code == 200
        client.head("/")
        engine.become(EngineStatus(state="loading"))
        assert client.get("/health").status_code == 503
        engine.become(None)
        assert log.getvalue() == ""
        client.get("/v1/models", headers={"x-api-key": SECRET})
        client.get(f"/v1/{SECRET}", headers=key)
        client.get(f"/v1/models/{SECRET}", headers=key)
        client.post(CHAT, json={"messages": SECRET}, headers=key)
        client.get("/", headers={"host": f"{SECRET}.example"})
        found = objects(log, 5)
    assert [(line["route"], line["status"], line["error"]) for line in found] == [
        ("/v1/models", 401, "Refused"),
        ("-", 404, "Refused"),
        ("/v1/models/{model}", 404, "ModelNotFound"),
        (CHAT, 400, "InvalidRequest"),
        ("/", 403, "Refused"),
    ]
    assert [line.get("tenant") for line in found] == [None, "alice", "alice", "alice", None]


def test_a_client_that_leaves_is_an_abort(log: io.StringIO) -> None:
    logs.configure(as_json=True, stream=log)
    hold = Hold()
    with live(ScriptedEngine(["a", hold])) as server:
        with server.connect() as sock:
            server.post_raw(CHAT, {**ASK, "stream": True}, sock)
            assert hold.reached.wait(PATIENCE)
        (line,) = objects(log)
        hold.release()
    assert (line["finish"], line["status"], line["prompt_tokens"]) == ("abort", 200, 5)
    assert "error" not in line


def test_a_fault_in_the_middle_of_a_stream(log: io.StringIO) -> None:
    logs.configure(as_json=True, stream=log)
    with live(ScriptedEngine(["a", 0.05, WorkerFault("The device is gone.")])) as server:
        with server.client() as client:
            client.post(CHAT, json={**ASK, "stream": True})
        told, line = objects(log, 2)
    assert (told["level"], told["event"]) == ("warning", "message")
    assert told["message"].endswith("broke off: The device is gone.")
    assert (line["status"], line["error"]) == (200, "WorkerFault")
    assert "finish" not in line


def _failing(error: Exception) -> Any:
    def encode(request: Request) -> EncodedPrompt:
        raise error from KeyError(SECRET)

    return encode


BODIES: list[Any] = [
    ASK,
    {**ASK, "stream": True},
    {"messages": [{"role": SECRET, "content": SECRET}]},
    {"messages": [{"role": "user", "content": [{"type": SECRET}]}], SECRET: SECRET},
    {"messages": [], "model": SECRET},
    {**ASK, "model": SECRET, "stop": SECRET, "tools": [{"type": "function", "function": {"name": SECRET}}]},
    {**ASK, "tool_choice": {"type": SECRET}},
    {"prompt": SECRET, "max_tokens": 1},
    {"input": SECRET, "max_tokens": 1, "instructions": SECRET, "metadata": {SECRET: SECRET}},
    {**ASK, "max_tokens": 1, "system": SECRET, "metadata": {"user_id": SECRET}},
]
ERRORS = [
    None,
    InvalidRequest(f"The template refused {SECRET}."),
    PromptTooLong(9, 8),
    ValueError(SECRET),
    WorkerFault("gone"),
]


PATHS = (CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens")


def ask_everything(server: Live, client: httpx.Client, key: str, paths: Sequence[str] = PATHS) -> None:
    client.headers["authorization"] = f"Bearer {key}"
    for path in paths:
        for body in BODIES:
            client.post(path, json=body)
        client.post(path, content=SECRET.encode(), headers={"content-type": "application/json"})
        client.post(path, content=b"{}", headers={"content-type": SECRET})
        client.post(
            f"{path}?q={SECRET}", json=ASK, headers={"user-agent": SECRET, "referer": f"http://{SECRET}"}
        )
        client.post(f"{path}/{SECRET}", json=ASK)
        client.post(path, json=ASK, headers={"origin": f"https://{SECRET}"})
        client.post(path, json=ASK, headers={"authorization": f"Bearer wrong-{KEY}"})
    with server.connect() as sock:
        sock.sendall(f"{SECRET} {KEY}\r\n\r\n".encode())
        assert sock.recv(100)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_neither_prompts_nor_keys_are_logged(
    log: io.StringIO, tmp_path: Path, as_json: bool, error: Exception | None
) -> None:
    logs.configure(as_json=as_json, stream=log)
    engine = ScriptedEngine([SECRET, " ", SECRET], encode=_failing(error) if error else None)
    with (
        live(engine, key_file=key_file(tmp_path), api_keys=(f"env-{KEY}",)) as server,
        httpx.Client(base_url=server.url, trust_env=False, verify=False) as client,
    ):
        ask_everything(server, client, KEY)
        for key in (f"unnamed-{KEY}", f"env-{KEY}"):
            ask_everything(server, client, key, paths=PATHS[:1])
    text = log.getvalue()
    assert text.count("/v1/chat/completions") >= 3 * len(BODIES)
    assert all(text.count(path) >= len(BODIES) for path in PATHS)
    assert text.count("alice") >= len(BODIES)
    assert text.count("key:") >= 2 * len(BODIES)
    assert SECRET not in text
    assert KEY not in text
    if error is not None:
        assert type(error).__name__ in text
    if isinstance(error, ValueError):
        assert "in encode" in text
        assert "KeyError" in text


def test_an_unexpected_error_in_a_stream_is_told_by_its_kind(log: io.StringIO) -> None:
    logs.configure(as_json=True, stream=log)
    with live(ScriptedEngine(["a", 0.05, ValueError(SECRET)])) as server, server.client() as client:
        client.post(CHAT, json={**ASK, "stream": True})
        told, line = objects(log, 2)
    assert told["message"] == "a request failed unexpectedly"
    assert told["trace"].endswith("builtins.ValueError")
    assert line["error"] == "ValueError"
    assert SECRET not in log.getvalue()


def test_uvicorns_own_lines_are_in_the_same_form(log: io.StringIO) -> None:
    logs.configure(as_json=True, stream=log)
    logging.getLogger("uvicorn.error").warning("slow %s", "down")
    logging.getLogger("uvicorn.error").info("unasked")
    (line,) = objects(log)
    assert (line["level"], line["message"]) == ("warning", "slow down")
