"""Input items of the Responses API as messages for the chat template.

An assistant's turn comes in pieces here (a thought, a message, each call); templates want it as one message.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any

from mashbox.server.body import invalid
from mashbox.server.protocols.common import joined
from mashbox.server.protocols.conversation import SYSTEM_ROLES, arguments_of, text_of
from mashbox.server.protocols.responses_tools import INPUT, Kind, Toolbox

Item = dict[str, Any]

LOCAL_SHELL = "local_shell"
TOOLS_ITEM = "additional_tools"

_CARRIED = "mashbox-text-1:"


def carry_thinking(text: str) -> str:
    """A thought as ``encrypted_content``, for clients that send nothing else of it back.

    It hides nothing from the client, who has the text anyway; other servers can't read it.
    """
    return _CARRIED + base64.b64encode(text.encode()).decode("ascii")


def _carried_thinking(value: Any) -> str:
    """The thought of :func:`carry_thinking`; "" for what another server made."""
    if not isinstance(value, str) or not value.startswith(_CARRIED):
        return ""
    try:
        return base64.b64decode(value.removeprefix(_CARRIED), validate=True).decode()
    except ValueError:
        return ""


def as_items(given: str | list[Item]) -> list[Item]:
    """The input as items; text is a user's message. Raises InvalidRequest when there is none."""
    if not given:
        raise invalid("input", "must not be empty.")
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def kind_of(item: Item, at: str) -> str:
    """An item's type. Messages may leave it out."""
    kind = item.get("type")
    if kind is None and "role" in item:
        return "message"
    if kind is None:
        raise invalid(f"{at}.type", "is missing.")
    if not isinstance(kind, str):
        raise invalid(f"{at}.type", "must be a string.")
    return kind


def template_messages(instructions: str | None, items: Sequence[Item], box: Toolbox) -> list[dict[str, Any]]:
    """Messages for the template. Raises InvalidRequest naming the field.

    ``instructions`` and the system messages that the input begins with are the system prompt; later ones
    stay in their place.
    """
    turns = _Turns(instructions, box)
    for index, item in enumerate(items):
        turns.add(item, f"input[{index}]")
    return turns.messages()


class _Turns:
    """Collects messages; ``_answer`` is the assistant's message that still grows."""

    def __init__(self, instructions: str | None, box: Toolbox) -> None:
        self._box = box
        self._system = [instructions or ""]
        self._turns: list[dict[str, Any]] = []
        self._answer: dict[str, Any] | None = None
        self._names: dict[str, str] = {}
        self._add: dict[str, Callable[[Item, str], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "local_shell_call": self._shell_call,
            "function_call_output": self._output,
            "custom_tool_call_output": self._output,
            "local_shell_call_output": self._output,
            TOOLS_ITEM: lambda item, at: None,
        }

    def add(self, item: Item, at: str) -> None:
        """Take one item in."""
        kind = kind_of(item, at)
        if kind == "item_reference":
            raise invalid(
                at, "refers to an item that is not stored here.", "Send the item itself: nothing is stored."
            )
        add = self._add.get(kind)
        if add is None:
            raise invalid(f"{at}.type", f"{kind!r} is not supported.", "Leave the item out.")
        add(item, at)

    def messages(self) -> list[dict[str, Any]]:
        """All messages, the system prompt first."""
        self._close_answer()
        if not self._turns:
            raise invalid("input", "must hold at least one message, call or result.")
        system = joined(self._system, "\n\n")
        return [{"role": "system", "content": system}, *self._turns] if system else self._turns

    def _message(self, item: Item, at: str) -> None:
        role, text = item.get("role"), _content(item, at)
        if role == "assistant":
            answer = self._open_answer()
            answer["content"] = joined([answer["content"], text], "\n\n")
        elif role == "user":
            self._append({"role": "user", "content": text})
        elif role not in SYSTEM_ROLES:
            raise invalid(f"{at}.role", "must be user, assistant, system or developer.")
        elif self._turns or self._answer is not None:
            self._append({"role": "system", "content": text})
        else:
            self._system.append(text)

    def _reasoning(self, item: Item, at: str) -> None:
        text = _thinking(item, at)
        if text:
            answer = self._open_answer()
            answer["reasoning_content"] = joined([answer.get("reasoning_content", ""), text], "\n\n")

    def _function_call(self, item: Item, at: str) -> None:
        arguments = item.get("arguments")
        if not isinstance(arguments, str | dict):
            raise _wrong(item, "arguments", at, "a string")
        self._call(item, at, "function", arguments_of(arguments, f"{at}.arguments"))

    def _custom_call(self, item: Item, at: str) -> None:
        if not isinstance(item.get(INPUT), str):
            raise _wrong(item, INPUT, at, "a string")
        self._call(item, at, "custom", {INPUT: item[INPUT]})

    def _shell_call(self, item: Item, at: str) -> None:
        action = item.get("action")
        if not isinstance(action, dict):
            raise _wrong(item, "action", at, "an object")
        given = {key: value for key, value in action.items() if key != "type" and value is not None}
        self._call({"name": LOCAL_SHELL, **item}, at, "function", given)

    def _call(self, item: Item, at: str, kind: Kind, arguments: dict[str, Any]) -> None:
        name, namespace = item.get("name"), item.get("namespace")
        if not isinstance(name, str) or not name:
            raise _wrong(item, "name", at, "a string that is not empty")
        if not isinstance(namespace, str | None):
            raise _wrong(item, "namespace", at, "a string")
        call_id = _call_id(item, at)
        shown = self._names[call_id] = self._box.shown_name(kind, namespace, name)
        calls = self._open_answer().setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": {"name": shown, "arguments": arguments}})

    def _output(self, item: Item, at: str) -> None:
        output, call_id = item.get("output"), _call_id(item, at)
        if not isinstance(output, str | list | None):
            raise _wrong(item, "output", at, "a string or a list")
        text = text_of(output, f"{at}.output", forgiving=True)
        turn = {"role": "tool", "content": text, "tool_call_id": call_id}
        if call_id in self._names:
            turn["name"] = self._names[call_id]
        self._append(turn)

    def _open_answer(self) -> dict[str, Any]:
        if self._answer is None:
            self._answer = {"role": "assistant", "content": ""}
        return self._answer

    def _close_answer(self) -> None:
        # A thought alone is left of an answer that was broken off: no template knows such a turn.
        if self._answer is not None and (self._answer["content"] or "tool_calls" in self._answer):
            self._turns.append(self._answer)
        self._answer = None

    def _append(self, turn: dict[str, Any]) -> None:
        self._close_answer()
        self._turns.append(turn)


def _content(item: Item, at: str) -> str:
    content = item.get("content")
    if not isinstance(content, str | list):
        raise _wrong(item, "content", at, "a string or a list")
    return text_of(content, f"{at}.content")


def _thinking(item: Item, at: str) -> str:
    """The thought's text, else what was carried of it, else its summary."""
    for field in ("content", "summary"):
        if not isinstance(item.get(field), list | None):
            raise _wrong(item, field, at, "a list")
    return (
        _reasoning_text(item.get("content"), f"{at}.content")
        or _carried_thinking(item.get("encrypted_content"))
        or _reasoning_text(item.get("summary"), f"{at}.summary")
    )


def _reasoning_text(parts: list[Any] | None, at: str) -> str:
    texts: list[str] = []
    for index, part in enumerate(parts or ()):
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise invalid(f"{at}[{index}].text", "must be a string.")
        texts.append(text)
    return joined(texts, "\n\n")


def _call_id(item: Item, at: str) -> str:
    """What joins a call and its result; the local shell's result has it as ``id``."""
    call_id = item.get("call_id")
    if call_id is None and kind_of(item, at).startswith(LOCAL_SHELL):
        call_id = item.get("id")
    if not isinstance(call_id, str) or not call_id:
        raise _wrong(item, "call_id", at, "a string that is not empty")
    return call_id


def _wrong(item: Item, field: str, at: str, wanted: str) -> Exception:
    return invalid(f"{at}.{field}", "is missing." if item.get(field) is None else f"must be {wanted}.")
