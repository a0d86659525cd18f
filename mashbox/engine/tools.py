"""Tools for models whose chat template knows none: told in the system text, called in Hermes' format.

The conversation is rewritten so that a template of plain turns can render it: the tools stand in the system
text, earlier calls in the assistant's text, their results in a user's turn. What the model then writes is
parsed with :func:`mashbox.engine.formats.with_fallback_calls`.
"""

import json
import re
from typing import Any

import msgspec

from mashbox.engine.formats import OutputFormat
from mashbox.engine.formats.families import HERMES
from mashbox.engine.request import Conversation

_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_CALLS = re.compile(r"\btool_calls\b")
_TOOLS = re.compile(r"(?<![\w.'\"])tools\b(?!\s*=[^=])")

_INTRODUCTION = """\
# Tools

You can call these functions. Each line between the tags describes one as JSON:
<tools>
{tools}
</tools>

To call a function, write its name and its arguments as one JSON object between these tags:
<tool_call>
{{"name": "the function's name", "arguments": {{"its parameter": "a value"}}}}
</tool_call>

Write one such block for each call, and nothing behind the last one. The results come in the next message \
between <tool_response> tags. Call a function only when it helps; otherwise answer in plain text."""


def needs_fallback(chat_template: str | None, format: OutputFormat | None = HERMES) -> bool:
    """Whether a model can't use tools by its chat template (the source) and the format of its answers.

    Either the template shows no tools; or it forgets the calls in the history (LFM 2, Granite 3), so that
    the model would read results of calls that it never made; or the format, as ``pick_format`` found it, has
    no calls, so that nobody could read what the model writes.
    """
    code = _CODE.findall(chat_template or "")
    shows = any(map(_TOOLS.search, code)) and any(map(_CALLS.search, code))
    return not (shows and format is not None and format.writes_calls)


def with_tools_in_system(conversation: Conversation) -> Conversation:
    """The conversation with its tools, calls and results as text; ``tools`` of the result is empty.

    A conversation that has none of them comes back as it is.
    """
    messages = _plain_turns(conversation.messages)
    if conversation.tools:
        described = "\n".join(_compact(_described(tool)) for tool in conversation.tools)
        messages = _with_system(messages, _INTRODUCTION.format(tools=described))
    return msgspec.structs.replace(conversation, messages=messages, tools=[])


def _described(tool: dict[str, Any]) -> dict[str, Any]:
    """What the model needs to know of a tool."""
    function = tool.get("function", tool)
    return {key: function[key] for key in ("name", "description", "parameters") if function.get(key)}


def _with_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The text behind the system prompt's own, or as a system prompt."""
    if messages and messages[0].get("role") in ("system", "developer"):
        first = messages[0]
        own = first.get("content") or ""
        return [{**first, "content": f"{own}\n\n{text}" if own else text}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _plain_turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls as the assistant's text; results one behind the other as one user turn."""
    turns: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        is_result = message.get("role") == "tool"
        if is_result and after_result:
            turns[-1] = {"role": "user", "content": f"{turns[-1]['content']}\n{_result(message)}"}
        elif is_result:
            turns.append({"role": "user", "content": _result(message)})
        elif message.get("tool_calls"):
            turns.append(_with_calls(message))
        else:
            turns.append(message)
        after_result = is_result
    return turns


def _result(message: dict[str, Any]) -> str:
    return f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"


def _with_calls(message: dict[str, Any]) -> dict[str, Any]:
    """An assistant's turn with its calls behind its text."""
    blocks = [message["content"]] if message.get("content") else []
    for call in message["tool_calls"]:
        function = call.get("function", call)
        arguments = function.get("arguments") or {}
        # Conversations hold objects; text that is JSON already must not be quoted once more.
        written = arguments if isinstance(arguments, str) else _compact(arguments)
        name = json.dumps(function["name"], ensure_ascii=False)
        blocks.append(f'<tool_call>\n{{"name": {name}, "arguments": {written}}}\n</tool_call>')
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": "\n".join(blocks)}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
