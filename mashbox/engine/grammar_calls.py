"""How each format writes one tool call, as rules of a grammar: what its parser in ``formats`` reads."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from mashbox.engine.bare_value import BareValue, bare_value

Thought = Literal["no", "may", "open"]

_ANYTHING = "/(?s:.*)/"
# Names that stand bare in a format, as its parser takes them.
_BARE_NAME = re.compile(r"[\w.-]+")
_KEY = re.compile(r"[^<>\n]+")


class Tool(NamedTuple):
    """A function that a call may name, and the schema of its arguments."""

    name: str
    schema: dict[str, Any]

    @property
    def bare_name(self) -> str:
        """The name for formats that write it unquoted. Raises ValueError when such a call can't be read."""
        if not _BARE_NAME.fullmatch(self.name):
            raise ValueError("this model's format takes letters, digits, '_', '.' and '-' in a name only")
        return self.name


class Grammar:
    """Rules as they are made; a model's markers are tokens where its vocabulary has them."""

    def __init__(self, markers: Mapping[str, int]) -> None:
        self._markers = markers
        self._rules: list[str] = []
        self._terminals: dict[str, str] = {}

    def has(self, marker: str) -> bool:
        """Whether the marker is a token."""
        return marker in self._markers

    def rule(self, kind: str, body: str, options: str = "") -> str:
        """Add a rule; its name."""
        name = f"{kind}_{len(self._rules)}"
        self._rules.append(f"{name}{options}: {body}")
        return name

    def mark(self, marker: str) -> str:
        """The marker, as its token if it is one."""
        index = self._markers.get(marker)
        return self.text(marker) if index is None else f"<[{index}]>"

    def text(self, text: str) -> str:
        """Exactly this text, never a control token."""
        return json.dumps(text)

    def until(self, end: str, anything: str = _ANYTHING) -> str:
        """Any text up to the first ``end``, which belongs to it. ``anything`` is a terminal."""
        if self.has(end):
            return f"{self.rule('free', anything)} {self.mark(end)}"
        return self.rule("free", anything, f"[suffix={self.text(end)}]")

    def terminal(self, pattern: str, without: str) -> str:
        """The name of a terminal: text of the pattern (a regex) that holds ``without`` nowhere."""
        body = f"/{pattern}/ & ~/(?s:.*){without.replace('/', chr(92) + '/')}(?s:.*)/"
        return self._terminals.setdefault(body, f"TEXT_{len(self._terminals)}")

    def json(self, schema: Mapping[str, Any], comma: str = ", ", colon: str = ": ") -> str:
        """JSON with one way to write the space between its parts."""
        spacing = {"whitespace_flexible": False, "item_separator": comma, "key_separator": colon}
        return self.rule("json", f"%json {json.dumps({**schema, 'x-guidance': spacing})}")

    def whole(self, start: str) -> str:
        """The grammar's text."""
        terminals = [f"{name}: {body}" for body, name in self._terminals.items()]
        return "\n".join([f"start: {start}", *self._rules, *terminals, ""])


def _write_harmony_thought(grammar: Grammar) -> list[str]:
    start = [grammar.mark("<|channel|>"), grammar.text("analysis"), grammar.mark("<|message|>")]
    return [*start, grammar.until("<|end|>"), grammar.mark("<|start|>"), grammar.text("assistant")]


def write_thought(grammar: Grammar, format: str, thought: Thought) -> str:
    """What may or must come before the call; empty for nothing. Llama 3 has no place for a thought."""
    if thought == "no" or format == "llama3":
        return ""
    if format == "harmony":
        parts = _write_harmony_thought(grammar)
    else:
        opening, closing = ("[THINK]", "[/THINK]") if format == "mistral" else ("<think>", "</think>")
        lead = [] if thought == "open" else [grammar.mark(opening)]
        # How many line ends follow differs between models.
        parts = [*lead, grammar.until(closing), '("\\n" | "\\n\\n")?']
    whole = " ".join(parts)
    return whole if thought == "open" else f"({whole})?"


def _json_call(grammar: Grammar, tool: Tool, arguments: str = "arguments") -> list[str]:
    """``{"name": "f", "arguments": {...}}``, spaced as the templates' ``tojson`` writes it."""
    head = grammar.text(f'{{"name": {json.dumps(tool.name)}, "{arguments}": ')
    return [head, grammar.json(tool.schema), grammar.text("}")]


def _hermes(grammar: Grammar, tool: Tool) -> list[str]:
    start, end = grammar.mark("<tool_call>"), grammar.mark("</tool_call>")
    return [start, grammar.text("\n"), *_json_call(grammar, tool), grammar.text("\n"), end]


def _llama3(grammar: Grammar, tool: Tool) -> list[str]:
    return _json_call(grammar, tool, "parameters")


def _mistral(grammar: Grammar, tool: Tool) -> list[str]:
    """``[TOOL_CALLS]f[ARGS]{...}`` where the vocabulary knows ``[ARGS]``, else a list of JSON calls."""
    start = grammar.mark("[TOOL_CALLS]")
    if grammar.has("[ARGS]"):
        return [start, grammar.text(tool.bare_name), grammar.mark("[ARGS]"), grammar.json(tool.schema)]
    return [start, '" "?', grammar.text("["), *_json_call(grammar, tool), grammar.text("]")]


def _granite3(grammar: Grammar, tool: Tool) -> list[str]:
    return [grammar.mark("<|tool_call|>"), grammar.text("["), *_json_call(grammar, tool), grammar.text("]")]


def _harmony(grammar: Grammar, tool: Tool) -> list[str]:
    """A message to the function on the commentary channel; ``<|call|>`` is one of the end tokens."""
    header = [grammar.mark("<|channel|>"), grammar.text(f"commentary to=functions.{tool.bare_name} ")]
    kind = [grammar.mark("<|constrain|>"), grammar.text("json"), grammar.mark("<|message|>")]
    return [*header, *kind, grammar.json(tool.schema, ",", ":"), grammar.mark("<|call|>")]


def _deepseek(grammar: Grammar, tool: Tool) -> list[str]:
    """The model takes the fenced way of V3 and R1 or the bare one of V3.1."""
    separator, arguments = grammar.mark("<｜tool▁sep｜>"), grammar.json(tool.schema)
    fence = [grammar.text(f"{tool.bare_name}\n```json\n"), arguments, grammar.text("\n```")]
    fenced = " ".join([grammar.text("function"), separator, *fence])
    bare = " ".join([grammar.text(tool.name), separator, arguments])
    start = [grammar.mark("<｜tool▁calls▁begin｜>"), grammar.mark("<｜tool▁call▁begin｜>")]
    end = [grammar.mark("<｜tool▁call▁end｜>"), grammar.mark("<｜tool▁calls▁end｜>")]
    return [*start, f"({fenced} | {bare})", *end]


class _Tags(NamedTuple):
    """Around one parameter. ``forbidden`` ends the whole call wherever it stands: no bare string may hold it.

    A string inside JSON can't be kept from holding it, or ``end``; such a call is text to the parser.
    """

    start: tuple[str, ...]
    before_end: str
    end: str
    behind: str
    forbidden: str


_QWEN_TAGS = _Tags(("<parameter={key}>\n",), "\n", "</parameter>", "\n", "</function>")
_GLM_TAGS = _Tags(
    ("<arg_key>", "{key}", "</arg_key>", "\n", "<arg_value>"), "", "</arg_value>", "\n", "</tool_call>"
)


def _qwen_xml(grammar: Grammar, tool: Tool) -> list[str]:
    start = [grammar.mark("<tool_call>"), grammar.text(f"\n<function={tool.bare_name}>\n")]
    end = [grammar.text("</function>\n"), grammar.mark("</tool_call>")]
    return [*start, *_parameters(grammar, tool, _QWEN_TAGS), *end]


def _glm(grammar: Grammar, tool: Tool) -> list[str]:
    start = [grammar.mark("<tool_call>"), grammar.text(f"{tool.bare_name}\n")]
    return [*start, *_parameters(grammar, tool, _GLM_TAGS), grammar.mark("</tool_call>")]


def _parameters(grammar: Grammar, tool: Tool, tags: _Tags) -> list[str]:
    """The parameters in the schema's order, those that aren't required optional."""
    if tool.schema.keys() & {"allOf", "anyOf", "oneOf", "$ref"}:
        raise ValueError("its parameters are not listed under properties alone")
    required = tool.schema.get("required", [])
    parts = []
    for name, schema in tool.schema.get("properties", {}).items():
        if not _KEY.fullmatch(name):
            raise ValueError(f"this model's format can't write the parameter name {name!r}")
        body = _parameter(grammar, name, bare_value(schema, tool.schema), tags)
        rule = grammar.rule("parameter", body)
        parts.append(rule if name in required else f"{rule}?")
    return parts


def _parameter(grammar: Grammar, name: str, value: BareValue, tags: _Tags) -> str:
    start = [grammar.mark(part.replace("{key}", name)) for part in tags.start]
    written = [grammar.text(word) for word in value.words]
    if value.json is not None:
        written.append(grammar.json(value.json))
    ways = (
        [f"({' | '.join(written)}) {grammar.text(tags.before_end)} {grammar.mark(tags.end)}"]
        if written
        else []
    )
    if value.free:
        ways.append(grammar.until(tags.end, grammar.terminal(value.free, tags.forbidden)))
    return " ".join([*start, f"({' | '.join(ways)})", grammar.text(tags.behind)])


CALLS: dict[str, Callable[[Grammar, Tool], list[str]]] = {
    "hermes": _hermes,
    "llama3": _llama3,
    "mistral": _mistral,
    "granite3": _granite3,
    "harmony": _harmony,
    "deepseek": _deepseek,
    "qwen-xml": _qwen_xml,
    "glm": _glm,
}
"""The parts of one call in order, by format. Raises ValueError for a tool that can't be written."""
