"""Bodies of Messages: what is refused and how the field is named, and what the model is shown."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.request import Conversation, ForcedCall, Request
from mashbox.errors import InvalidRequest
from mashbox.server.protocols.messages_body import MessagesRequest, conversation_of
from tests.server.live import live
from tests.server.scripted import ScriptedEngine

MESSAGES = "/v1/messages"
USER = {"role": "user", "content": "hi"}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
TOOL = {"name": "f", "description": "does", "input_schema": {"type": "object", "properties": {"x": {}}}}
SHOWN = {
    "type": "function",
    "function": {"name": "f", "description": "does", "parameters": TOOL["input_schema"]},
}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}}

Running = tuple[ScriptedEngine, httpx.Client]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    engine = ScriptedEngine(["ok"])
    with live(engine) as server, server.client() as client:
        yield engine, client


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def request_of(running: Running, messages: list[Any], **fields: Any) -> Request:
    engine, client = running
    answer = client.post(MESSAGES, json={"max_tokens": 8, "messages": messages, **fields})
    assert answer.status_code == 200, answer.text
    return engine.requests[-1]


def shown(running: Running, messages: list[Any], **fields: Any) -> Conversation:
    prompt = request_of(running, messages, **fields).prompt
    assert isinstance(prompt, Conversation)
    return prompt


def turns(running: Running, messages: list[Any], **fields: Any) -> list[dict[str, Any]]:
    return shown(running, messages, **fields).messages


def of_user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def of_assistant(*blocks: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "content": list(blocks)}, USER]}


def result(content: Any = None, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "toolu_1", **more}
    return block if content is None else {**block, "content": content}


AT_USER, AT_ASSISTANT = "messages[0].content[0]", "messages[1].content[0]"

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [None]}, "messages[0]"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [USER, {"role": "user", "content": 3}]}, "messages[1].content"),
    ({"messages": [USER, {"role": "assistant", "content": "The"}]}, "messages[1].role"),
    (of_user(3), AT_USER),
    (of_user({"text": "a"}), f"{AT_USER}.type"),
    (of_user({"type": 3}), f"{AT_USER}.type"),
    (of_user({"type": "text"}), f"{AT_USER}.text"),
    (of_user({"type": "text", "text": 3}), f"{AT_USER}.text"),
    (of_user(PICTURE), AT_USER),
    (of_user(text("a"), DOCUMENT), "messages[0].content[1]"),
    (of_user({"type": "audio"}), AT_USER),
    (of_user({"type": "search_result", "content": []}), f"{AT_USER}.type"),
    (of_user({"type": "thinking", "thinking": "a"}), f"{AT_USER}.type"),
    (of_user(CALL), f"{AT_USER}.type"),
    (of_user({"type": "tool_result", "content": "a"}), f"{AT_USER}.tool_use_id"),
    (of_user(result(3)), f"{AT_USER}.content"),
    (of_user(result([3])), f"{AT_USER}.content[0]"),
    (of_user(result([{"type": "text"}])), f"{AT_USER}.content[0].text"),
    (of_user(result([{"type": "tool_reference"}])), f"{AT_USER}.content[0].tool_name"),
    (of_assistant(PICTURE), AT_ASSISTANT),
    (of_assistant({"type": "server_tool_use", "id": "s", "name": "n", "input": {}}), f"{AT_ASSISTANT}.type"),
    (of_assistant({"type": "thinking"}), f"{AT_ASSISTANT}.thinking"),
    (of_assistant(result("a")), f"{AT_ASSISTANT}.type"),
    (of_assistant({**CALL, "id": None}), f"{AT_ASSISTANT}.id"),
    (of_assistant({**CALL, "name": 3}), f"{AT_ASSISTANT}.name"),
    (of_assistant({**CALL, "input": None}), f"{AT_ASSISTANT}.input"),
    (of_assistant({**CALL, "input": [1]}), f"{AT_ASSISTANT}.input"),
    (of_assistant({**CALL, "input": "{"}), f"{AT_ASSISTANT}.input"),
    ({"messages": [USER, {"role": "system", "content": [PICTURE]}]}, AT_ASSISTANT),
    ({"system": 3}, "system"),
    ({"system": [PICTURE]}, "system[0]"),
    ({"system": [text("a"), {"type": "text"}]}, "system[1].text"),
    ({"tools": [{}]}, "tools[0].name"),
    ({"tools": [{"name": ""}]}, "tools[0].name"),
    ({"tools": [TOOL, {"name": "g", "input_schema": []}]}, "tools[1].input_schema"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]}, "tools[1].type"),
    ({"tools": [{"type": "text_editor_20250728", "name": "edit"}]}, "tools[0].type"),
    ({"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "tools[0].type"),
    ({"mcp_servers": [{"type": "url", "url": "https://example.com", "name": "n"}]}, "mcp_servers"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": {}}, "tool_choice.type"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [{**TOOL, "defer_loading": True}], "tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
    ({"thinking": True}, "thinking"),
    ({"thinking": {"type": "on"}}, "thinking.type"),
    ({"thinking": {"type": "enabled", "budget_tokens": "9"}}, "thinking.budget_tokens"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
    ({"output_format": {"type": "json_schema", "schema": {}}}, "output_format"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 0}, "logprobs"),
    ({"n": 2}, "n"),
    ({"model": 3}, "model"),
    ({"stream": "yes"}, "stream"),
    ({"metadata": 3}, "metadata"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "9"}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"temperature": 4.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"min_p": 1}, "min_p"),
    ({"seed": 1.5}, "seed"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"stop_sequences": "a"}, "stop_sequences"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"frequency_penalty": 2.1}, "frequency_penalty"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"prompt_cache_key": 1}, "prompt_cache_key"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED, ids=lambda value: json.dumps(value)[:60])
def test_a_refusal_names_the_field(running: Running, fields: dict[str, Any], field: str) -> None:
    engine, client = running
    engine.requests.clear()
    answer = client.post(MESSAGES, json={"messages": [USER], "max_tokens": 8, **fields})
    assert answer.status_code == 400
    body = answer.json()
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    assert body["error"]["type"] == "invalid_request_error"
    assert body["error"]["message"].startswith(f"{field} ")
    assert body["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    assert engine.requests == []


def test_null_counts_as_absent_in_every_optional_field(running: Running) -> None:
    optional = {name for fields, _ in REFUSED for name in fields} - {"messages"}
    nulls = request_of(running, [USER], **dict.fromkeys(optional))
    absent = running[1].post(MESSAGES, json={"messages": [USER]})
    assert absent.status_code == 200
    plain = running[0].requests[-1]
    assert (nulls.prompt, nulls.max_tokens, nulls.stop) == (plain.prompt, None, ())
    inner = shown(
        running,
        [{"role": "user", "content": [{**text("hi"), "cache_control": None, "citations": None}]}],
        tools=[{**TOOL, "type": None, "defer_loading": None, "cache_control": None}],
        tool_choice={"type": "auto", "name": None, "disable_parallel_tool_use": None},
        thinking={"type": None, "budget_tokens": None},
        output_config={"effort": None, "format": None},
    )
    assert inner == Conversation(messages=[USER], tools=[SHOWN])


def test_what_claude_code_sends_besides_is_accepted(running: Running) -> None:
    request = request_of(
        running,
        [{"role": "user", "content": [{**text("hi"), "cache_control": {"type": "ephemeral"}}]}],
        model="claude-whatever",
        max_tokens=32000,
        thinking={"type": "adaptive", "display": "summarized"},
        output_config={"effort": "high"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        safeguards={"any": "thing"},
        metadata={"user_id": "u"},
        service_tier="auto",
    )
    assert request.prompt == Conversation(messages=[USER], thinking=True)
    assert request.max_tokens == 32000


def test_the_request_reaches_the_engine(running: Running) -> None:
    request = request_of(
        running,
        [USER],
        max_completion_tokens=7,
        temperature=1,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        seed=-1,
        stop_sequences=["END"],
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        prompt_cache_key="k",
    )
    assert (request.max_tokens, request.stop, request.session) == (7, ("END",), "k")
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 40, 0.9, 0.05)
    assert (sampling.repetition_penalty, sampling.presence_penalty) == (1.1, 0.5)
    assert (sampling.frequency_penalty, sampling.seed) == (-0.5, 2**64 - 1)
    assert request_of(running, [USER], stop="a", stop_sequences=["b"]).stop == ("a",)


# --- system ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "system", ["A\nB", [text("A"), text("B")], [text("A"), {**text("B"), "cache_control": {}}, text("")]]
)
def test_a_system_prompt_is_a_string_or_blocks(running: Running, system: Any) -> None:
    assert turns(running, [USER], system=system) == [{"role": "system", "content": "A\nB"}, USER]


@pytest.mark.parametrize("system", ["", [], [text("")], None])
def test_an_empty_system_prompt_is_none(running: Running, system: Any) -> None:
    assert turns(running, [USER], system=system) == [USER]


def test_a_later_system_message_stays_in_its_place(running: Running) -> None:
    given = [USER, {"role": "system", "content": "B"}]
    assert turns(running, given, system="A") == [{"role": "system", "content": "A"}, *given]


def test_the_leading_run_of_system_messages_joins_the_system_prompt(running: Running) -> None:
    leading = [{"role": "system", "content": "B"}, {"role": "developer", "content": [text("C")]}]
    later = [{"role": "developer", "content": "D"}, {"role": "system", "content": "E"}]
    assert turns(running, [*leading, USER, *later], system=[text("A")]) == [
        {"role": "system", "content": "A\n\nB\n\nC"},
        USER,
        {"role": "system", "content": "D\n\nE"},
    ]


def test_a_system_message_is_the_same_as_a_string_and_as_blocks(running: Running) -> None:
    def of(content: Any) -> list[dict[str, Any]]:
        assistant = {"role": "assistant", "content": [CALL]}
        results = {"role": "user", "content": [result("1")]}
        return turns(running, [USER, assistant, results, {"role": "system", "content": content}])

    assert of("some\ntext") == of([text("some\ntext")])
    assert of("some\ntext")[-1] == {"role": "system", "content": "some\ntext"}


def test_the_clients_billing_header_is_no_prompt_text(running: Running) -> None:
    nonces = ("36ee5", "0aaa9")
    headers = [text(f"x-anthropic-billing-header: cc_version=2.1; cch={nonce};") for nonce in nonces]
    first, second = (turns(running, [USER], system=[header, text("A")]) for header in headers)
    assert first == second == [{"role": "system", "content": "A"}, USER]
    joined = f"{headers[0]['text']}\n\nA x-anthropic-billing-header: b"
    assert turns(running, [USER], system=joined)[0]["content"] == "A x-anthropic-billing-header: b"


# --- history ---------------------------------------------------------------------------------------


def test_an_agents_history(running: Running) -> None:
    history = [
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "mashbox-local"},
                {"type": "redacted_thinking", "data": "AAAA"},
                text("I look."),
                CALL,
                {**CALL, "id": "toolu_2", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                result([text("42")]),
                {**result("a\nb"), "tool_use_id": "toolu_2"},
                text("go on"),
            ],
        },
    ]
    assert turns(running, history) == [
        USER,
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
                {"id": "toolu_2", "type": "function", "function": {"name": "g", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "42", "tool_call_id": "toolu_1", "name": "f"},
        {"role": "tool", "content": "a\nb", "tool_call_id": "toolu_2", "name": "g"},
        {"role": "user", "content": "go on"},
    ]


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (result(), ""),
        (result(""), ""),
        (result([]), ""),
        (result("42"), "42"),
        (result([text("42")]), "42"),
        (result([text("4"), text("2")]), "4\n2"),
        (result("gone", is_error=True), "Error: gone"),
        (result(is_error=True), "Error"),
        (result("fine", is_error=False), "fine"),
        (result([PICTURE]), "[image left out: this model reads text only]"),
        (result([text("see"), DOCUMENT]), "see\n[document left out: this model reads text only]"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_tool_results(running: Running, block: dict[str, Any], content: str) -> None:
    history = [USER, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [block]}]
    expected = {"role": "tool", "content": content, "tool_call_id": "toolu_1", "name": "f"}
    assert turns(running, history)[2:] == [expected]


def test_blocks_of_a_user_message_keep_their_order(running: Running) -> None:
    message = {"role": "user", "content": [text("a"), text("b"), result("1"), text(""), text("c")]}
    assert turns(running, [message]) == [
        {"role": "user", "content": "a\nb"},
        {"role": "tool", "content": "1", "tool_call_id": "toolu_1"},
        {"role": "user", "content": "c"},
    ]


def test_messages_of_one_role_in_a_row_are_one_turn(running: Running) -> None:
    answer = [{"role": "assistant", "content": "x"}, {"role": "assistant", "content": [CALL]}]
    results = [{"role": "user", "content": [result("1")]}, {"role": "user", "content": [result("2")]}]
    given = turns(running, [USER, {"role": "user", "content": "ho"}, *answer, *results])
    assert [(turn["role"], turn["content"]) for turn in given] == [
        ("user", "hi\nho"),
        ("assistant", "x"),
        ("tool", "1"),
        ("tool", "2"),
    ]
    assert len(given[1]["tool_calls"]) == 1


def test_arguments_may_be_json_text(running: Running) -> None:
    answer = {"role": "assistant", "content": [{**CALL, "input": '{"x": [1]}'}]}
    call = turns(running, [USER, answer, USER])[1]["tool_calls"][0]
    assert call["function"]["arguments"] == {"x": [1]}


def test_many_small_blocks_take_no_square_of_their_number(running: Running) -> None:
    message = {"role": "user", "content": [text("abcdefgh")] * 60_000}
    assert len(turns(running, [message])[0]["content"]) == 60_000 * 9 - 1


# --- tools -----------------------------------------------------------------------------------------


def test_tools_reach_the_template_in_one_shape(running: Running) -> None:
    tools = [TOOL, {**TOOL, "type": "custom", "name": "g", "strict": True}, {"name": "h"}]
    assert shown(running, [USER], tools=tools).tools == [
        SHOWN,
        {"type": "function", "function": {**SHOWN["function"], "name": "g"}},
        {
            "type": "function",
            "function": {"name": "h", "parameters": {"type": "object", "properties": {}}},
        },
    ]


@pytest.mark.parametrize(
    ("choice", "names", "forced"),
    [
        (None, ["f", "g"], None),
        ({"type": "auto", "disable_parallel_tool_use": True}, ["f", "g"], None),
        ({"type": "none"}, [], None),
        ({"type": "any", "disable_parallel_tool_use": True}, ["f", "g"], ForcedCall()),
        ({"type": "tool", "name": "g"}, ["f", "g"], ForcedCall(name="g")),
    ],
)
def test_tool_choice(running: Running, choice: Any, names: list[str], forced: ForcedCall | None) -> None:
    request = request_of(running, [USER], tools=[TOOL, {**TOOL, "name": "g"}], tool_choice=choice)
    assert isinstance(request.prompt, Conversation)
    assert [tool["function"]["name"] for tool in request.prompt.tools] == names
    assert request.forced == forced


def names_of(conversation: Conversation) -> list[str]:
    return [tool["function"]["name"] for tool in conversation.tools]


def test_a_deferred_tool_is_hidden_until_a_result_names_it(running: Running) -> None:
    tools = [{**TOOL, "name": name, "defer_loading": name != "f"} for name in ("b", "c", "f", "d")]

    def reference(name: str) -> dict[str, Any]:
        return {"type": "tool_reference", "tool_name": name}

    def after(*parts: Any) -> Conversation:
        history = [USER, {"role": "assistant", "content": [CALL]}]
        return shown(running, [*history, {"role": "user", "content": [result(list(parts))]}], tools=tools)

    assert names_of(shown(running, [USER], tools=tools)) == ["f"]
    assert names_of(after(text("nothing"))) == ["f"]
    found = after(reference("d"), reference("b"), reference("d"), reference("unknown"))
    assert names_of(found) == ["f", "d", "b"]
    assert "d" in found.messages[-1]["content"]
    chosen = shown(running, [USER], tools=tools, tool_choice={"type": "tool", "name": "c"})
    assert names_of(chosen) == ["f", "c"]


@pytest.mark.parametrize(
    ("thinking", "on"),
    [
        (None, False),
        ({}, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 10**9}, True),
        ({"type": "enabled"}, True),
        ({"type": "adaptive", "display": "omitted"}, True),
    ],
)
def test_thinking(running: Running, thinking: Any, on: bool) -> None:
    assert shown(running, [USER], thinking=thinking).thinking is on


# --- properties ------------------------------------------------------------------------------------

ROLES = st.sampled_from(["user", "assistant", "system", "developer"])


def decoded(body: dict[str, Any]) -> Conversation:
    return conversation_of(msgspec.convert(body, MessagesRequest))[0]


@given(st.lists(ROLES, min_size=1, max_size=9), st.text(max_size=3))
def test_texts_keep_their_order_and_do_not_depend_on_how_they_are_sent(roles: list[str], system: str) -> None:
    texts = [f"[{i}]" for i in range(len(roles))]
    strings = [{"role": role, "content": said} for role, said in zip(roles, texts, strict=True)]
    blocks = [{**message, "content": [text(message["content"])]} for message in strings]
    shown = decoded({"system": system, "messages": strings})
    assert decoded({"system": [text(system)], "messages": blocks}) == shown
    turns = shown.messages
    assert "".join(turn["content"].replace("\n", "") for turn in turns) == (
        "".join([system, *texts]).replace("\n", "")
    )
    kept = [
        role for role, _ in itertools.groupby(roles, lambda role: {"developer": "system"}.get(role, role))
    ]
    if system and kept[0] != "system":
        kept.insert(0, "system")
    assert [turn["role"] for turn in turns] == kept


KINDS = ["text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference", "x"]
FIELDS = ["text", "thinking", "id", "name", "input", "tool_use_id", "content", "is_error", "tool_name"]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "{}", "{", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", *FIELDS]), st.sampled_from(KINDS) | inner, max_size=4)
    ),
    max_leaves=8,
)
BLOCK = st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=5).flatmap(
    lambda fields: st.sampled_from(KINDS).map(lambda kind: {**fields, "type": kind})
)


@given(ROLES, st.lists(BLOCK | ANY, max_size=4))
def test_any_blocks_are_shown_or_refused_by_name(role: str, blocks: list[Any]) -> None:
    body = {"messages": [USER, {"role": role, "content": blocks}, USER]}
    try:
        turns = decoded(body).messages
    except InvalidRequest as refusal:
        assert refusal.param is not None
        assert refusal.param.startswith("messages[1].content[")
    else:
        assert all(isinstance(turn["content"], str) for turn in turns)
        assert render(turns)


def render(turns: list[dict[str, Any]]) -> str:
    """What every template does with turns, at least."""
    shown = []
    for turn in turns:
        shown.append(turn["role"] + turn["content"] + turn.get("reasoning_content", ""))
        for call in turn.get("tool_calls", ()):
            assert isinstance(call["function"]["arguments"], dict)
            shown.append(call["function"]["name"])
    return "".join(shown)
