"""Chat messages as clients send them, turned into the shape that chat templates take."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from mashbox.errors import InvalidRequest
from mashbox.server.body import invalid
from mashbox.server.protocols.common import joined

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
SYSTEM_ROLES = ("system", "developer")
TOOL_ROLES = ("tool", "function")


class CalledFunction(msgspec.Struct):
    """``arguments`` is JSON text; an object is taken as well."""

    name: str
    arguments: str | dict[str, Any]


class MadeCall(msgspec.Struct):
    """A call that the assistant made earlier."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(msgspec.Struct):
    """One message of a conversation."""

    role: Role
    content: str | list[Any] | None = None
    tool_calls: list[MadeCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    name: str | None = None


class FunctionTool(msgspec.Struct):
    """What a function tool is called and takes."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatTool(msgspec.Struct):
    """A function tool that the model may call."""

    function: FunctionTool
    type: Literal["function"] | None = None


def left_out(kind: str) -> str:
    """What stands in a tool result for a part that is not text."""
    return f"[{kind.replace('_', ' ')} left out: this model reads text only]"


def _part_text(part: Any, at: str, *, forgiving: bool) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise invalid(at, "must be an object.")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise invalid(f"{at}.type", "must be a string." if kind is not None else "is missing.")
    field = "refusal" if kind == "refusal" else "text"
    if kind in ("text", "refusal", "input_text", "output_text"):
        text = part.get(field)
        if not isinstance(text, str):
            raise invalid(f"{at}.{field}", "must be a string.")
        return text
    if forgiving:
        return left_out(kind)
    raise invalid(at, f"of type {kind!r} is not supported: this model reads text only.")


def text_of(content: str | list[Any] | None, at: str, *, forgiving: bool = False) -> str:
    """The text of a message; parts are joined by line breaks. ``at`` is the field's path for refusals.

    ``forgiving`` (tool results): a part that is not text becomes a short note, since a refusal would
    meet every later turn of a session that replays it.
    """
    if isinstance(content, list):
        parts = (_part_text(part, f"{at}[{i}]", forgiving=forgiving) for i, part in enumerate(content))
        return joined(parts, "\n")
    return content or ""


def arguments_of(value: str | dict[str, Any], at: str) -> dict[str, Any]:
    """A call's arguments as an object; empty text and ``null`` are none. ``at`` is the field's path."""
    if isinstance(value, dict):
        return value
    try:
        decoded = msgspec.json.decode(value) if value.strip() else {}
    except (msgspec.DecodeError, RecursionError):
        raise invalid(at, "must be a JSON object as text.") from None
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        raise invalid(at, "must be a JSON object as text.")
    return decoded


def _assistant(message: ChatMessage, at: str) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": "assistant", "content": text_of(message.content, f"{at}.content")}
    if message.reasoning_content:
        turn["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": arguments_of(
                        call.function.arguments, f"{at}.tool_calls[{j}].function.arguments"
                    ),
                },
            }
            for j, call in enumerate(message.tool_calls)
        ]
    return turn


def _tool_result(message: ChatMessage, at: str, names: dict[str, str]) -> dict[str, Any]:
    turn = {"role": "tool", "content": text_of(message.content, f"{at}.content", forgiving=True)}
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    name = names.get(message.tool_call_id or "", message.name)
    if name is not None:
        turn["name"] = name
    return turn


def template_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages for the template: one system message first, which joins all of them, then the turns.

    Raises InvalidRequest naming the field: no messages, a part that is not text, bad arguments.
    """
    if not messages:
        raise InvalidRequest("messages must not be empty.", param="messages")
    system: list[str] = []
    turns: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for i, message in enumerate(messages):
        at = f"messages[{i}]"
        if message.role in SYSTEM_ROLES:
            system.append(text_of(message.content, f"{at}.content"))
        elif message.role in TOOL_ROLES:
            turns.append(_tool_result(message, at, names))
        elif message.role == "assistant":
            turns.append(_assistant(message, at))
            names |= {call.id: call.function.name for call in message.tool_calls or ()}
        else:
            turns.append({"role": "user", "content": text_of(message.content, f"{at}.content")})
    if system:
        turns.insert(0, {"role": "system", "content": joined(system, "\n\n")})
    return turns


def template_tools(tools: Sequence[ChatTool] | None) -> list[dict[str, Any]]:
    """Function tools for the template. One without parameters takes none."""
    shown = []
    for i, tool in enumerate(tools or ()):
        function = tool.function
        if not function.name:
            raise invalid(f"tools[{i}].function.name", "must not be empty.")
        described = {} if function.description is None else {"description": function.description}
        parameters = function.parameters or {"type": "object", "properties": {}}
        shown.append(
            {
                "type": "function",
                "function": {"name": function.name, **described, "parameters": parameters},
            }
        )
    return shown
