"""One answer in every API's words, streamed and not: the same text, thought, calls, end and counts."""

import json
from typing import Any, NamedTuple

import httpx
import pytest

from mashbox.engine.events import Thinking, ToolCall
from tests.server.live import events_of, live
from tests.server.messages_sse import folded
from tests.server.scripted import Script, ScriptedEngine

PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer"}}}
SCRIPTS: dict[str, tuple[Script, int | None]] = {
    "text": (["Hel", "lo", " world"], None),
    "thought and text": ([Thinking("hm"), Thinking("…"), "So", " it is"], None),
    "text and two calls": (
        ["I look", ToolCall("call_1", "f", '{"x":1}'), ToolCall("call_2", "f", '{"x": 2}')],
        None,
    ),
    "thought and call": ([Thinking("a"), ToolCall("call_1", "f", "{}")], None),
    "cut by the limit": (["one", " two", " three"], 2),
}


class Answer(NamedTuple):
    """What a client understands of an answer."""

    text: str
    thought: str
    calls: list[tuple[str, Any]]
    end: str
    prompt_tokens: int
    cached_tokens: int
    new_tokens: int


def of_chat(document: dict[str, Any]) -> Answer:
    message, usage = document["choices"][0]["message"], document["usage"]
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return Answer(
        message["content"] or "",
        message.get("reasoning_content", ""),
        [(call["name"], json.loads(call["arguments"])) for call in calls],
        document["choices"][0]["finish_reason"],
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["completion_tokens"],
    )


def of_chat_stream(stream: str) -> Answer:
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    end, usage = "", {}
    for chunk in events_of(stream)[:-1]:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content", "")
            message["reasoning_content"] += delta.get("reasoning_content", "")
            message["tool_calls"] += delta.get("tool_calls", [])
            end = choice["finish_reason"] or end
    return of_chat({"choices": [{"message": message, "finish_reason": end}], "usage": usage})


def of_message(document: dict[str, Any]) -> Answer:
    blocks, usage = document["content"], document["usage"]
    ends = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}
    return Answer(
        "".join(block["text"] for block in blocks if block["type"] == "text"),
        "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        ends[document["stop_reason"]],
        usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"],
        usage["cache_read_input_tokens"],
        usage["output_tokens"],
    )


def of_response(document: dict[str, Any]) -> Answer:
    items, usage = document["output"], document["usage"]
    calls = [item for item in items if item["type"] == "function_call"]
    ended = "length" if document["status"] == "incomplete" else "tool_calls" if calls else "stop"
    return Answer(
        "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"]),
        "".join(
            part["text"]
            for item in items
            if item["type"] == "reasoning"
            for part in (item.get("content") or item["summary"])
        ),
        [(call["name"], json.loads(call["arguments"])) for call in calls],
        ended,
        usage["input_tokens"],
        usage["input_tokens_details"]["cached_tokens"],
        usage["output_tokens"],
    )


def of_response_stream(stream: str) -> Answer:
    data = stream.rstrip().rpartition("data: ")[2]
    return of_response(json.loads(data)["response"])


USER = {"role": "user", "content": "hi"}
CHAT = {
    "messages": [USER],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}],
}
MESSAGES = {"messages": [USER], "tools": [{"name": "f", "input_schema": PARAMETERS}]}
RESPONSES = {"input": [USER], "tools": [{"type": "function", "name": "f", "parameters": PARAMETERS}]}
APIS: list[tuple[str, dict[str, Any], Any, Any]] = [
    (
        "/v1/chat/completions",
        {**CHAT, "enable_thinking": True, "stream_options": {"include_usage": True}},
        of_chat,
        of_chat_stream,
    ),
    (
        "/v1/messages",
        {**MESSAGES, "thinking": {"type": "adaptive"}},
        of_message,
        lambda s: of_message(folded(s)),
    ),
    ("/v1/responses", {**RESPONSES, "reasoning": {"effort": "high"}}, of_response, of_response_stream),
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_api_tells_the_same_answer(name: str) -> None:
    script, limit = SCRIPTS[name]
    engine = ScriptedEngine(script)
    answers: dict[str, Answer] = {}
    with live(engine) as server, server.client() as client:
        for path, body, whole, streamed in APIS:
            body = {**body, "seed": 7, "max_tokens": limit}
            answers[path] = whole(ok(client.post(path, json=body)).json())
            answers[f"{path} streamed"] = streamed(ok(client.post(path, json={**body, "stream": True})).text)
    first = answers["/v1/chat/completions"]
    assert first.text + first.thought and first.prompt_tokens == 5
    assert first.end == ("length" if limit else "tool_calls" if first.calls else "stop")
    for path, answer in answers.items():
        assert answer == first, path
    # The engine was asked for the same thing six times.
    assert all(r.prompt == engine.requests[0].prompt for r in engine.requests) and len(engine.requests) == 6
    assert {(r.sampling.seed, r.max_tokens) for r in engine.requests} == {(7, limit)}


def ok(response: httpx.Response) -> httpx.Response:
    assert response.status_code == 200, response.text
    return response
