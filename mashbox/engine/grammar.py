"""Forced tool calls: the grammar that an answer is held to when ``tool_choice`` is required or names a tool.

The grammar is text in llguidance's Lark dialect (https://github.com/guidance-ai/llguidance, docs/syntax.md);
the worker compiles it and masks the logits with it. It allows exactly one call, in the words of the model's
own format, and then the end: no prose, and no white space that a small model could fill its limit with.
Arguments are JSON held to the tool's schema, their properties in the schema's order.

llguidance was chosen because it compiles in milliseconds, depends on nothing and takes the widest part of
JSON Schema; vLLM, SGLang and llama.cpp use it too.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from llguidance import LLMatcher

from mashbox.engine.tool_schema import arguments_schema, is_text
from mashbox.errors import InvalidRequest

Thought = Literal["no", "may", "open"]

MAX_GRAMMAR = 128 * 1024
"""Characters of a grammar. The worker compiles one between two steps, at about a millisecond a KiB."""


class Tool(NamedTuple):
    """A function that a call may name, and the schema of its arguments."""

    name: str
    schema: dict[str, Any]


def forced_call(
    tools: Sequence[Mapping[str, Any]],
    name: str | None,
    *,
    format: str,
    markers: Mapping[str, int],
    thought: Thought = "no",
    thought_markers: tuple[str, str] = ("<think>", "</think>"),
) -> str:
    """The grammar of one call of the tool ``name``, or of any of the tools (None), in a model's ``format``.

    ``tools`` are OpenAI function tools; ``markers`` the control tokens of the vocabulary, ids by text: a
    marker that is none of them is written as text. ``thought`` says whether a thought comes first: never, if
    the model likes (``may``), or certainly, since the prompt opened one (``open``).

    Raises InvalidRequest when the format can't be forced, the tool isn't there, or a schema holds what
    llguidance can't enforce; its message names the tool and the keyword.
    """
    write = _CALLS.get(format)
    if write is None:
        raise InvalidRequest(
            f"This model writes its tool calls in a format ({format}) that can't be forced.",
            param="tool_choice",
            remedy='Use tool_choice "auto" or "none".',
        )
    grammar = _Grammar(markers)
    calls = [grammar.rule("call", write(grammar, tool)) for tool in _chosen(tools, name)]
    lead = _harmony_thought(grammar) if format == "harmony" else _thought(grammar, thought, thought_markers)
    if thought == "may":
        lead = f"({lead})?"
    text = grammar.whole(f"{lead if thought != 'no' else ''} ({' | '.join(calls)})")
    if len(text) > MAX_GRAMMAR:
        raise InvalidRequest(
            f"The tools' schemas are too large to force a call: {len(text):,} characters of {MAX_GRAMMAR:,}.",
            param="tools",
            remedy='Name one tool in tool_choice, or use "auto".',
        )
    return text


def _chosen(tools: Sequence[Mapping[str, Any]], name: str | None) -> list[Tool]:
    functions = [(index, tool["function"]) for index, tool in enumerate(tools)]
    if name is not None:
        functions = [(index, function) for index, function in functions if function["name"] == name][:1]
    if not functions:
        lack = "there are no tools" if name is None else f"there is no tool {name!r} in tools"
        raise InvalidRequest(f"tool_choice asks for a tool call, but {lack}.", param="tool_choice")
    return [_tool(function, f"tools[{index}].function.parameters") for index, function in functions]


def _tool(function: Mapping[str, Any], where: str) -> Tool:
    name = function["name"]
    try:
        schema = arguments_schema(function.get("parameters"))
        problem = _problem(schema)
    except ValueError as error:
        problem = str(error)
    if problem:
        raise InvalidRequest(
            f"A call of the tool {name!r} can't be forced by its parameters: {problem}.",
            param=where,
            remedy='Simplify them, or use tool_choice "auto".',
        )
    return Tool(name, schema)


def _problem(schema: dict[str, Any]) -> str:
    """What llguidance can't take in the schema; empty if it takes all."""
    message = LLMatcher.validate_grammar(f"start: %json {json.dumps(schema)}")
    message = message.partition("failed to compile JSON schema: ")[2] or message
    # A drawing of the grammar's lines follows, and arrows below what an error points at.
    lines = message.partition("\n   1 | ")[0].splitlines()
    return " ".join(line.strip() for line in lines if line.strip(" ^"))


class _Grammar:
    """Rules as they are made; a model's markers are tokens where its vocabulary has them."""

    def __init__(self, markers: Mapping[str, int]) -> None:
        self._markers = markers
        self._rules: list[str] = []

    def has(self, marker: str) -> bool:
        return marker in self._markers

    def rule(self, kind: str, body: str, options: str = "") -> str:
        """Add a rule; its name."""
        name = f"{kind}_{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def mark(self, marker: str) -> str:
        index = self._markers.get(marker)
        return self.text(marker) if index is None else f"<[{index}]>"

    def text(self, text: str) -> str:
        return json.dumps(text)

    def free(self, end: str, *, marker: bool = False) -> str:
        """Any text up to the first ``end``, which belongs to it; a control token where ``marker`` says so."""
        if marker and end in self._markers:
            return f"{self.rule('free', _ANYTHING)} {self.mark(end)}"
        return self.rule("free", _ANYTHING, f"[suffix={self.text(end)}]")

    def json(self, schema: Mapping[str, Any], comma: str = ", ", colon: str = ": ") -> str:
        """JSON with one way to write the space between its parts."""
        spacing = {"whitespace_flexible": False, "item_separator": comma, "key_separator": colon}
        return self.rule("json", f"%json {json.dumps({**schema, 'x-guidance': spacing})}")

    def whole(self, start: str) -> str:
        return "\n".join([f"start: {start}", *self._rules, ""])


_ANYTHING = "/(?s:.*)/"


def _thought(grammar: _Grammar, thought: Thought, markers: tuple[str, str]) -> str:
    opening, closing = markers
    lead = "" if thought == "open" else grammar.mark(opening)
    return f"{lead} {grammar.free(closing, marker=True)} {grammar.text(chr(10) * 2)}"


def _harmony_thought(grammar: _Grammar) -> str:
    start = f"{grammar.mark('<|channel|>')} {grammar.text('analysis')} {grammar.mark('<|message|>')}"
    turn = f"{grammar.mark('<|start|>')} {grammar.text('assistant')}"
    return f"{start} {grammar.free('<|end|>', marker=True)} {turn}"


def _json_call(grammar: _Grammar, tool: Tool, arguments: str = "arguments") -> str:
    """``{"name": "f", "arguments": {...}}``, spaced as the templates' ``tojson`` writes it."""
    head = grammar.text(f'{{"name": {json.dumps(tool.name)}, "{arguments}": ')
    return f"{head} {grammar.json(tool.schema)} {grammar.text('}')}"


def _hermes(grammar: _Grammar, tool: Tool) -> str:
    """Hermes, Qwen 2.5 and 3, and the models that are told a format in the system text."""
    newline = grammar.text("\n")
    call = _json_call(grammar, tool)
    return f"{grammar.mark('<tool_call>')} {newline} {call} {newline} {grammar.mark('</tool_call>')}"


def _llama3(grammar: _Grammar, tool: Tool) -> str:
    """Llama 3.1 and later: one bare object, with ``parameters``."""
    return _json_call(grammar, tool, "parameters")


def _mistral(grammar: _Grammar, tool: Tool) -> str:
    """``[TOOL_CALLS]f[ARGS]{...}`` where the vocabulary knows ``[ARGS]``, else a list of JSON calls."""
    start = grammar.mark("[TOOL_CALLS]")
    if grammar.has("[ARGS]"):
        return f"{start} {grammar.text(tool.name)} {grammar.mark('[ARGS]')} {grammar.json(tool.schema)}"
    return f'{start} " "? "[" {_json_call(grammar, tool)} "]"'


def _harmony(grammar: _Grammar, tool: Tool) -> str:
    """gpt-oss: a message to the function on the commentary channel. ``<|call|>`` is one of its end tokens."""
    header = f"{grammar.mark('<|channel|>')} {grammar.text(f'commentary to=functions.{tool.name} ')}"
    kind = f"{grammar.mark('<|constrain|>')} {grammar.text('json')} {grammar.mark('<|message|>')}"
    return f"{header} {kind} {grammar.json(tool.schema, ',', ':')} {grammar.mark('<|call|>')}"


def _qwen_xml(grammar: _Grammar, tool: Tool) -> str:
    """Qwen3-Coder and Qwen 3.5: a parameter between tags, strings as they are, all others as JSON.

    A string is free up to its closing tag, unless ``enum`` or ``const`` list its values; its length, pattern
    and format aren't held to.
    """
    start = f"{grammar.mark('<tool_call>')} {grammar.text(f'{chr(10)}<function={tool.name}>{chr(10)}')}"
    end = f"{grammar.text(f'</function>{chr(10)}')} {grammar.mark('</tool_call>')}"
    return f"{start} {_parameters(grammar, tool)} {end}"


def _parameters(grammar: _Grammar, tool: Tool) -> str:
    """The parameters in the schema's order, those that aren't required optional."""
    if tool.schema.keys() & {"allOf", "anyOf", "oneOf", "$ref"}:
        raise InvalidRequest(
            f"A call of the tool {tool.name!r} can't be forced in this model's format: "
            "its parameters are not listed under properties alone.",
            param="tools",
            remedy='List them there, or use tool_choice "auto".',
        )
    required = tool.schema.get("required", [])
    shared: dict[str, Any] = {
        key: tool.schema[key] for key in ("$schema", "$defs", "definitions") if key in tool.schema
    }
    parts = []
    for name, schema in tool.schema.get("properties", {}).items():
        rule = grammar.rule("parameter", _parameter(grammar, name, schema, shared))
        parts.append(rule if name in required else f"{rule}?")
    return " ".join(parts)


def _parameter(grammar: _Grammar, name: str, schema: Any, shared: Mapping[str, Any]) -> str:
    start, end = grammar.text(f"<parameter={name}>\n"), "\n</parameter>\n"
    if not is_text(schema):
        if not isinstance(schema, Mapping):
            schema = {} if schema else {"not": {}}
        return f"{start} {grammar.json({**schema, **shared})} {grammar.text(end)}"
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is None:
        return f"{start} {grammar.free(end)}"
    return f"{start} ({' | '.join(grammar.text(value) for value in values)}) {grammar.text(end)}"


_CALLS: dict[str, Callable[[_Grammar, Tool], str]] = {
    "hermes": _hermes,
    "llama3": _llama3,
    "mistral": _mistral,
    "harmony": _harmony,
    "qwen-xml": _qwen_xml,
}

FORCIBLE = frozenset(_CALLS)
"""The formats that a call can be forced in."""
