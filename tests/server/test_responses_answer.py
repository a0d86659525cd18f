"""Events in Responses' words: whole and streamed answers are one."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.events import Event, Text, Thinking, ToolCall
from mashbox.server.failure import Failure
from mashbox.server.protocols.responses_answer import Echo, ResponsesAnswer
from mashbox.server.protocols.responses_tools import ClientTool, Toolbox
from tests.server.scripted import finished

BOX = Toolbox(
    [
        ClientTool(kind="function", name="f", given={}),
        ClientTool(kind="custom", name="patch", given={}),
        ClientTool(kind="function", name="f", namespace="n", given={}),
        ClientTool(kind="custom", name="raw", namespace="n", given={}),
    ]
)
ECHO = Echo(parallel_tool_calls=False, tool_choice="auto", tools=[])
ENDS = st.sampled_from([finished(5, 3), finished(5, 3, reason="length"), finished(5, 3, reason="tool_calls")])
ARGUMENTS = st.dictionaries(st.sampled_from(["input", "x"]), st.text() | st.integers()).map(json.dumps)
PIECES = (
    st.builds(Text, st.text(min_size=1))
    | st.builds(Thinking, st.text(min_size=1))
    | st.builds(
        ToolCall, st.uuids().map(str), st.sampled_from(["f", "patch", "n__f", "raw", "new"]), ARGUMENTS
    )
)


def answer(carry: bool = False) -> ResponsesAnswer:
    return ResponsesAnswer("resp_1", "m", ECHO, BOX, carry=carry)


def stream(events: list[Event], carry: bool = False) -> list[dict[str, Any]]:
    """The data of every event of a stream."""
    writer = answer(carry)
    raw = writer.opening() + b"".join(map(writer.event, events))
    blocks = [block.split("\n") for block in raw.decode().split("\n\n")[:-1]]
    assert all(name == f"event: {json.loads(data[6:])['type']}" for name, data in blocks)
    return [json.loads(data[6:]) for _, data in blocks]


def whole(events: list[Event], carry: bool = False) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(answer(carry).whole(events))
    return response


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """Item ids and times are new each time."""
    output = [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]
    return {**response, "output": output, "created_at": 0}


@given(st.lists(PIECES, max_size=12), ENDS, st.booleans())
def test_a_whole_answer_is_what_was_streamed(pieces: list[Event], end: Event, carry: bool) -> None:
    events = [*pieces, end]
    assert without_ids(whole(events, carry)) == without_ids(stream(events, carry)[-1]["response"])


@given(st.lists(PIECES, max_size=12), ENDS)
def test_every_item_grows_by_its_events_to_what_it_is_in_the_end(pieces: list[Event], end: Event) -> None:
    events = stream([*pieces, end])
    assert [event["sequence_number"] for event in events] == list(range(1, len(events) + 1))
    final = events[-1]["response"]["output"]
    grown: dict[int, str] = {}
    for event in events[2:-1]:
        index, kind = event["output_index"], event["type"].rpartition(".")[2]
        assert event.get("item_id", final[index]["id"]) == final[index]["id"]
        if event["type"] == "response.output_item.added":
            assert index == len(grown)
            grown[index] = ""
            assert event["item"]["status"] == "in_progress"
            assert event["item"].keys() == final[index].keys()
        elif kind == "delta":
            grown[index] += event["delta"]
        elif event["type"] == "response.output_item.done":
            assert event["item"] == final[index]
        elif event["type"] == "response.content_part.done":
            assert event["part"] == final[index]["content"][0]
        elif event["type"] != "response.content_part.added":
            assert grown[index] == event.get("text", event.get("arguments", event.get("input")))
    assert len(grown) == len(final)
    for index, item in enumerate(final):
        value = item["content"][0]["text"] if "content" in item else item.get("arguments", item.get("input"))
        assert grown[index] == value
    assert len({item["id"] for item in final}) == len(final)


@given(st.lists(PIECES, max_size=8))
def test_text_thoughts_and_calls_are_whole(pieces: list[Event]) -> None:
    output = whole([*pieces, finished(5, 3)])["output"]

    def text(kind: str) -> str:
        return "".join(item["content"][0]["text"] for item in output if item["type"] == kind)

    assert text("message") == "".join(piece.text for piece in pieces if isinstance(piece, Text))
    assert text("reasoning") == "".join(piece.text for piece in pieces if isinstance(piece, Thinking))
    ids = [item["call_id"] for item in output if "call_id" in item]
    assert ids == [piece.id for piece in pieces if isinstance(piece, ToolCall)]


def item(name: str, arguments: str) -> dict[str, Any]:
    """The item of one call."""
    (made,) = whole([ToolCall("c", name, arguments), finished(5, 3, reason="tool_calls")])["output"]
    assert isinstance(made, dict)
    return made


def test_calls_come_back_as_the_client_named_them() -> None:
    call = {"type": "function_call", "status": "completed", "call_id": "c", "arguments": "{}"}
    for shown, named in (
        ("f", {"name": "f"}),
        ("n__f", {"name": "f", "namespace": "n"}),
        ("new", {"name": "new"}),
    ):
        made = item(shown, "{}")
        assert made.pop("id").startswith("fc_")
        assert made == {**call, **named}
    made = item("raw", '{"input":"a"}')
    assert (made["type"], made["name"], made["namespace"], made["input"]) == (
        "custom_tool_call",
        "raw",
        "n",
        "a",
    )


def test_a_custom_tools_input_is_never_lost() -> None:
    for arguments, given_input in (
        ('{"input":"a\\nb"}', "a\nb"),
        ('{"patch":"a"}', "a"),
        ('{"input":"a","x":1}', "a"),
        ('{"x":"a","y":"b"}', '{"x":"a","y":"b"}'),
        ('{"input":3}', '{"input":3}'),
        ("{}", "{}"),
    ):
        assert item("patch", arguments)["input"] == given_input


def test_a_failure_keeps_what_was_done() -> None:
    writer = answer()
    writer.opening()
    writer.event(Text("a"))
    writer.event(ToolCall("c", "f", "{}"))
    failure = Failure(status=500, message="No.", type="server_error")
    error, failed = [
        json.loads(line[6:])
        for line in writer.failed(failure).decode().split("\n")
        if line.startswith("data")
    ]
    assert error["request_id"] == "resp_1"
    assert [done["type"] for done in failed["response"]["output"]] == ["message", "function_call"]
