"""Chat Completions against a live server with a scripted engine."""

from typing import Any

import httpx
import openai
import pytest

from mashbox.engine.events import Thinking, ToolCall
from mashbox.engine.request import Conversation
from tests.server.live import Live, events_of, live
from tests.server.scripted import Script, ScriptedEngine

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "hi"}]}


def ask(server: Live, **fields: Any) -> httpx.Response:
    with server.client() as client:
        return client.post(CHAT, json={**ASK, **fields})


def test_a_whole_answer_has_every_field_of_the_schema() -> None:
    with live(ScriptedEngine(["Hello", " world"])) as server:
        answer = ask(server)
    assert answer.status_code == 200
    body = answer.json()
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    assert body["model"] == "scripted"
    assert body["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Hello world"}, "finish_reason": "stop"}
    ]
    assert body["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    timings = body["timings"]
    assert timings.pop("queue_ms") >= 0
    assert timings == {
        "prompt_n": 3,
        "prompt_ms": 10.0,
        "prompt_per_second": 300.0,
        "predicted_n": 2,
        "predicted_ms": 20.0,
        "predicted_per_second": 50.0,
        "cache_n": 2,
    }


def test_a_stream_is_role_deltas_finish_usage_done() -> None:
    with live(ScriptedEngine(["Hel", "lo"])) as server:
        answer = ask(server, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events_of(answer.text)
    assert done == "[DONE]"
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    first, *deltas, finish, usage = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in deltas) == "Hello"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in [first, *deltas])
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert finish["timings"]["predicted_n"] == 2
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 7
    assert usage["timings"] == finish["timings"]


def test_usage_is_streamed_only_when_asked_for() -> None:
    with live(ScriptedEngine(["a"])) as server:
        for options in (None, {}, {"include_usage": None}, {"include_usage": False}):
            chunks = events_of(ask(server, stream=True, stream_options=options).text)
            assert not any("usage" in chunk for chunk in chunks[:-1])


def test_thinking_and_calls_in_both_modes() -> None:
    script: Script = [
        Thinking("let me "),
        Thinking("see"),
        "so",
        ToolCall("call_1", "f", '{"x":1}'),
        ToolCall("call_2", "g", "{}"),
    ]
    with live(ScriptedEngine(script)) as server:
        whole = ask(server).json()["choices"][0]
        chunks = events_of(ask(server, stream=True).text)[:-1]
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"] == {
        "role": "assistant",
        "content": "so",
        "reasoning_content": "let me see",
        "tool_calls": calls,
    }
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "let me see"
    streamed = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert streamed == [{"index": i, **call} for i, call in enumerate(calls)]


def test_content_is_null_when_only_tools_are_called() -> None:
    with live(ScriptedEngine([ToolCall("call_1", "f", "{}")])) as server:
        assert ask(server).json()["choices"][0]["message"]["content"] is None


def test_the_official_client_streamed_and_not() -> None:
    with (
        live(ScriptedEngine(["Hello", " world"])) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any") as client,
    ):
        whole = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "hi"}])
        stream = client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        with pytest.raises(openai.NotFoundError) as refused:
            client.chat.completions.create(model="other", messages=[{"role": "user", "content": "hi"}])
    assert whole.choices[0].message.content == text == "Hello world"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 2
    assert refused.value.code == "model_not_found"


def test_the_request_reaches_the_engine() -> None:
    engine = ScriptedEngine()
    with live(engine) as server, server.client() as client:
        client.post(
            CHAT,
            headers={"x-session-id": "s1"},
            json={
                **ASK,
                "model": None,
                "max_tokens": 9,
                "max_completion_tokens": 7,
                "temperature": 1,
                "top_k": 40,
                "top_p": 0.9,
                "min_p": 0.05,
                "repetition_penalty": 1.1,
                "presence_penalty": 0.5,
                "frequency_penalty": -0.5,
                "seed": -1,
                "stop_sequences": ["END"],
                "chat_template_kwargs": {"enable_thinking": True, "messages": [], "effort": "low"},
            },
        )
    request = engine.requests[0]
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.messages == [{"role": "user", "content": "hi"}]
    assert request.prompt.thinking is True
    assert request.prompt.options == {"effort": "low"}
    assert (request.max_tokens, request.stop, request.session) == (7, ("END",), "s1")
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 40, 0.9, 0.05)
    assert (sampling.repetition_penalty, sampling.presence_penalty) == (1.1, 0.5)
    assert (sampling.frequency_penalty, sampling.seed) == (-0.5, 2**64 - 1)


def test_pieces_tell_the_usage_so_far_when_asked() -> None:
    with live(ScriptedEngine([Thinking("hm"), "Hel", "lo"])) as server:
        options = {"continuous_usage_stats": True}
        *chunks, _ = events_of(ask(server, stream=True, stream_options=options).text)
        plain = events_of(ask(server, stream=True).text)
    told = [chunk["usage"] for chunk in chunks if "usage" in chunk]
    assert [usage["completion_tokens"] for usage in told] == [1, 2, 3]
    assert told[-1] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert not any("usage" in chunk for chunk in plain[:-1])


def test_the_last_message_goes_on_when_asked() -> None:
    engine = ScriptedEngine()
    begun = [*ASK["messages"], {"role": "assistant", "content": "It is"}]
    with live(engine) as server:
        assert ask(server, messages=begun, continue_final_message=True).status_code == 200
        assert ask(server, messages=begun).status_code == 200
    assert [isinstance(r.prompt, Conversation) and r.prompt.continued for r in engine.requests] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("last", "more"),
    [
        ({"role": "user", "content": "x"}, {}),
        ({"role": "assistant", "content": ""}, {}),
        (
            {
                "role": "assistant",
                "content": "x",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {},
        ),
        (
            {"role": "assistant", "content": "x"},
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
        ),
    ],
)
def test_what_can_not_go_on_is_refused(last: dict[str, Any], more: dict[str, Any]) -> None:
    with live(ScriptedEngine()) as server:
        answer = ask(server, messages=[*ASK["messages"], last], continue_final_message=True, **more)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "continue_final_message"
