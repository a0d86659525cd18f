"""Each family's format on answers as its models write them, and how a model's format is picked."""

from typing import Any, get_args

import pytest

from mashbox.catalog import Tools
from mashbox.engine.formats import pick_format, with_fallback_calls
from mashbox.engine.formats.families import FORMATS, HERMES
from mashbox.engine.formats.llama3 import split_objects
from mashbox.errors import UsageError
from tests.engine.scripts import CALLS, THOUGHTS, TOOLS
from tests.engine.test_parse import parse

HARMONY_START = "<|start|>assistant"


def typed(**properties: dict[str, Any]) -> list[dict[str, Any]]:
    """One tool ``f`` with these parameters."""
    parameters = {"type": "object", "properties": properties}
    return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


@pytest.mark.parametrize("name", sorted(name for name, calls in CALLS.items() if calls))
def test_good_calls_are_calls_and_leave_no_text(name: str) -> None:
    for call in CALLS[name]:
        if "functions" in call or name != "harmony":
            folded = parse([call], FORMATS[name])
            assert folded and {event[0] for event in folded} == {"call"}, call


@pytest.mark.parametrize(
    ("name", "script", "expected"),
    [
        (
            "hermes",
            'Two:\n<tool_call>[{"name": "now", "arguments": {}}, '
            '{"name": "f", "arguments": {"x": 1}}]</tool_call>',
            [("text", "Two:"), ("call", "now", "{}"), ("call", "f", '{"x": 1}')],
        ),
        (
            "llama3",
            '{"name": "f", "parameters": {"x": "1"}}; {"type": "function", "name": "now", "parameters": {}}',
            [("call", "f", '{"x": 1}'), ("call", "now", "{}")],
        ),
        (
            "llama3",
            'Like {"name": "now", "parameters": {}}',
            [("text", 'Like {"name": "now", "parameters": {}}')],
        ),
        ("llama3", '{"name": "now", "arguments": {}}', [("call", "now", "{}")]),
        ("llama3", '{"name": "now"} is JSON', [("text", '{"name": "now"} is JSON')]),
        (
            "mistral",
            'Ok[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{"s": "[TOOL_CALLS]"}[TOOL_CALLS]now[ARGS]{}',
            [("text", "Ok"), ("call", "f", '{"s": "[TOOL_CALLS]"}'), ("call", "now", "{}")],
        ),
        (
            "mistral",
            '[THINK]Hm[/THINK][TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}, '
            '{"name": "now", "arguments": {}}]',
            [("thinking", "Hm"), ("call", "f", '{"x": 1}'), ("call", "now", "{}")],
        ),
        (
            "glm",
            "Hm</think>\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value> a\n</arg_value>\n</tool_call>"
            "<tool_call>now</tool_call>",
            [("text", "Hm</think>"), ("call", "f", '{"s": " a\\n"}'), ("call", "now", "{}")],
        ),
        (
            "deepseek",
            "Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
            '{"x": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n'
            "{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            [("text", "Hi"), ("call", "f", '{"x": 1}'), ("call", "now", "{}")],
        ),
        (
            "deepseek",
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜>'
            "<｜tool▁calls▁end｜>",
            [("call", "f", '{"x": 1}')],
        ),
        (
            "gemma4",
            '<|channel>thought\nHm\n<channel|><|tool_call>call:f{s:<|"|>a "<tool_call>" {x:1}<|"|>,x:2}'
            "<tool_call|><|tool_response>",
            [("thinking", "Hm"), ("call", "f", '{"s": "a \\"<tool_call>\\" {x:1}", "x": 2}')],
        ),
        (
            "lfm2",
            "<|tool_call_start|>[f(s='it\\'s', x=-1), now()]<|tool_call_end|>So",
            [("call", "f", '{"s": "it\'s", "x": -1}'), ("call", "now", "{}"), ("text", "So")],
        ),
        ("granite3", '<|tool_call|>[{"name": "f", "arguments": {"x": 1}}]', [("call", "f", '{"x": 1}')]),
    ],
)
def test_answers_of_the_families(name: str, script: str, expected: list[tuple[str, ...]]) -> None:
    assert parse([script], FORMATS[name]) == expected


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("lfm2", "<|tool_call_start|>[now()]"),
        ("gemma4", "<|tool_call>call:now{}"),
        ("deepseek", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}"),
        ("harmony", "<|channel|>commentary to=functions.now<|message|>{}"),
    ],
)
def test_a_call_that_is_whole_needs_no_closing_marker(name: str, script: str) -> None:
    assert parse([script], FORMATS[name]) == [("call", "now", "{}")]
    if name != "harmony":
        assert parse([script[:-1]], FORMATS[name]) == [("text", script[:-1])]


def test_xml_arguments_are_typed_by_the_schema() -> None:
    tools = typed(
        count={"type": "integer"},
        share={"type": "number"},
        deep={"type": "boolean"},
        lines={"type": "array"},
        text={"type": "string"},
        maybe={"type": ["string", "null"]},
        either={"anyOf": [{"type": "object"}, {"type": "null"}]},
        free={"description": "anything"},
    )
    values = {
        "count": "3",
        "share": "0.5",
        "deep": "true",
        "lines": '["a"]',
        "text": "  def f():\n    return 1\n",
        "maybe": "null",
        "either": '{"a": 1}',
        "free": "[1]",
        "unknown": "7",
    }
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    (call,) = parse(
        [f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"], FORMATS["qwen-xml"], tools=tools
    )
    assert call[2] == (
        '{"count": 3, "share": 0.5, "deep": true, "lines": ["a"], "text": "  def f():\\n    return 1\\n", '
        '"maybe": null, "either": {"a": 1}, "free": [1], "unknown": "7"}'
    )


@pytest.mark.parametrize(
    "script",
    [
        "<tool_call>\n<function=f>\n<parameter=x>\n1",
        "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n",
        "<tool_call>\n<function=f>\nx = 1\n</function>\n</tool_call>",
        "<tool_call>\n<function=never>\n</function>\n</tool_call>",
        "Write <function=name> and </function>.",
    ],
)
def test_xml_that_is_cut_or_no_call_is_text(script: str) -> None:
    assert parse([script], FORMATS["qwen-xml"]) == [("text", script)]


def test_xml_without_its_outer_marker() -> None:
    script = "Ok\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
    assert parse([script], FORMATS["qwen-xml"]) == [("text", "Ok"), ("call", "f", '{"x": 1}')]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "<|channel|>analysis<|message|>One<|end|><|start|>assistant<|channel|>analysis<|message|>Two<|end|>"
            "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
            '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x":1}',
            [("thinking", "One\n\nTwo"), ("text", "I look."), ("call", "f", '{"x":1}')],
        ),
        (' to=functions.f<|channel|>commentary json<|message|>{"x":1}', [("call", "f", '{"x":1}')]),
        ("<|channel|>commentary to=functions.now<|message|>{}<|call|>", [("call", "now", "{}")]),
        ("<|channel|>final<|message|>Use <|think|> so.", [("text", "Use <|think|> so.")]),
        ("<|channel|>analysis<|message|>Cut of", [("thinking", "Cut of")]),
        ("<|channel|>analysis<|message|>A<|channel|>final<|message|>B", [("thinking", "A"), ("text", "B")]),
        ("No channel at all", [("text", "No channel at all")]),
        (
            "<|channel|>commentary to=functions.never<|message|>{}",
            [("text", "<|channel|>commentary to=functions.never<|message|>{}")],
        ),
    ],
)
def test_channels(script: str, expected: list[tuple[str, ...]]) -> None:
    assert parse([script], FORMATS["harmony"], HARMONY_START) == expected
    assert parse(script, FORMATS["harmony"], HARMONY_START) == expected


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("hermes", "<|im_start|>assistant\n<think>\n"),
        ("qwen-xml", "<|im_start|>assistant\n<think>\n"),
        ("glm", "<|assistant|><think>"),
        ("deepseek", "<｜Assistant｜><think>\n"),
        ("thinking", "<｜Assistant｜><think>\n"),
        ("mistral", "[/INST][THINK]"),
        ("gemma4", "<|turn>model\n<|channel>thought\n"),
        ("harmony", "<|start|>assistant<|channel|>analysis<|message|>"),
        ("hermes", "<｜an unknown turn｜><think>\n"),
    ],
)
def test_thoughts_that_templates_open(name: str, prefix: str) -> None:
    assert parse(["So it ends", " here"], FORMATS[name], prefix) == [("thinking", "So it ends here")]
    end = {"mistral": "[/THINK]", "gemma4": "<channel|>"}.get(name, "</think>")
    if name != "harmony":
        assert parse(["a\n", end, "\nb"], FORMATS[name], prefix) == [("thinking", "a"), ("text", "b")]
        assert parse(["\nb"], FORMATS[name], f"{prefix}\n{end}\n") == [("text", "b")]


def test_glm_without_a_thought() -> None:
    assert parse(["Hi"], FORMATS["glm"], "<|assistant|></think>\n") == [("text", "Hi")]


def test_objects_one_behind_the_other() -> None:
    assert split_objects('<|python_tag|>{"a": 1};\n{"b": 2}') == ['{"a": 1}', '{"b": 2}']
    assert split_objects('{"a": 1} and so on') == ['{"a": 1} and so on']


COHERE = {
    "start_anchor": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "fields": {
        "content": {"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"},
        "thinking": {"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
        "tool_calls": {
            "open": "<|START_ACTION|>",
            "close": "<|END_ACTION|>",
            "content": "json",
            "transform_each": True,
            "transform": {
                "type": "function",
                "function": {"name": "{tool_name}", "arguments": "{parameters}"},
            },
        },
    },
}

ERNIE = {
    "start_anchor": "Assistant:",
    "fields": {
        "thinking": {"open_pattern": r"(?:^|<think>\s*)", "close": "</think>"},
        "content": {"open": "<response>\n", "close_pattern": r"\n?</response>"},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}

QWEN = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)"},
    },
}


@pytest.mark.parametrize(
    ("template", "prefix", "script", "expected"),
    [
        (
            COHERE,
            "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            "<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>"
            '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"x": "1"}}]'
            "<|END_ACTION|>",
            [("thinking", "Hm"), ("text", "Hi"), ("call", "f", '{"x": 1}')],
        ),
        (
            ERNIE,
            "Assistant:",
            'Hm</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
            "<response>\nHi\n</response>",
            [("thinking", "Hm"), ("call", "now", "{}"), ("text", "Hi")],
        ),
        (
            QWEN,
            "<|im_start|>assistant\n",
            '<think>\nHm\n</think>\n\nHi\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
            "<|im_end|>",
            [("thinking", "Hm"), ("text", "Hi"), ("call", "now", "{}")],
        ),
    ],
)
def test_a_tokenizer_brings_its_own_format(
    template: dict[str, Any], prefix: str, script: str, expected: list[tuple[str, ...]]
) -> None:
    own = pick_format("hermes", template)
    assert own is not None and own.name == "own"
    assert parse([script], own, prefix) == expected
    assert parse(script, own, prefix) == expected


@pytest.mark.parametrize(
    "template", [{}, {"fields": {"content": {}}}, {"fields": [], "start_anchor": "x"}, {"version": 9}]
)
def test_an_invalid_one_is_passed_over(template: dict[str, Any]) -> None:
    assert pick_format("hermes", template) is HERMES


def test_the_catalogue_names_one() -> None:
    assert pick_format("glm", None, "<tool_call>") is FORMATS["glm"]
    assert {pick_format(name) for name in get_args(Tools)} <= set(FORMATS.values())
    with pytest.raises(UsageError, match=r"'klingon'.*hermes"):
        pick_format("klingon")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("'<tool_call>\\n' {{ tools }} <think>", "hermes"),
        ("<tool_call>\n<function=example>\n<parameter=one>", "qwen-xml"),
        ("<tool_call>{name}<arg_key>{k}</arg_key><arg_value>", "glm"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", "mistral"),
        ("<|start_header_id|>{{ tools }}", "llama3"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜><think>", "deepseek"),
        ("<|tool_call>call: <tool_call|>", "gemma4"),
        ("List of tools: <|tool_list_start|>[", "lfm2"),
        ("respond only with <|tool_call|>", "granite3"),
        ("<think>\n\n</think>", "thinking"),
    ],
)
def test_else_the_chat_template_tells(template: str, name: str) -> None:
    assert pick_format(None, None, template) is FORMATS[name]


def test_a_plain_template_has_no_format() -> None:
    assert pick_format(None, None, "<|im_start|>{{ message.role }}") is None
    assert pick_format() is None


def test_the_fallback_keeps_the_models_own_thoughts() -> None:
    assert with_fallback_calls(None) is with_fallback_calls(FORMATS["thinking"]) is HERMES
    own = with_fallback_calls(FORMATS["mistral"])
    script = '[THINK]Hm[/THINK]<tool_call>{"name": "now", "arguments": {}}</tool_call>[TOOL_CALLS]'
    assert parse([script], own) == [("thinking", "Hm"), ("call", "now", "{}"), ("text", "[TOOL_CALLS]")]


def test_every_thought_of_the_scripts_is_one() -> None:
    for name, thoughts in THOUGHTS.items():
        for thought in thoughts:
            assert all(event[0] == "thinking" for event in parse([thought], FORMATS[name], tools=TOOLS))
