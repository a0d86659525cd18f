"""Tools as the model sees them, and the way back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.request import ForcedCall
from mashbox.server.protocols.responses_tools import ClientTool, Toolbox
from tests.server.responses_asking import conversation, messages, read, refused

F: dict[str, Any] = {"type": "function", "name": "f", "description": "F", "parameters": {"type": "object"}}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Changes files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "+" /.+/'},
}
USER = {"role": "user", "content": "hi"}


def space(name: str, *tools: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": "", "tools": list(tools)}


def shown(**fields: Any) -> list[str]:
    """The names that the model sees."""
    return [tool["function"]["name"] for tool in conversation(**fields).tools]


def test_a_function_is_shown_as_it_is() -> None:
    assert conversation(tools=[{**F, "strict": True}]).tools == [
        {"type": "function", "function": {"name": "f", "description": "F", "parameters": {"type": "object"}}}
    ]


def test_a_custom_tool_is_a_function_of_one_text_that_tells_its_grammar() -> None:
    (tool,) = conversation(tools=[PATCH]).tools
    function = tool["function"]
    assert function["name"] == "patch"
    assert function["description"].startswith("Changes files.")
    assert "lark" in function["description"] and 'start: "+" /.+/' in function["description"]
    assert list(function["parameters"]["properties"]) == function["parameters"]["required"] == ["input"]
    (plain,) = conversation(tools=[{"type": "custom", "name": "p", "format": {"type": "text"}}]).tools
    assert "description" not in plain["function"]


@pytest.mark.parametrize(
    "kind",
    [
        "web_search",
        "file_search",
        "code_interpreter",
        "image_generation",
        "computer_use_preview",
        "mcp",
        "local_shell",
        "tool_search",
    ],
)
def test_hosted_tools_are_dropped(kind: str) -> None:
    assert shown(tools=[{"type": kind}, F, space("n", {"type": kind})]) == ["f"]


def test_tools_among_the_input_are_honoured_and_replace_earlier_ones() -> None:
    later = {**F, "description": "later"}
    item = {"type": "additional_tools", "role": "developer", "tools": [later, space("n", {**F, "name": "g"})]}
    asked = conversation(tools=[F], input=[item, USER, item])
    assert [tool["function"]["name"] for tool in asked.tools] == ["f", "g"]
    assert asked.tools[0]["function"]["description"] == "later"
    assert asked.messages == [USER]
    system = {"role": "developer", "content": "A"}
    assert messages(item, system, USER)[0] == {"role": "system", "content": "A"}


def test_names_stay_as_they_are_where_they_are_alone() -> None:
    tools = [space("a", {**F, "name": "x"}, F), space("b__", F), F, {"type": "custom", "name": "f"}]
    assert shown(tools=tools) == ["x", "a__f", "b__f", "f", "f_2"]


def test_a_call_in_the_history_has_the_name_that_the_model_sees() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": ""}

    def name(*tools: Any, **fields: Any) -> Any:
        turns = messages({**call, **fields}, output, tools=list(tools))
        assert turns[1]["name"] == turns[0]["tool_calls"][0]["function"]["name"]
        return turns[1]["name"]

    assert name(space("n", F), namespace="n") == "f"
    assert name(F, space("n", F), namespace="n") == "n__f"
    assert name(F, space("n", F)) == "f"
    # tools that are no longer there
    assert name(F, namespace="gone") == "gone__f"
    assert name(namespace="gone") == "f"


TOOLS = st.lists(
    st.builds(
        ClientTool,
        kind=st.sampled_from(["function", "custom"]),
        name=st.sampled_from(["f", "g", "f_2", "a__f", "a__f_2"]),
        namespace=st.sampled_from([None, "a", "a_", "b", "a__f"]),
        given=st.just({}),
    ),
    max_size=12,
)


def _key(tool: ClientTool) -> tuple[str, str | None, str]:
    return tool.kind, tool.namespace, tool.name


@given(TOOLS)
def test_names_are_distinct_and_lead_back(tools: list[ClientTool]) -> None:
    box = Toolbox(tools)
    names = [box.shown_name(tool.kind, tool.namespace, tool.name) for tool in box.tools]
    assert len(set(names)) == len(names)
    assert [box.called(name) for name in names] == list(box.tools)
    assert [tool["function"]["name"] for tool in box.functions(box.tools)] == names
    assert {_key(tool) for tool in box.tools} == {_key(tool) for tool in tools}


@pytest.mark.parametrize(
    ("choice", "names", "forced"),
    [
        (None, ["f", "patch", "g"], None),
        ("auto", ["f", "patch", "g"], None),
        ("none", [], None),
        ("required", ["f", "patch", "g"], ForcedCall()),
        ({"type": "function", "name": "f"}, ["f", "patch", "g"], ForcedCall(name="f")),
        ({"type": "function", "function": {"name": "f"}}, ["f", "patch", "g"], ForcedCall(name="f")),
        ({"type": "custom", "name": "patch"}, ["f", "patch", "g"], ForcedCall(name="patch")),
        ({"type": "function", "name": "g"}, ["f", "patch", "g"], ForcedCall(name="g")),
        ({"type": "function", "name": "g", "namespace": "n"}, ["f", "patch", "g"], ForcedCall(name="g")),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
            },
            ["f"],
            ForcedCall(),
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "custom", "name": "patch"}, {"type": "namespace", "name": "n"}],
            },
            ["patch", "g"],
            None,
        ),
        ({"type": "allowed_tools", "tools": []}, [], None),
    ],
)
def test_the_choice_of_a_tool(choice: Any, names: list[str], forced: ForcedCall | None) -> None:
    tools = [F, PATCH, space("n", {**F, "name": "g"}), {"type": "web_search"}]
    assert shown(tools=tools, tool_choice=choice) == names
    assert read(tools=tools, tool_choice=choice)[0].forced == forced


def test_the_choice_of_a_name_that_two_tools_have() -> None:
    tools = [space("n", F), F]
    for choice, name in (({}, "f"), ({"namespace": "n"}, "n__f")):
        asked, _ = read(tools=tools, tool_choice={"type": "function", "name": "f", **choice})
        assert asked.forced == ForcedCall(name=name)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("any", "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.name"),
        ({"type": "function", "name": "x"}, "tool_choice"),
        ({"type": "custom", "name": "f"}, "tool_choice"),
        ({"type": "web_search"}, "tool_choice"),
        ({"type": "allowed_tools"}, "tool_choice.tools"),
        ({"type": "allowed_tools", "tools": ["f"]}, "tool_choice.tools[0]"),
        ({"type": "allowed_tools", "tools": [{"type": "function", "name": "x"}]}, "tool_choice.tools[0]"),
        ({"type": "allowed_tools", "mode": "any", "tools": []}, "tool_choice.mode"),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
            "tool_choice.mode",
        ),
        (3, "tool_choice"),
    ],
)
def test_a_choice_that_no_tool_can_fulfil(choice: Any, param: str) -> None:
    assert refused(tools=[F], tool_choice=choice).param == param


def test_required_needs_a_tool_that_is_shown() -> None:
    assert refused(tools=[{"type": "web_search"}], tool_choice="required").param == "tool_choice"


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"name": "f"}, "tools[0].type"),
        ({"type": "function"}, "tools[0].name"),
        ({"type": "function", "function": {"name": "f"}}, "tools[0].name"),
        ({"type": "custom", "name": 1}, "tools[0].name"),
        ({**F, "parameters": []}, "tools[0].parameters"),
        ({**F, "description": 1}, "tools[0].description"),
        ({"type": "namespace", "tools": []}, "tools[0].name"),
        ({"type": "namespace", "name": "n"}, "tools[0].tools"),
        (space("n", "f"), "tools[0].tools[0]"),
        (space("n", {"type": "function"}), "tools[0].tools[0].name"),
    ],
)
def test_refusals_of_tools_name_the_field(tool: Any, param: str) -> None:
    assert refused(tools=[tool]).param == param


def test_tools_among_the_input_are_refused_by_their_place() -> None:
    for tools, param in (
        (None, "input[1].tools"),
        (["f"], "input[1].tools"),
        ([{}], "input[1].tools[0].type"),
    ):
        assert refused(input=[USER, {"type": "additional_tools", "tools": tools}]).param == param
