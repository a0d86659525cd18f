"""Input items to the messages of a chat template."""

from typing import Any

import pytest

from mashbox.server.protocols.responses_items import carry_thinking
from tests.server.responses_asking import messages, refused

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
CALLED = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


def result(output: Any) -> Any:
    """The content of a tool's turn whose item has this output."""
    return messages(CALL, {**RESULT, "output": output})[-1]["content"]


def thought(**fields: Any) -> Any:
    """The thought of the turn that follows such a reasoning item."""
    return messages({"type": "reasoning", "summary": [], **fields}, CALL)[0].get("reasoning_content")


@pytest.mark.parametrize(
    "item",
    [
        USER,
        {"type": "message", **USER},
        {"type": "message", "id": "msg_1", "status": "completed", **USER},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ],
)
def test_a_message_with_and_without_type_id_and_parts(item: dict[str, Any]) -> None:
    assert messages(item) == [USER]


def test_an_assistants_parts() -> None:
    parts = [
        {"type": "output_text", "text": "no", "annotations": []},
        {"type": "refusal", "refusal": "never"},
    ]
    assert messages(USER, {"role": "assistant", "content": parts})[1] == {
        "role": "assistant",
        "content": "no\nnever",
    }


def test_the_leading_system_messages_join_the_instructions_and_later_ones_stay() -> None:
    turns = messages(
        {"role": "developer", "content": "B"},
        {"role": "system", "content": "C"},
        USER,
        {"role": "developer", "content": "D"},
        USER,
        instructions="A",
    )
    assert turns == [
        {"role": "system", "content": "A\n\nB\n\nC"},
        USER,
        {"role": "system", "content": "D"},
        USER,
    ]


def test_without_system_text_there_is_no_system_message() -> None:
    assert messages({"role": "system", "content": ""}, USER, instructions="") == [USER]


def test_the_pieces_of_one_answer_are_one_message() -> None:
    turns = messages(
        USER,
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": "I look"},
        CALL,
        {**CALL, "call_id": "c2", "name": "g", "arguments": ""},
        RESULT,
        {**RESULT, "call_id": "c2"},
        {"role": "assistant", "content": "done"},
    )
    second = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}
    assert turns == [
        USER,
        {
            "role": "assistant",
            "content": "I look",
            "reasoning_content": "hm",
            "tool_calls": [CALLED, second],
        },
        {"role": "tool", "content": "ok", "tool_call_id": "c1", "name": "f"},
        {"role": "tool", "content": "ok", "tool_call_id": "c2", "name": "g"},
        {"role": "assistant", "content": "done"},
    ]


def test_a_thought_of_an_answer_that_was_broken_off_is_no_turn() -> None:
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert messages(USER, reasoning, USER) == [USER, USER]


def test_a_thought_is_taken_from_its_text_then_what_was_carried_then_its_summary() -> None:
    content = [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "b"}]
    summary = [{"type": "summary_text", "text": "short"}]
    carried = carry_thinking("höchst")
    assert thought(content=content, encrypted_content=carried, summary=summary) == "a\n\nb"
    assert thought(content=None, encrypted_content=carried, summary=summary) == "höchst"
    assert thought(encrypted_content="gAAAAAB", summary=summary) == "short"
    for foreign in ("gAAAAAB", carry_thinking("x")[:-1], carry_thinking("x") + "é", None):
        assert thought(encrypted_content=foreign) is None


def test_results_as_text_parts_and_parts_that_are_not_text() -> None:
    assert result("ok") == "ok"
    assert result(None) == result("") == result([]) == ""
    assert result([{"type": "output_text", "text": "a"}, {"type": "input_text", "text": "b"}]) == "a\nb"
    image = result([{"type": "input_image", "image_url": "data:image/png;base64,AA"}])
    assert image == "[input image left out: this model reads text only]"


def test_a_result_without_its_call_is_taken() -> None:
    assert messages(RESULT) == [{"role": "tool", "content": "ok", "tool_call_id": "c1"}]


def test_calls_of_custom_tools_and_of_the_local_shell() -> None:
    turns = messages(
        {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "+a"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        {
            "type": "local_shell_call",
            "id": "i",
            "call_id": "c2",
            "action": {"type": "exec", "command": ["ls"], "timeout_ms": None},
        },
        {"type": "local_shell_call_output", "id": "c2", "output": "a file"},
    )
    assert turns == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "patch", "arguments": {"input": "+a"}}}
            ],
        },
        {"role": "tool", "content": "ok", "tool_call_id": "c1", "name": "patch"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "local_shell", "arguments": {"command": ["ls"]}},
                }
            ],
        },
        {"role": "tool", "content": "a file", "tool_call_id": "c2", "name": "local_shell"},
    ]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "input[0]"),
        ({"type": "web_search_call", "id": "ws_1"}, "input[0].type"),
        ({"type": 3}, "input[0].type"),
        ({"content": "hi"}, "input[0].type"),
        ("hi", "input[0]"),
        ({"role": "critic", "content": "hi"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": 3}, "input[0].content"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [{"text": "hi"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "input[0].content[0]"),
        ({**CALL, "arguments": "{"}, "input[0].arguments"),
        ({**CALL, "arguments": "[1]"}, "input[0].arguments"),
        ({**CALL, "arguments": None}, "input[0].arguments"),
        ({**CALL, "name": ""}, "input[0].name"),
        ({**CALL, "namespace": 1}, "input[0].namespace"),
        ({**CALL, "call_id": None, "id": "fc_1"}, "input[0].call_id"),
        ({**RESULT, "call_id": 1}, "input[0].call_id"),
        ({**RESULT, "output": {}}, "input[0].output"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "p"}, "input[0].input"),
        ({"type": "local_shell_call", "call_id": "c"}, "input[0].action"),
        ({"type": "reasoning", "content": "hm"}, "input[0].content"),
        ({"type": "reasoning", "summary": [{}]}, "input[0].summary[0].text"),
    ],
)
def test_refusals_name_the_field(item: Any, param: str) -> None:
    error = refused(input=[item])
    assert error.param == param
    assert str(error).startswith(param)


@pytest.mark.parametrize(
    "given", ["", [], [{"role": "system", "content": "A"}], [{"type": "additional_tools", "tools": []}]]
)
def test_an_input_without_a_turn_is_refused(given: Any) -> None:
    assert refused(input=given, instructions="A").param == "input"
