"""Bodies: what is refused and how the field is named, what counts as absent, what the engine is given."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mashbox.engine.request import Conversation
from mashbox.engine.wire import Submit, pack
from tests.server.live import Live, live
from tests.server.scripted import ScriptedEngine

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Live, ScriptedEngine, httpx.Client]]:
    engine = ScriptedEngine(["ok"])
    with live(engine) as server, server.client() as client:
        yield server, engine, client


Running = tuple[Live, ScriptedEngine, httpx.Client]

SHARED: list[tuple[dict[str, Any], str]] = [
    ({"model": 3}, "model"),
    ({"stream": "yes"}, "stream"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 4.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.01}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"min_p": 1}, "min_p"),
    ({"min_p": -0.1}, "min_p"),
    ({"seed": 1.5}, "seed"),
    ({"stop": 3}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a", 3]}, "stop[1]"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"frequency_penalty": 2.1}, "frequency_penalty"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"n": 2}, "n"),
    ({"n": 0}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 0}, "logprobs"),
    ({"prompt_cache_key": 1}, "prompt_cache_key"),
]

OF_CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [None]}, "messages[0]"),
    ({"messages": [USER, {}]}, "messages[1].role"),
    ({"messages": [USER, {"role": "wizard"}]}, "messages[1].role"),
    ({"messages": [USER, {"role": None}]}, "messages[1].role"),
    ({"messages": [USER, USER, {"role": "user", "content": 3}]}, "messages[2].content"),
    ({"messages": [{"role": "user", "content": [PICTURE]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "system", "content": [PICTURE]}]}, "messages[0].content[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}]},
        "messages[0].content[1]",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [3]}]}, "messages[0].content[0]"),
    (
        {"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}]},
        "messages[1].tool_calls[0].function",
    ),
    (
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{"}}],
                }
            ]
        },
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"tool_choice": 3}, "tool_choice"),
    ({"tool_choice": {}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": None}}, "tool_choice"),
    ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"enable_thinking": 1}, "enable_thinking"),
    ({"top_logprobs": 0}, "top_logprobs"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ({"response_format": {}}, "response_format"),
]

OF_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": ["a", "b"]}, "prompt"),
    ({"prompt": [1, 2]}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({"logprobs": 5}, "logprobs"),
]

CASES = [(CHAT, *case) for case in [*SHARED, *OF_CHAT]]
CASES += [(COMPLETIONS, *case) for case in [*SHARED, *OF_COMPLETIONS]]


@pytest.mark.parametrize(("path", "fields", "param"), CASES, ids=lambda value: str(value)[:60])
def test_a_refusal_names_the_field(running: Running, path: str, fields: dict[str, Any], param: str) -> None:
    _, engine, client = running
    engine.requests.clear()
    base = {"messages": [USER]} if path == CHAT else {"prompt": "hi"}
    answer = client.post(path, json={**base, **fields})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"].startswith(param)
    assert engine.requests == []


@pytest.mark.parametrize(("path", "param"), [(CHAT, "messages"), (COMPLETIONS, "prompt")])
def test_a_missing_field_is_named(running: Running, path: str, param: str) -> None:
    answer = running[2].post(path, json={})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_null_counts_as_absent_in_every_optional_field(running: Running) -> None:
    _, engine, client = running
    shared = {name for fields, _ in SHARED for name in fields}
    chat = shared | {name for fields, _ in OF_CHAT for name in fields} - {"messages"}
    message = {
        "role": "user",
        "content": "hi",
        "name": None,
        "tool_calls": None,
        "tool_call_id": None,
        "reasoning_content": None,
    }
    engine.requests.clear()
    cases: list[tuple[str, dict[str, Any], set[str]]] = [
        (CHAT, {"messages": [message]}, chat | {"store", "merge"}),
        (COMPLETIONS, {"prompt": "hi"}, shared | {"merge"}),
    ]
    for path, body, optional in cases:
        assert client.post(path, json={**body, **dict.fromkeys(optional)}).status_code == 200
        assert client.post(path, json=body).status_code == 200
        nulls, absent = engine.requests[-2:]
        assert nulls.prompt == absent.prompt
        assert (nulls.max_tokens, nulls.stop, nulls.session) == (
            absent.max_tokens,
            absent.stop,
            absent.session,
        )
        sampling = nulls.sampling
        assert (sampling.temperature, sampling.top_p, sampling.repetition_penalty) == (0.0, 1.0, 1.0)


def test_what_is_unset_or_unknown_is_accepted(running: Running) -> None:
    client = running[2]
    accepted: list[dict[str, Any]] = [
        {"logprobs": False},
        {"n": 1},
        {"response_format": {"type": "text"}},
        {"unknown": {"deep": [1, 2]}},
        {"stop": []},
        {"store": True, "merge": False, "user": "u", "reasoning_effort": "low"},
        {"tool_choice": "auto", "tools": []},
        {"max_tokens": 10_000_000},
        {"model": "scripted"},
    ]
    for fields in accepted:
        assert client.post(CHAT, json={"messages": [USER], **fields}).status_code == 200, fields
    plain: list[dict[str, Any]] = [{"logprobs": False}, {"prompt": ["hi"]}, {"suffix": "x"}]
    for fields in plain:
        assert client.post(COMPLETIONS, json={"prompt": "hi", **fields}).status_code == 200, fields


def test_both_names_of_a_limit_and_of_stops(running: Running) -> None:
    _, engine, client = running
    cases: list[tuple[dict[str, Any], int | None, tuple[str, ...]]] = [
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6, ()),
        ({"max_tokens": 5}, 5, ()),
        ({"stop_sequences": ["a", "b"]}, None, ("a", "b")),
        ({"stop": "c", "stop_sequences": ["a"]}, None, ("c",)),
        ({"stop": [], "stop_sequences": ["a"]}, None, ()),
    ]
    for path, body in ((CHAT, {"messages": [USER]}), (COMPLETIONS, {"prompt": "hi"})):
        for fields, limit, stops in cases:
            assert client.post(path, json={**body, **fields}).status_code == 200
            assert (engine.requests[-1].max_tokens, engine.requests[-1].stop) == (limit, stops)


def test_another_model_is_not_found(running: Running) -> None:
    for path, body in ((CHAT, {"messages": [USER]}), (COMPLETIONS, {"prompt": "hi"})):
        answer = running[2].post(path, json={**body, "model": "gpt-5"})
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")


def conversation(running: Running, messages: list[Any], **fields: Any) -> Conversation:
    _, engine, client = running
    answer = client.post(CHAT, json={"messages": messages, **fields})
    assert answer.status_code == 200, answer.text
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, Conversation)
    return prompt


def test_system_and_developer_messages_join_in_order(running: Running) -> None:
    shown = conversation(
        running,
        [
            {"role": "developer", "content": "A"},
            USER,
            {"role": "system", "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "C"}]},
        ],
    )
    assert shown.messages == [{"role": "system", "content": "A\n\nB\nC"}, USER]


def test_an_agents_history(running: Running) -> None:
    calls = [
        CALL,
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {"x": [1]}}},
        {"id": "c3", "type": "function", "function": {"name": "h", "arguments": ""}},
    ]
    shown = conversation(
        running,
        [
            USER,
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "42"}]},
            {"role": "tool", "tool_call_id": "c1", "content": None},
            {"role": "tool", "tool_call_id": "c3", "content": [PICTURE, {"type": "text", "text": "see"}]},
            {"role": "function", "name": "old", "content": "7"},
        ],
    )
    assistant = shown.messages[1]
    assert (assistant["content"], assistant["reasoning_content"]) == ("", "hm")
    assert [call["function"] for call in assistant["tool_calls"]] == [
        {"name": "f", "arguments": {}},
        {"name": "g", "arguments": {"x": [1]}},
        {"name": "h", "arguments": {}},
    ]
    results = shown.messages[2:]
    assert [result["role"] for result in results] == ["tool"] * 4
    assert [result.get("name") for result in results] == ["g", "f", "h", "old"]
    assert [result["content"] for result in results[:2]] == ["42", ""]
    assert results[2]["content"].endswith("\nsee")
    assert "left out" in results[2]["content"]
    assert "base64" not in results[2]["content"]


def test_tools_reach_the_template_in_one_shape(running: Running) -> None:
    tools = [
        {"type": "function", "function": {"name": "f", "description": "does", "strict": True}},
        {"function": {"name": "g", "parameters": {"type": "object", "properties": {"a": {}}}}},
    ]
    shown = conversation(running, [USER], tools=tools)
    assert shown.tools == [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "does",
                "parameters": {"type": "object", "properties": {}},
            },
        },
        {
            "type": "function",
            "function": {"name": "g", "parameters": {"type": "object", "properties": {"a": {}}}},
        },
    ]
    assert conversation(running, [USER], tools=tools, tool_choice="none").tools == []


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, False),
        ({"enable_thinking": True}, True),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}, "enable_thinking": True}, False),
        ({"chat_template_kwargs": {"enable_thinking": None}, "enable_thinking": True}, True),
        ({"reasoning_effort": "high"}, False),
    ],
)
def test_thinking(running: Running, fields: dict[str, Any], thinking: bool) -> None:
    assert conversation(running, [USER], **fields).thinking is thinking


def test_template_options_never_replace_messages_or_tools(running: Running) -> None:
    options = {"messages": [], "tools": [TOOL], "add_generation_prompt": False, "style": "x"}
    shown = conversation(running, [USER], chat_template_kwargs=options)
    assert shown.messages == [USER]
    assert shown.tools == []
    assert shown.options == {"style": "x"}


def test_seeds(running: Running) -> None:
    _, engine, client = running
    shown = []
    for seed in (7, -1, 2**64 + 5, None, None):
        answer = client.post(COMPLETIONS, json={"prompt": "hi", "seed": seed}).json()
        shown.append((answer["system_fingerprint"], engine.requests[-1].sampling.seed))
    assert shown[:3] == [("seed-7", 7), ("seed--1", 2**64 - 1), (f"seed-{2**64 + 5}", 5)]
    assert shown[3][0] == f"seed-{shown[3][1]}"
    assert shown[3] != shown[4]


@pytest.mark.parametrize("top_k", [2**31, 2**64, 10**30])
def test_a_top_k_beyond_any_vocabulary_can_be_sent_to_the_worker(running: Running, top_k: int) -> None:
    _, engine, client = running
    answer = client.post(CHAT, json={"messages": [USER], "top_k": top_k})
    assert answer.status_code == 200
    submit = Submit(id=1, ids=[1], max_tokens=1, end_ids=[], sampling=engine.requests[-1].sampling)
    assert pack(submit)


def test_half_a_character_is_named(running: Running) -> None:
    """A client that cuts a text within an emoji sends this: as JSON's grammar goes, it is not cut short."""
    body = r'{"messages": [{"role": "user", "content": "cut \ud83d"}]}'
    answer = running[2].post(CHAT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "half a character" in answer.json()["error"]["message"]
    cut = running[2].post(CHAT, content=body[:-1], headers={"content-type": "application/json"})
    assert "truncated" in cut.json()["error"]["message"]


def test_only_a_stream_leaves_in_parts(running: Running) -> None:
    _, engine, client = running
    for stream in (True, False, None):
        client.post(CHAT, json={"messages": [USER], "stream": stream})
        assert engine.requests[-1].held is not bool(stream)


def test_a_session_is_named_by_key_or_header(running: Running) -> None:
    _, engine, client = running
    for headers, key, session in (
        ({}, None, None),
        ({"x-session-id": "h"}, None, "h"),
        ({"x-session-id": "h"}, "k", "k"),
    ):
        client.post(CHAT, json={"messages": [USER], "prompt_cache_key": key}, headers=headers)
        assert engine.requests[-1].session == session


def test_a_completion_has_every_field_of_the_schema(running: Running) -> None:
    answer = running[2].post(COMPLETIONS, json={"prompt": "hi", "seed": 1}).json()
    assert answer.pop("id").startswith("cmpl-")
    assert answer.pop("created") > 0
    assert answer == {
        "object": "text_completion",
        "model": "scripted",
        "choices": [{"index": 0, "text": "ok", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
        "system_fingerprint": "seed-1",
    }
