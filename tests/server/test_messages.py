"""Answers of Messages against a live server with a scripted engine."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.engine import EngineStatus
from mashbox.engine.events import Event, Finished, Text, Thinking, ToolCall, Usage
from mashbox.engine.formats.families import HERMES
from mashbox.engine.parse import OutputParser
from mashbox.engine.request import Conversation, EncodedPrompt, Request
from mashbox.errors import InvalidRequest, LineFull, PromptTooLong, WorkerFault
from mashbox.server.protocols.messages_answer import MessageAnswer
from tests.hypotheses import examples
from tests.server.live import Live, eventually, live
from tests.server.messages_sse import events_of, folded
from tests.server.scripted import Hold, Script, ScriptedEngine, finished

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
GOLDEN = Path(__file__).parent.parent / "data" / "messages"
USER = {"role": "user", "content": "hi"}
ASK = {"model": "claude-x", "max_tokens": 64, "messages": [USER]}


def ask(server: Live, path: str = MESSAGES, **fields: Any) -> httpx.Response:
    with server.client() as client:
        return client.post(path, json={**ASK, **fields})


def test_a_whole_answer_has_every_field_of_the_schema() -> None:
    with live(ScriptedEngine(["Hello", " world"])) as server:
        answer = ask(server)
        served = ask(server, model=None).json()["model"]
    assert answer.status_code == 200
    body = answer.json()
    assert re.fullmatch("msg_[0-9a-f]{32}", body.pop("id"))
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "Hello world"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 2,
            "output_tokens": 2,
        },
    }
    assert served == "scripted"


AGENT: Script = [
    Thinking("let me "),
    Thinking("see"),
    "I look",
    " it up.",
    ToolCall("call_A", "read", '{"path":"a.txt"}'),
    ToolCall("call_B", "list", "{}"),
]

TRANSCRIPTS: dict[str, Script] = {
    "agent": AGENT,
    "empty": [],
    "thought-cut-off": [Thinking("hm"), finished(5, 1, reason="length")],
    "stop-sequence": [
        "A",
        msgspec.structs.replace(finished(5, 2), stop_sequence="END"),
    ],
    "call-then-text": [ToolCall("call_A", "f", '{"x": [1, "é"]}'), '\nDone "it".'],
    "breaks-off": [Thinking("a"), "b", WorkerFault("The worker died.")],
}


def masked(text: str) -> str:
    return re.sub("msg_[0-9a-f]{32}", "msg_ID", text)


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_stream_is_the_golden_transcript(name: str) -> None:
    with live(ScriptedEngine(TRANSCRIPTS[name])) as server:
        answer = ask(server, stream=True)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    assert masked(answer.text) == (GOLDEN / f"{name}.sse").read_text("utf-8")


@pytest.mark.parametrize("name", [name for name in TRANSCRIPTS if name != "breaks-off"])
def test_whole_equals_streamed(name: str) -> None:
    with live(ScriptedEngine(TRANSCRIPTS[name])) as server:
        whole, streamed = ask(server).json(), folded(ask(server, stream=True).text)
    assert whole.pop("id") != streamed.pop("id")
    assert whole == streamed


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
PIECES = st.one_of(
    st.builds(Text, st.text(min_size=1)),
    st.builds(Thinking, st.text(min_size=1)),
    st.builds(
        ToolCall,
        st.uuids().map(lambda u: f"call_{u.hex}"),
        st.text(min_size=1),
        st.dictionaries(st.text(), JSON).map(json.dumps),
    ),
)
ENDS = st.builds(
    Finished,
    reason=st.sampled_from(["stop", "length", "tool_calls"]),
    usage=st.integers(1, 9).flatmap(
        lambda n: st.builds(
            Usage,
            prompt_tokens=st.just(n),
            cached_tokens=st.integers(0, n),
            completion_tokens=st.integers(0, 9),
        )
    ),
    timings=st.just(finished(1, 1).timings),
    stop_sequence=st.none(),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(PIECES, max_size=8), ENDS)
def test_any_events_tell_the_same_message_streamed_and_whole(pieces: list[Event], end: Finished) -> None:
    events = [*pieces, end]
    answer = MessageAnswer("msg_1", "m")
    answer.encoded(end.usage.prompt_tokens)
    stream = answer.opening()
    for event in events:
        stream += answer.event(event) + answer.keep_alive
    whole = json.loads(MessageAnswer("msg_1", "m").whole(events))
    assert folded(stream.removesuffix(answer.keep_alive).decode()) == whole
    assert whole["content"]
    texts = [block.get("text", "") for block in whole["content"]]
    assert "".join(texts) == "".join(piece.text for piece in pieces if isinstance(piece, Text))
    usage = whole["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    assert read == end.usage.prompt_tokens


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_what_a_model_writes_becomes_blocks_in_order(size: int) -> None:
    written = '<think>a</think>b<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'
    parser = OutputParser(HERMES, tools=[{"type": "function", "function": {"name": "f"}}])
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    events: list[Event] = [event for piece in pieces for event in parser.push(piece)]
    events += [*parser.finish(), finished(5, len(pieces), reason="tool_calls")]
    answer = MessageAnswer("msg_1", "m")
    stream = (answer.opening() + b"".join(answer.event(event) for event in events)).decode()
    content = folded(stream)["content"]
    assert content == json.loads(answer.whole(events))["content"]
    call_id = content[-1].pop("id")
    assert re.fullmatch("toolu_[A-Za-z0-9]{24}", call_id)
    assert content == [
        {"type": "thinking", "thinking": "a", "signature": "mashbox-local"},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "name": "f", "input": {"x": 1}},
    ]
    starts = [event for event in events_of(stream) if event["type"] == "content_block_start"]
    assert [event["index"] for event in starts] == [0, 1, 2]


def test_ids_are_of_their_kind_and_distinct() -> None:
    with live(ScriptedEngine(AGENT)) as server:
        first, second = ask(server).json(), ask(server).json()
    ids = [block["id"] for block in first["content"] if block["type"] == "tool_use"]
    assert ids == ["toolu_A", "toolu_B"]
    assert first["id"].startswith("msg_")
    assert first["id"] != second["id"]
    assert [block["type"] for block in first["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert first["stop_reason"] == "tool_use"


def test_the_first_event_tells_the_prompts_tokens() -> None:
    engine = ScriptedEngine(["a"], encode=lambda _: EncodedPrompt(ids=list(range(70))))
    with live(engine) as server:
        start, *_, delta, _stop = events_of(ask(server, stream=True).text)
    assert start["message"]["usage"]["input_tokens"] == 70
    assert start["message"]["usage"]["output_tokens"] == 0
    assert (delta["usage"]["input_tokens"], delta["usage"]["cache_read_input_tokens"]) == (35, 35)


def test_silence_is_filled_with_pings() -> None:
    with live(ScriptedEngine([0.3, "a", 0.2, "b"]), keep_alive_s=0.05) as server:
        answer = ask(server, stream=True)
    kinds = [event["type"] for event in events_of(answer.text)]
    assert kinds[:2] == ["message_start", "ping"]
    assert "ping" in kinds[kinds.index("content_block_delta") : kinds.index("content_block_stop")]
    assert folded(answer.text)["content"] == [{"type": "text", "text": "ab"}]


def test_one_route_with_beta_and_with_a_slash() -> None:
    with live(ScriptedEngine()) as server:
        for path in (f"{MESSAGES}?beta=true", f"{MESSAGES}/", f"{MESSAGES}/?beta=true"):
            assert ask(server, path).json()["type"] == "message"
        for path in (f"{COUNT}?beta=true", f"{COUNT}/"):
            assert ask(server, path).json() == {"input_tokens": 5}
        assert ask(server, f"/{MESSAGES}").status_code == 404


# --- failures --------------------------------------------------------------------------------------


def fails(error: Exception) -> ScriptedEngine:
    def encode(_: Request) -> EncodedPrompt:
        raise error

    return ScriptedEngine(encode=encode)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("engine", "status", "kind", "words"),
    [
        (
            fails(PromptTooLong(5000, 4096)),
            400,
            "invalid_request_error",
            "prompt is too long: 5000 tokens > 4096 maximum",
        ),
        (
            fails(PromptTooLong(4096, 4096)),
            400,
            "invalid_request_error",
            "prompt is too long: 4096 tokens > 4095 maximum",
        ),
        (
            fails(InvalidRequest("The template refused.")),
            400,
            "invalid_request_error",
            "The template refused.",
        ),
        (fails(LineFull("Full.", 7)), 429, "overloaded_error", "Full. Try again in 7 s."),
        (fails(LineFull("Full.", 7, everyone=True)), 529, "overloaded_error", "Full. Try again in 7 s."),
        (fails(WorkerFault("It died.")), 500, "api_error", "It died."),
    ],
)
def test_a_failure_before_the_answer(
    engine: ScriptedEngine, status: int, kind: str, words: str, stream: bool
) -> None:
    with live(engine) as server:
        answer = ask(server, stream=stream)
    assert answer.status_code == status
    error = {"type": kind, "message": words}
    assert answer.json() == {"type": "error", "error": error, "request_id": answer.headers["request-id"]}
    assert answer.headers.get("retry-after") == ("7" if status in (429, 529) else None)


def test_a_fault_in_a_whole_answer() -> None:
    with live(ScriptedEngine(TRANSCRIPTS["breaks-off"])) as server:
        answer = ask(server)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "api_error")


def test_a_fault_in_a_stream_names_the_message() -> None:
    with live(ScriptedEngine(TRANSCRIPTS["breaks-off"])) as server:
        events = events_of(ask(server, stream=True).text)
    assert events[-1]["type"] == "error"
    assert events[-1]["error"] == {"type": "api_error", "message": "The worker died."}
    assert events[-1]["request_id"] == events[0]["message"]["id"]


def test_while_loading() -> None:
    with live(ScriptedEngine(status=EngineStatus(state="loading"))) as server:
        for path in (MESSAGES, COUNT):
            answer = ask(server, path)
            assert answer.status_code == 529
            assert answer.json()["error"]["type"] == "overloaded_error"
            assert answer.headers["x-should-retry"] == "true"
            assert 1 <= int(answer.headers["retry-after"]) <= 60


def test_a_broken_body_has_the_routes_own_shape() -> None:
    with live(ScriptedEngine()) as server, server.client() as client:
        headers = {"content-type": "application/json"}
        for path in (MESSAGES, COUNT):
            for raw in (b"{", b"[]", b"\xff", b'{"messages":' + b"[" * 5000):
                answer = client.post(path, content=raw, headers=headers)
                assert answer.status_code == 400
                assert answer.json()["error"]["type"] == "invalid_request_error"
            assert client.post(path, content=b"{}").status_code == 415
            assert client.get(path).json()["type"] == "error"


# --- counting --------------------------------------------------------------------------------------


def words_in(request: Request) -> EncodedPrompt:
    """As many tokens as the prompt has characters, one more when it thinks."""
    prompt = request.prompt
    assert isinstance(prompt, Conversation)
    length = len(msgspec.json.encode((prompt.messages, prompt.tools))) + prompt.thinking
    if length >= 4096:
        raise PromptTooLong(length, 4096)
    return EncodedPrompt(ids=[0] * length)


TOOL = {"name": "f", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"system": "A"},
        {"system": [{"type": "text", "text": "A"}], "tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": {"type": "none"}},
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        {"thinking": {"type": "enabled", "budget_tokens": 9}},
        {"tools": [{**TOOL, "defer_loading": True}]},
    ],
)
def test_a_count_equals_what_the_answer_uses(fields: dict[str, Any]) -> None:
    engine = ScriptedEngine(["a"], encode=words_in)
    with live(engine) as server:
        count = ask(server, COUNT, **fields)
        assert engine.requests == []
        usage = ask(server, **{**fields, "max_tokens": 1}).json()["usage"]
    assert count.status_code == 200
    read = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    assert count.json() == {"input_tokens": read}


def test_counting_sees_system_tools_and_thinking() -> None:
    with live(ScriptedEngine(encode=words_in)) as server:
        plain = ask(server, COUNT).json()["input_tokens"]
        for fields in ({"system": "A"}, {"tools": [TOOL]}, {"thinking": {"type": "adaptive"}}):
            assert ask(server, COUNT, **fields).json()["input_tokens"] > plain


def test_a_prompt_over_the_context_is_counted() -> None:
    with live(ScriptedEngine(encode=words_in)) as server:
        long = [{"role": "user", "content": "x" * 5000}]
        assert ask(server, COUNT, messages=long).json()["input_tokens"] > 5000
        assert ask(server, messages=long).status_code == 400


def test_an_answer_at_the_end_is_counted_though_not_continued() -> None:
    with live(ScriptedEngine(encode=words_in)) as server:
        messages = [USER, {"role": "assistant", "content": "The"}]
        assert ask(server, COUNT, messages=messages).status_code == 200
        assert ask(server, messages=messages).status_code == 400


def test_counting_does_not_wait_in_the_line() -> None:
    hold = Hold()
    with live(ScriptedEngine([hold]), waiting_in_all=0, waiting_per_tenant=0) as server:
        socks = [server.connect() for _ in range(server.service.engine.card.slots)]
        for sock in socks:
            server.post_raw(MESSAGES, ASK, sock)
        eventually(lambda: server.service.line.running == len(socks))
        assert ask(server).status_code in (429, 529)
        with server.client() as client:
            for _ in range(26):
                assert client.post(COUNT, json=ASK).json() == {"input_tokens": 5}
        hold.release()
        for sock in socks:
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
            sock.close()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": 3}, "thinking"),
    ],
)
def test_a_count_refuses_what_the_answer_refuses(fields: dict[str, Any], field: str) -> None:
    with live(ScriptedEngine()) as server:
        answer = ask(server, COUNT, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{field} ")
