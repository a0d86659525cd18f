"""Tools of the Responses API as the model sees them, and the way back from its calls to the client's words.

A model knows functions with one flat name each. So a custom tool is shown as a function with one string
parameter, functions of namespaces get names that are theirs alone, and what runs on OpenAI's side (web
search and its like) is not shown at all.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from mashbox.engine.request import ForcedCall
from mashbox.server.body import invalid
from mashbox.server.protocols.common import joined
from mashbox.server.protocols.conversation import ChatTool, FunctionTool, template_tools

Kind = Literal["function", "custom"]

_KINDS: dict[str, Kind] = {"function": "function", "custom": "custom"}

INPUT = "input"
"""The one parameter of a custom tool's function."""


class ClientTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs. ``given`` is its definition as it was sent."""

    kind: Kind
    name: str
    namespace: str | None = None
    given: dict[str, Any]


class Toolbox:
    """The client's tools and the names under which the model sees them.

    A definition that comes again under the same name replaces the earlier one: sessions replay theirs.
    """

    def __init__(self, tools: Iterable[ClientTool]) -> None:
        latest = {(tool.kind, tool.namespace, tool.name): tool for tool in tools}
        self.tools: Sequence[ClientTool] = tuple(latest.values())
        self._shown = _distinct_names(self.tools)
        self._by_shown = dict(zip(self._shown, self.tools, strict=True))
        self._by_key = dict(zip(latest, self._shown, strict=True))

    def shown_name(self, kind: Kind, namespace: str | None, name: str) -> str:
        """What the model calls a tool; also one that a conversation used and that is no longer there."""
        known = self._by_key.get((kind, namespace, name))
        if known is not None:
            return known
        return _qualified(namespace, name) if namespace and name in self._by_shown else name

    def called(self, shown: str) -> ClientTool | None:
        """The tool that the model means; None when it made a name up."""
        return self._by_shown.get(shown)

    def functions(self, allowed: Sequence[ClientTool]) -> list[dict[str, Any]]:
        """The function tools for the chat template, those of ``allowed`` alone."""
        shown = [
            ChatTool(function=_function(name, tool))
            for name, tool in self._by_shown.items()
            if tool in allowed
        ]
        return template_tools(shown)


def _distinct_names(tools: Sequence[ClientTool]) -> list[str]:
    """One name a tool, its own where no other tool needs it."""
    count = Counter(tool.name for tool in tools)
    names: dict[int, str] = {}
    taken: set[str] = set()
    for index, tool in enumerate(tools):
        first = tool.namespace is None and tool.name not in taken
        if first or count[tool.name] == 1:
            names[index] = tool.name
            taken.add(tool.name)
    for index, tool in enumerate(tools):
        if index not in names:
            names[index] = _free(_qualified(tool.namespace, tool.name), taken)
            taken.add(names[index])
    return [names[index] for index in range(len(tools))]


def _qualified(namespace: str | None, name: str) -> str:
    return f"{namespace.rstrip('_')}__{name}" if namespace else name


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _function(name: str, tool: ClientTool) -> FunctionTool:
    if tool.kind == "function":
        return FunctionTool(
            name=name, description=tool.given.get("description"), parameters=tool.given.get("parameters")
        )
    parameters = {
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The whole input, as plain text."}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    texts = [tool.given.get("description") or "", _grammar_text(tool.given.get("format"))]
    return FunctionTool(name=name, description=joined(texts, "\n\n") or None, parameters=parameters)


def _grammar_text(format: Any) -> str:
    """A custom tool's grammar for the model to read: what it writes is not held to it."""
    if not isinstance(format, dict) or format.get("type") != "grammar":
        return ""
    syntax, definition = format.get("syntax") or "formal", format.get("definition") or ""
    return f"The text of {INPUT!r} must match this {syntax} grammar:\n{definition}"


def read_tools(given: Sequence[dict[str, Any]], at: str) -> list[ClientTool]:
    """The tools that the client runs; hosted ones are dropped. ``at`` is the list's path for refusals."""
    tools: list[ClientTool] = []
    for index, tool in enumerate(given):
        where = f"{at}[{index}]"
        if _text(tool, "type", where) == "namespace":
            tools += _namespace(tool, where)
        else:
            tools += _tool(tool, where, None)
    return tools


def _namespace(tool: dict[str, Any], at: str) -> list[ClientTool]:
    name = _text(tool, "name", at)
    inner = tool.get("tools")
    if not isinstance(inner, list):
        raise invalid(f"{at}.tools", "must be a list." if inner is not None else "is missing.")
    tools: list[ClientTool] = []
    for index, each in enumerate(inner):
        where = f"{at}.tools[{index}]"
        if not isinstance(each, dict):
            raise invalid(where, "must be an object.")
        tools += _tool(each, where, name)
    return tools


def _tool(tool: dict[str, Any], at: str, namespace: str | None) -> list[ClientTool]:
    kind = _text(tool, "type", at)
    if kind not in _KINDS:
        return []
    for field, wanted, words in (("description", str, "a string"), ("parameters", dict, "an object")):
        if not isinstance(tool.get(field), wanted | None):
            raise invalid(f"{at}.{field}", f"must be {words}.")
    return [ClientTool(kind=_KINDS[kind], name=_text(tool, "name", at), namespace=namespace, given=tool)]


def _text(tool: dict[str, Any], field: str, at: str) -> str:
    value = tool.get(field)
    if not isinstance(value, str) or not value:
        what = "is missing." if value is None else "must be a string that is not empty."
        raise invalid(f"{at}.{field}", what)
    return value


def choose_tools(
    choice: str | dict[str, Any] | None, box: Toolbox
) -> tuple[Sequence[ClientTool], ForcedCall | None]:
    """The tools that the model may see under this ``tool_choice``, and the call that it must make.

    Raises InvalidRequest for a choice that no tool can fulfil.
    """
    if isinstance(choice, dict):
        if choice.get("type") == "allowed_tools":
            return _allowed(choice, box)
        tool = _named(choice, box, "tool_choice")
        return box.tools, ForcedCall(name=box.shown_name(tool.kind, tool.namespace, tool.name))
    if choice == "none":
        return (), None
    return box.tools, _mode(choice or "auto", box.tools, "tool_choice")


def _mode(mode: Any, tools: Sequence[ClientTool], at: str) -> ForcedCall | None:
    if mode == "auto":
        return None
    if mode != "required":
        raise invalid(
            at,
            'takes "auto", "none", "required" or an object like {"type": "function", "name": …}.',
        )
    if not tools:
        raise invalid(at, "asks for a tool call, but there are no tools.")
    return ForcedCall()


def _allowed(choice: dict[str, Any], box: Toolbox) -> tuple[Sequence[ClientTool], ForcedCall | None]:
    entries = choice.get("tools")
    if not isinstance(entries, list):
        raise invalid("tool_choice.tools", "must be a list." if entries is not None else "is missing.")
    allowed: list[ClientTool] = []
    for index, entry in enumerate(entries):
        at = f"tool_choice.tools[{index}]"
        if not isinstance(entry, dict):
            raise invalid(at, "must be an object.")
        if entry.get("type") == "namespace":
            allowed += [tool for tool in box.tools if tool.namespace == entry.get("name")]
        elif entry.get("type") in _KINDS:
            allowed.append(_named(entry, box, at))
    return allowed, _mode(choice.get("mode") or "auto", allowed, "tool_choice.mode")


def _named(choice: dict[str, Any], box: Toolbox, at: str) -> ClientTool:
    """The tool that a choice names: ``name`` beside ``type``, or inside ``function`` as in Chat."""
    kind = _text(choice, "type", at)
    if kind not in _KINDS:
        raise invalid(at, f"of type {kind!r} can't be fulfilled: such tools are not run here.")
    inner = choice.get("function")
    name = _text(inner if isinstance(inner, dict) else choice, "name", at)
    fits = [tool for tool in box.tools if (tool.kind, tool.name) == (kind, name)]
    if "namespace" in choice:
        fits = [tool for tool in fits if tool.namespace == choice["namespace"]]
    if not fits:
        raise invalid(at, f"names the {kind} tool {name!r}, which is not in tools.")
    return min(fits, key=lambda tool: tool.namespace is not None)
