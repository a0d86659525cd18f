"""The parser, whatever the format: the same events for every cut of a text, and nothing lost."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.events import Text, Thinking, ToolCall
from mashbox.engine.formats import OutputFormat
from mashbox.engine.formats.families import FORMATS, HERMES
from mashbox.engine.parse import OutputParser, Piece
from tests.engine.scripts import BROKEN, PROSE, TOOLS, scripts
from tests.hypotheses import examples
from tests.marks import slow_but

OPEN_THOUGHT = "<|im_start|>assistant\n<think>\n"


def parse(
    pieces: Iterable[str],
    format: OutputFormat | None = HERMES,
    prefix: str = "",
    tools: list[dict[str, Any]] | None = TOOLS,
) -> list[tuple[str, ...]]:
    """The fold of the events: neighbouring texts joined, ids left out."""
    parser = OutputParser(format, prefix, tools)
    events: list[Piece] = [event for piece in pieces for event in parser.push(piece)]
    folded: list[tuple[str, ...]] = []
    for event in events + parser.finish():
        match event:
            case ToolCall():
                folded.append(("call", event.name, event.arguments))
            case Text(text) | Thinking(text):
                assert text
                kind = "text" if isinstance(event, Text) else "thinking"
                if folded and folded[-1][0] == kind:
                    folded[-1] = (kind, folded[-1][1] + text)
                else:
                    folded.append((kind, text))
    return folded


def test_thought_text_and_call_in_order() -> None:
    script = '<think>a</think>b<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'
    assert parse([script]) == [("thinking", "a"), ("text", "b"), ("call", "f", '{"x":1}')]


@pytest.mark.parametrize(
    "pieces",
    [
        ['<tool_call>{"name":"now","arguments":{}}</tool_call>'],
        ['<tool_call>{"name":"now","arguments":{', "}}</tool_call>"],
    ],
)
def test_awkward_pieces_of_a_call_leak_nothing(pieces: list[str]) -> None:
    assert parse(pieces) == [("call", "now", "{}")]


def test_a_thought_that_the_template_opened() -> None:
    assert parse(["abc", " def"], prefix=OPEN_THOUGHT) == [("thinking", "abc def")]
    assert parse(["x\n\ny</think>z"], prefix=OPEN_THOUGHT) == [("thinking", "x\n\ny"), ("text", "z")]
    parser = OutputParser(HERMES, OPEN_THOUGHT, TOOLS)
    assert parser.thinking
    parser.push("x</think>")
    assert not parser.thinking


def test_a_thought_that_the_template_closed_again() -> None:
    prefix = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert parse(["\nz"], prefix=prefix) == [("text", "z")]


def test_a_call_that_the_prompt_began() -> None:
    for prefix in ('<|im_start|>assistant\n<tool_call>\n{"name": "f", ', "<tool_call>\n", "<tool_call>"):
        rest = '{"name": "f", "arguments": {}}</tool_call>'.removeprefix(
            prefix.partition("\n<tool_call>\n")[2]
        )
        assert parse([rest], prefix=prefix) == [("call", "f", "{}")]


def test_thoughts_are_found_at_the_start_only() -> None:
    assert parse(["\n\n<think>a</think>\n\nb"]) == [("thinking", "a"), ("text", "b")]
    prose = "Write <think> and then </think>."
    assert parse([prose]) == [("text", prose)]
    assert parse(["a</think>b"]) == [("text", "a</think>b")]


def test_a_thought_names_a_call() -> None:
    thought = 'I may write <tool_call>{"name": "now", "arguments": {}}</tool_call> later.'
    assert parse([f"<think>{thought}</think>No."]) == [("thinking", thought), ("text", "No.")]


def test_prose_about_markers_is_not_held_back() -> None:
    parser = OutputParser(HERMES, tools=TOOLS)
    assert parser.push("Put the call in <tool_call> tags") == [Text("Put the call in <tool_call> tags")]


def test_text_is_said_as_soon_as_it_is_certain() -> None:
    parser = OutputParser(HERMES, tools=TOOLS)
    assert parser.push("Hello ") == [Text("Hello")]
    assert parser.push("world <tool_") == [Text(" world")]
    assert parser.push("box") == [Text(" <tool_box")]


def test_white_space() -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert parse([f" a\n\n{call}\n{call}\n\nb \n"]) == [
        ("text", " a"),
        ("call", "now", "{}"),
        ("call", "now", "{}"),
        ("text", "b \n"),
    ]
    assert parse(["\n"]) == [("text", "\n")]
    # A stop string of line ends must get to see them, however long the model goes on.
    parser = OutputParser(HERMES, tools=TOOLS)
    assert [event for _ in range(40) for event in parser.push("\n")] == [Text("\n" * 17)] + [Text("\n")] * 23


@pytest.mark.parametrize(
    "script",
    [
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"x": }}</tool_call>',
        '<tool_call>{"name": "now", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"x": NaN}}</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"x": "cut',
        "<tool_call>[]</tool_call>",
        '<tool_call>[{"name": "now", "arguments": {}}, {"name": "unknown"}]</tool_call>',
        '<tool_call>{"name": "now", "arguments": {}} and more</tool_call>',
        "<tool_call>",
    ],
)
def test_what_is_no_call_is_text_as_it_stands(script: str) -> None:
    script = f"See:\n\n{script}\n\nWell."
    assert parse([script]) == [("text", script)]


def test_a_good_call_behind_a_bad_one() -> None:
    bad, good = '<tool_call>{"name": "now", ', '<tool_call>{"name": "f", "arguments": {"x": 2}}</tool_call>'
    assert parse([bad, good]) == [("text", bad.strip()), ("call", "f", '{"x": 2}')]


def test_a_marker_inside_an_argument() -> None:
    arguments = json.dumps({"s": 'He wrote "</tool_call>\\" and <tool_call>.'})
    script = f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>'
    assert parse(script) == parse([script]) == [("call", "f", arguments)]


def test_json_that_lacks_its_closing_marker_only() -> None:
    assert parse(['<tool_call>\n{"name": "now", "arguments": {}}\n']) == [("call", "now", "{}")]


def test_arguments_stay_as_the_model_wrote_them() -> None:
    written = '{ "b":1.0, "a": 12345678901234567890,\n"c":"\\u00e9" }'
    assert parse([f'<tool_call>{{"name":"f","arguments":{written}}}</tool_call>']) == [("call", "f", written)]


def test_arguments_that_are_text_or_of_the_wrong_type() -> None:
    quoted = json.dumps('{"x": 1}')
    assert parse([f'<tool_call>{{"name":"f","arguments":{quoted}}}</tool_call>']) == [
        ("call", "f", '{"x": 1}')
    ]
    assert parse(['<tool_call>{"name":"f","arguments":{"x":"7"}}</tool_call>']) == [("call", "f", '{"x": 7}')]
    assert parse(['<tool_call>{"name":"f"}</tool_call>']) == [("call", "f", "{}")]


def test_line_ends_that_a_model_forgot_to_escape() -> None:
    script = '<tool_call>{"name": "f",\n"arguments": {"s": "a\nb\tc"}}</tool_call>'
    assert parse([script]) == [("call", "f", '{"s": "a\\nb\\tc"}')]


def test_ids_are_distinct() -> None:
    parser = OutputParser(HERMES, tools=TOOLS)
    events = parser.push('<tool_call>{"name": "now", "arguments": {}}</tool_call>' * 50)
    ids = {event.id for event in events if isinstance(event, ToolCall)}
    assert len(ids) == 50
    assert all(id.startswith("call_") and len(id) == 29 and id[5:].isalnum() for id in ids)


def test_without_tools_a_call_is_text_and_without_names_any_is_a_call() -> None:
    script = '<tool_call>{"name":"g","arguments":{}}</tool_call>'
    assert parse([script], tools=[]) == [("text", script)]
    assert parse([script], tools=None) == [("call", "g", "{}")]


def test_without_a_format_all_is_text() -> None:
    script = " <think>a</think> "
    assert parse([script, ""], format=None) == [("text", script)]


def all_cuts(script: str) -> Iterable[list[str]]:
    """The text in one piece a character, and in two pieces cut at every place."""
    yield list(script)
    for at in range(1, len(script)):
        yield [script[:at], script[at:]]


@pytest.mark.parametrize("name", slow_but(["hermes", "harmony", "gemma4"], sorted(FORMATS)))
def test_every_cut_gives_the_same(name: str) -> None:
    @settings(max_examples=examples(25), deadline=None)
    @given(scripts(name))
    def check(script: str) -> None:
        whole = parse([script], FORMATS[name])
        for pieces in all_cuts(script):
            assert parse(pieces, FORMATS[name]) == whole

    check()


def test_long_pieces_are_cut_nowhere_either() -> None:
    call = '<tool_call>{"name": "f", "arguments": {"s": "</tool_call>"}}</tool_call>'
    for length in range(1_000, 1_100):
        said = "a" * length
        expected = [("text", said), ("call", "f", '{"s": "</tool_call>"}'), ("text", "b")]
        assert parse([f"{said}\n{call}\nb"]) == expected


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"harmony"}))
def test_of_what_is_no_call_nothing_is_lost(name: str) -> None:
    @settings(deadline=None)
    @given(st.lists(st.sampled_from([*PROSE, *BROKEN[name]]), max_size=6).map("".join))
    def check(script: str) -> None:
        assert "".join(text for _, text in parse(script, FORMATS[name])) == script

    check()


def test_a_parameter_that_never_got_its_name_does_not_take_what_follows() -> None:
    script = (
        "<tool_call>\n<function=f>\n<parameter=<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n"
    )
    script += "</function>\n</tool_call>"
    first, (_, name, arguments) = parse(script, FORMATS["qwen-xml"])
    assert first == ("text", "<tool_call>\n<function=f>\n<parameter=")
    assert (name, arguments) == ("f", '{"x": 1}')


def seconds_for(tokens: list[str], format: OutputFormat) -> float:
    """Processor seconds of the shortest of five runs, since the machine has other things to do."""

    def once() -> float:
        parser = OutputParser(format, tools=TOOLS)
        began = time.process_time()
        for token in tokens:
            parser.push(token)
        parser.finish()
        return time.process_time() - began

    return min(once() for _ in range(5))


@pytest.mark.parametrize("start", ["", "<think>", '<tool_call>{"name": "f", "arguments": {"s": "'])
def test_the_cost_of_a_token_does_not_grow(start: str) -> None:
    short, long = [start, *["word "] * 2_500], [start, *["word "] * 20_000]
    whole = seconds_for(long, HERMES)
    # Eight times the tokens take about eight times as long, not the square of it.
    assert whole < 24 * seconds_for(short, HERMES)
    assert whole / 20_000 < 20e-6


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("hermes", '<tool_call>{"' * 5_000 + "</tool_call>"),
        ("hermes", "<tool_call>" + " " * 50_000 + "x"),
        ("hermes", '<tool_call>{"a":"' + '<tool_call>{"</tool_call>' * 2_500),
        ("qwen-xml", "<tool_call><function=f>" + "<parameter=x>\n" * 5_000 + "</function></tool_call>"),
        ("glm", "<tool_call>f<arg_key>x</arg_key>" + "<arg_value>" * 5_000 + "</tool_call>"),
        ("llama3", '{"name":"f","parameters":' * 3_000),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"' * 3_000),
        ("gemma4", '<|tool_call>call:f{a:<|"|>' * 2_000 + "<tool_call|>"),
        ("lfm2", "<|tool_call_start|>[f(a=" * 3_000 + "<|tool_call_end|>"),
    ],
)
def test_a_model_in_a_loop_does_not_hold_the_server_up(name: str, script: str) -> None:
    began = time.process_time()
    assert parse([script], FORMATS[name]) == [("text", script)]
    assert time.process_time() - began < 5


def test_importing_it_leaves_torch_out() -> None:
    check = "import mashbox.engine.parse, mashbox.engine.tools, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
