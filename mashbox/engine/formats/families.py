"""The formats themselves, one entry a family, from the families' own chat templates.

Openings of tool calls look ahead for what a call must begin with, so that prose which only names a marker
is never taken for a call and never held back. White space around thoughts, text and calls is not part of
the data: the parser trims it.
"""

from typing import Any

from mashbox.engine.formats import llama3
from mashbox.engine.formats.base import OutputFormat

_CHATML = "<|im_start|>assistant\n"
_BODY_IS_CALL = {"type": "function", "function": "{content}"}
_BODY_IS_ARGUMENTS = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_EACH_IS_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}}
_NAME = r"(?P<name>[\w.-]+)"
_OBJECT = r'(?=\{\s*["}])'
_LIST = r"(?=\[\s*\{)"

_THINK = {"open": "<think>", "close": "</think>"}
_CONTENT: dict[str, Any] = {"content": "text"}


def _template(anchor: str | list[str], **fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": anchor,
        "fields": {**fields, "content": fields.get("content", _CONTENT)},
    }


HERMES_CALLS: dict[str, dict[str, Any]] = {
    "tool_calls": {
        "open_pattern": rf"<tool_call>\s*{_OBJECT}",
        "close": "</tool_call>",
        "repeats": True,
        "content": "json",
        "transform": _BODY_IS_CALL,
    },
    "tool_calls_listed": {
        "open_pattern": rf"<tool_call>\s*{_LIST}",
        "close": "</tool_call>",
        "content": "json",
        "transform_each": True,
        "transform": _EACH_IS_CALL,
    },
}

THINKING = OutputFormat(
    "thinking",
    _template([_CHATML, "<|Assistant|>", "<｜Assistant｜>", "<|assistant|>"], thinking=_THINK),
)
"""Thoughts only: models whose template knows no tools."""

HERMES = OutputFormat("hermes", _template(_CHATML, thinking=_THINK, **HERMES_CALLS))
"""Hermes, Qwen 2.5 and 3, SmolLM 2 (a list) and 3, Granite 4: JSON between ``<tool_call>`` markers."""

QWEN_XML = OutputFormat(
    "qwen-xml",
    _template(
        _CHATML,
        thinking=_THINK,
        tool_calls={
            # Qwen3-Coder leaves the outer marker out at times.
            "open_pattern": r"(?:<tool_call>\s*)?<function=(?P<name>[\w.-]+)>",
            "close": "</function>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                # One line end on either side is the format's, further white space is the value's.
                "tag_pattern": r"<parameter=(?P<key>[^<>\n]+)>\n?(?P<value>.*?)\n?</parameter>"
            },
            "transform": _BODY_IS_ARGUMENTS,
        },
    ),
    group_end="</tool_call>",
)
"""Qwen3-Coder, Qwen 3.5 to 3.8, Granite 4.2: ``<function=name><parameter=key>``."""


def _llama3_call(arguments: str) -> dict[str, Any]:
    """A call whose arguments have this key; the look ahead takes a JSON answer of another kind for text."""
    kind = r'(?:"type"\s*:\s*"function"\s*,\s*)?'
    name = r'"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*'
    values = {"name": "{content.name}", "arguments": f"{{content.{arguments}}}"}
    return {
        "open_pattern": rf'(?:<\|python_tag\|>\s*)?(?=\{{\s*{kind}{name}"{arguments}"\s*:)',
        "repeats": True,
        "content": "json",
        "transform": {"type": "function", "function": values},
    }


LLAMA3 = OutputFormat(
    "llama3",
    _template(
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        tool_calls=_llama3_call("parameters"),
        tool_calls_like_openai=_llama3_call("arguments"),
    ),
    first=frozenset({"tool_calls", "tool_calls_like_openai"}),
    split=llama3.split_objects,
)
"""Llama 3.1 to 3.3: the whole answer is ``{"name", "parameters"}``."""

MISTRAL = OutputFormat(
    "mistral",
    _template(
        ["[/INST]", "[/TOOL_RESULTS]"],
        thinking={"open": "[THINK]", "close": "[/THINK]"},
        tool_calls={
            "open_pattern": rf"\[TOOL_CALLS\]\s*{_NAME}(?:\[CALL_ID\][\w-]+)?\[ARGS\]\s*(?=\{{)",
            "close_pattern": r"\s*(?=\[TOOL_CALLS\])",
            "repeats": True,
            "content": "json",
            "transform": _BODY_IS_ARGUMENTS,
        },
        tool_calls_listed={
            "open_pattern": rf"\[TOOL_CALLS\]\s*{_LIST}",
            "content": "json",
            "transform_each": True,
            "transform": _EACH_IS_CALL,
        },
    ),
)
"""Mistral: a JSON list behind ``[TOOL_CALLS]``, or since 2025 ``name[CALL_ID]id[ARGS]{…}`` each."""

_START = r"(?:<\|start\|>assistant)?"
_CALLED = r"\s*to=(?:functions\.)?(?P<name>[\w.-]+)"
_MESSAGE = r"\s*(?:(?:<\|constrain\|>)?\s*\w+)?\s*<\|message\|>"

HARMONY = OutputFormat(
    "harmony",
    _template(
        "<|start|>assistant",
        thinking={
            "open_pattern": rf"{_START}<\|channel\|>analysis\s*<\|message\|>",
            "close_pattern": r"<\|end\|>|(?=<\|start\|>|<\|channel\|>)",
            "repeats": True,
            "join": "\n\n",
        },
        content_final={
            "open_pattern": rf"{_START}<\|channel\|>(?:final|commentary){_MESSAGE}",
            "close_pattern": r"<\|end\|>|<\|return\|>|(?=<\|start\|>|<\|channel\|>)",
            "repeats": True,
            "join": "\n\n",
        },
        tool_calls={
            "open_pattern": (
                rf"{_START}<\|channel\|>(?:commentary|analysis){_CALLED}{_MESSAGE}"
                rf"|(?:^|<\|start\|>assistant){_CALLED}\s*<\|channel\|>(?:commentary|analysis){_MESSAGE}"
            ),
            "close_pattern": r"<\|call\|>|<\|end\|>",
            "repeats": True,
            "content": "json",
            "transform": _BODY_IS_ARGUMENTS,
        },
        content={"close": "<|start|>assistant"},
    ),
    first=frozenset(),
)
"""gpt-oss: channels analysis (thought), commentary (calls and remarks), final (the answer)."""

GLM = OutputFormat(
    "glm",
    _template(
        "<|assistant|>",
        thinking=_THINK,
        tool_calls={
            "open_pattern": rf"<tool_call>\s*{_NAME}\s*(?=<arg_key>|</tool_call>)",
            "close": "</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<arg_key>(?P<key>[^<]*)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
            },
            "transform": _BODY_IS_ARGUMENTS,
        },
    ),
)
"""GLM 4.5 to 4.7: ``<arg_key>`` and ``<arg_value>`` in turn."""

_CALL_BEGIN = r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>"

DEEPSEEK = OutputFormat(
    "deepseek",
    _template(
        "<｜Assistant｜>",
        thinking=_THINK,
        tool_calls={
            "open_pattern": rf"{_CALL_BEGIN}{_NAME}<｜tool▁sep｜>\s*(?=\{{)",
            "close": "<｜tool▁call▁end｜>",
            "repeats": True,
            "content": "json",
            "transform": _BODY_IS_ARGUMENTS,
        },
        tool_calls_fenced={
            "open_pattern": rf"{_CALL_BEGIN}function<｜tool▁sep｜>{_NAME}\n```json\n",
            "close": "\n```<｜tool▁call▁end｜>",
            "repeats": True,
            "content": "json",
            "transform": _BODY_IS_ARGUMENTS,
        },
    ),
    group_end="<｜tool▁calls▁end｜>",
)
"""DeepSeek V3 and R1 (a fenced block), V3.1 (bare JSON)."""

GEMMA4 = OutputFormat(
    "gemma4",
    _template(
        ["<|turn>model\n", "<tool_response|>"],
        thinking={"open": "<|channel>thought\n", "close": "<channel|>"},
        tool_calls={
            "open_pattern": rf"<\|tool_call>call:{_NAME}(?=\{{)",
            "close": "<tool_call|>",
            "repeats": True,
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            "transform": _BODY_IS_ARGUMENTS,
        },
    ),
    group_end="<|tool_response>",
)
"""Gemma 4: objects with bare keys and strings between ``<|"|>``."""

LFM2 = OutputFormat(
    "lfm2",
    _template(
        _CHATML,
        thinking=_THINK,
        tool_calls={
            "open_pattern": r"<\|tool_call_start\|>\s*(?=\[\s*[A-Za-z_])",
            "close": "<|tool_call_end|>",
            "content": "python-call-list",
            "transform_each": True,
            "transform": _EACH_IS_CALL,
        },
    ),
)
"""LFM 2 and 2.5: a list of Python calls with keyword arguments."""

GRANITE3 = OutputFormat(
    "granite3",
    _template(
        "<|start_of_role|>assistant<|end_of_role|>",
        thinking=_THINK,
        tool_calls={
            "open_pattern": rf"<\|tool_call\|>\s*{_LIST}",
            "content": "json",
            "transform_each": True,
            "transform": _EACH_IS_CALL,
        },
    ),
)
"""Granite 3: a JSON list behind ``<|tool_call|>``."""

FORMATS = {
    one.name: one
    for one in (
        HERMES,
        QWEN_XML,
        LLAMA3,
        MISTRAL,
        HARMONY,
        GLM,
        DEEPSEEK,
        GEMMA4,
        LFM2,
        GRANITE3,
        THINKING,
    )
}
"""By name."""
