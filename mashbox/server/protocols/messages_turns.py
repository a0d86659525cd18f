"""Blocks of Anthropic's Messages as the turns of a chat template.

Messages of one role that follow each other are one turn, as Anthropic's API joins them, except that a tool's
result is a turn of its own. Inside a turn text blocks are joined by line breaks, so that a text sent as a
string and the same text sent as a block make the same prompt.
"""

from typing import Any

from mashbox.server.body import invalid
from mashbox.server.protocols.common import joined
from mashbox.server.protocols.conversation import arguments_of, left_out

SYSTEM_ROLES = ("system", "developer")

BILLING = "x-anthropic-billing-header:"
"""Begins a line that Claude Code puts into its system blocks: a header with a nonce, not prompt text."""

_BETWEEN = {"system": "\n\n"}
"""What stands between a turn's texts, where it is not a line break."""


def system_text(content: str | list[Any] | None, at: str) -> str:
    """A system prompt's text without the client's billing header. ``at`` is the field's path for refusals."""
    return joined((_without_billing(text) for text in _texts(content, at)), "\n")


def _without_billing(text: str) -> str:
    return text.partition("\n")[2].lstrip("\n") if text.startswith(BILLING) else text


def _texts(content: str | list[Any] | None, at: str) -> list[str]:
    """The texts of a content that may hold nothing else."""
    if isinstance(content, list):
        return [_only_text(block, f"{at}[{i}]") for i, block in enumerate(content)]
    return [content or ""]


def _only_text(block: Any, at: str) -> str:
    if _kind(block, at) != "text":
        raise _refusal(block, at)
    return _string(block, "text", at)


def _kind(block: Any, at: str) -> str:
    if not isinstance(block, dict):
        raise invalid(at, "must be an object.")
    return _string(block, "type", at)


def _string(block: dict[str, Any], name: str, at: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise invalid(f"{at}.{name}", "is missing." if value is None else "must be a string.")
    return value


def _refusal(block: dict[str, Any], at: str) -> Exception:
    kind = block["type"]
    if kind in ("image", "document", "audio", "file"):
        return invalid(at, f"of type {kind!r} is not supported: this model reads text only.")
    return invalid(f"{at}.type", f"can't be {kind!r} here.")


class _Turn:
    """A turn that is still added to. ``more`` are further fields of it."""

    def __init__(self, role: str, **more: str) -> None:
        self.role = role
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self._more = more

    def message(self) -> dict[str, Any]:
        """The turn as the template takes it."""
        message = {
            "role": self.role,
            "content": joined(self.texts, _BETWEEN.get(self.role, "\n")),
            **self._more,
        }
        if thought := joined(self.thoughts, "\n"):
            message["reasoning_content"] = thought
        return {**message, "tool_calls": self.calls} if self.calls else message


class Turns:
    """Collects messages in order; ``referenced`` are the tools that tool results have made known."""

    def __init__(self, system: str) -> None:
        self.referenced: list[str] = []
        self._system = _Turn("system")
        self._system.texts.append(system)
        self._turns: list[_Turn] = []
        self._names: dict[str, str] = {}

    def all(self) -> list[dict[str, Any]]:
        """The turns: the system prompt with the leading run of system messages, then the others in place."""
        turns = [turn.message() for turn in (self._system, *self._turns)]
        return turns if turns[0]["content"] else turns[1:]

    def add(self, role: str, content: str | list[Any], at: str) -> None:
        """One message. Raises InvalidRequest naming the field."""
        if role in SYSTEM_ROLES:
            self._add_system(system_text(content, at))
            return
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        add = self._add_to_answer if role == "assistant" else self._add_to_user
        if not blocks:
            self._turn(role)
        for i, block in enumerate(blocks):
            add(block, f"{at}[{i}]")

    def _turn(self, role: str) -> _Turn:
        """The last turn if it is of this role, else a new one."""
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def _add_system(self, text: str) -> None:
        if not self._turns:
            self._system.texts.append(text)
        elif text:
            self._turn("system").texts.append(text)

    def _add_to_user(self, block: Any, at: str) -> None:
        kind = _kind(block, at)
        if kind == "tool_result":
            self._add_result(block, at)
        elif kind == "text":
            text = _string(block, "text", at)
            # An empty text beside results must not become a turn that says nothing.
            if text or not self._turns or self._turns[-1].role != "tool":
                self._turn("user").texts.append(text)
        else:
            raise _refusal(block, at)

    def _add_to_answer(self, block: Any, at: str) -> None:
        kind, turn = _kind(block, at), self._turn("assistant")
        if kind == "text":
            turn.texts.append(_string(block, "text", at))
        elif kind == "thinking":
            turn.thoughts.append(_string(block, "thinking", at))
        elif kind == "tool_use":
            turn.calls.append(self._call(block, at))
        elif kind != "redacted_thinking":
            raise _refusal(block, at)

    def _call(self, block: dict[str, Any], at: str) -> dict[str, Any]:
        call_id, name = _string(block, "id", at), _string(block, "name", at)
        given = block.get("input")
        if not isinstance(given, str | dict):
            raise invalid(f"{at}.input", "is missing." if given is None else "must be an object.")
        self._names[call_id] = name
        arguments = arguments_of(given, f"{at}.input")
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _add_result(self, block: dict[str, Any], at: str) -> None:
        call_id = _string(block, "tool_use_id", at)
        text = self._result_text(block.get("content"), f"{at}.content")
        if block.get("is_error"):
            text = f"Error: {text}" if text else "Error"
        name = self._names.get(call_id)
        turn = _Turn("tool", tool_call_id=call_id, **({} if name is None else {"name": name}))
        turn.texts.append(text)
        self._turns.append(turn)

    def _result_text(self, content: Any, at: str) -> str:
        """A result's text; what is not text becomes a note, since a refusal would meet every later turn."""
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list):
            raise invalid(at, "must be a string or a list.")
        return joined((self._result_part(part, f"{at}[{i}]") for i, part in enumerate(content)), "\n")

    def _result_part(self, part: Any, at: str) -> str:
        kind = _kind(part, at)
        if kind == "text":
            return _string(part, "text", at)
        if kind == "tool_reference":
            name = _string(part, "tool_name", at)
            self.referenced.append(name)
            return f"[the tool {name} can be called now]"
        return left_out(kind)
