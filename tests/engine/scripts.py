"""Answers in each format, from which property tests build scripts: good calls, broken ones, prose."""

from hypothesis import strategies as st

TOOLS = [
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "s": {"type": "string"}},
            },
        },
    },
]

PROSE = ["Hi", " ", "\n\n", "\n" * 15, "a < b", "é", "<", "[", "{", '"', "</think>", "```json\n", "x" * 20]

_ARGUMENTS = '{"x": 1, "s": "a \\"b\\" </tool_call>"}'

CALLS = {
    "hermes": [
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        f'<tool_call>{{"name": "f", "arguments": {_ARGUMENTS}}}</tool_call>',
        '<tool_call>[{"name": "now", "arguments": {}}, {"name": "f", "arguments": {"x": 2}}]</tool_call>',
    ],
    "qwen-xml": [
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\n  a\n\n</parameter>\n"
        "</function>\n</tool_call>",
        "<function=now></function>",
    ],
    "llama3": ['{"name": "now", "parameters": {}}', '<|python_tag|>{"name": "f", "parameters": {"x": "1"}}'],
    "mistral": [
        "[TOOL_CALLS]now[ARGS]{}",
        '[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{"x": 1, "s": "[TOOL_CALLS]"}',
        '[TOOL_CALLS] [{"name": "now", "arguments": {}}]',
    ],
    "harmony": [
        "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
        '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"x": 1}<|call|>',
        "<|channel|>commentary<|message|>Look<|end|>",
        "<|start|>assistant<|channel|>final<|message|>Done",
        "<|channel|>analysis<|message|>Hm <|end|>",
    ],
    "glm": [
        "<tool_call>now\n</tool_call>",
        "<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value><arg_key>s</arg_key>\n"
        "<arg_value> b</arg_value>\n</tool_call>",
    ],
    "deepseek": [
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"x": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁calls▁end｜>',
    ],
    "gemma4": ["<|tool_call>call:now{}<tool_call|>", '<|tool_call>call:f{x:1,s:<|"|>a "b"<|"|>}<tool_call|>'],
    "lfm2": [
        "<|tool_call_start|>[now()]<|tool_call_end|>",
        "<|tool_call_start|>[f(x=1, s='a]'), now()]<|tool_call_end|>",
    ],
    "granite3": ['<|tool_call|>[{"name": "now", "arguments": {}}]'],
    "thinking": [],
}

THOUGHTS = {
    "mistral": ["[THINK]\nHm\n[/THINK]\n\n", "[THINK]"],
    "gemma4": ["<|channel>thought\nHm\n<channel|>", "<|channel>thought\n"],
    "llama3": [],
    "harmony": [],
}
_THOUGHTS = ["<think>\nHm <tool_call>\n</think>\n\n", "<think>", "</think>"]


def _broken(call: str) -> list[str]:
    """A call cut off in the middle, one of no tool, one with rubbish in it."""
    unknown = call.replace("now", "never").replace('"f"', '"never"').replace("=f", "=never")
    for mark in ("]f[", "f\n", "f<", "call:f", ".f", "[f("):
        unknown = unknown.replace(mark, mark.replace("f", "never", 1))
    return [call[: len(call) // 3], unknown]


BROKEN = {name: [broken for call in calls for broken in _broken(call)] for name, calls in CALLS.items()}


def scripts(name: str) -> st.SearchStrategy[str]:
    """Answers in a format: thoughts, text, good and broken calls, in any order."""
    thoughts = THOUGHTS.get(name, _THOUGHTS)
    pieces = [*PROSE, *CALLS[name], *CALLS[name], *thoughts, *thoughts, *BROKEN[name]]
    return st.lists(st.sampled_from(pieces), max_size=6).map("".join)
