"""Grammars of forced calls, tried on a vocabulary of single bytes: what they allow, and nothing else."""

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from mashbox.engine.events import ToolCall
from mashbox.engine.formats.families import FORMATS
from mashbox.engine.grammar import FORCIBLE, MAX_GRAMMAR, forced_call
from mashbox.engine.parse import OutputParser
from mashbox.errors import InvalidRequest
from tests.engine.letters import Letters
from tests.marks import slow_but

NUMBER_OR_LIST = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "string"}}]}
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"enum": ["C", "F"]},
        "place": {"$ref": "#/$defs/Place"},
        "tags": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "maxItems": 3},
    },
    "required": ["city", "days", "unit"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "on": {"type": "string", "format": "date"}},
            "required": ["lat"],
        }
    },
}
FULL = {
    "city": "Zür\nich",
    "days": 3,
    "unit": "C",
    "place": {"lat": 1.5, "on": "2024-02-29"},
    "tags": ["a", None],
}
MARKERS = {
    "hermes": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "llama3": ("<|eom_id|>",),
    "mistral": ("[TOOL_CALLS]", "[ARGS]"),
    "harmony": ("<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>", "<|start|>"),
    "qwen-xml": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "glm": ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    "granite3": ("<|tool_call|>",),
    "deepseek": tuple(
        f"<｜tool▁{name}｜>" for name in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")
    ),
}


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("weather", WEATHER),
    tool("now"),
    tool('say "hi"', {"properties": {"text": {"type": "string"}}}),
]


MIXED = {
    "type": "object",
    "properties": {
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
        "flag": {"type": "boolean"},
        "any": {},
        "word": {"enum": ["one", "two"]},
        "box": {"$ref": "#/$defs/Box"},
    },
    "required": ["maybe", "either", "flag", "any", "word", "box"],
    "$defs": {"Box": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3}},
}
CALLABLE = [tool("weather", WEATHER), tool("now", {"type": "object", "properties": {}}), tool("mixed", MIXED)]


class Held:
    """What a grammar allows, byte by byte."""

    def __init__(self, grammar: str, letters: Letters) -> None:
        self._letters = letters
        self._tokenizer = LLTokenizer(letters.tokenizer.to_str(), eos_token=letters.end)
        self._grammar = grammar
        # A line end in a tag keeps it out of JSON strings, where a parser would take it for a closing.
        closings = ['"', "}", "]", "\n</parameter>\n", "</arg_value>\n", *letters.markers]
        self._closings = [letters.encode(closing) for closing in closings]
        self._exponents = letters.encode("eE")
        assert not self._fresh().get_error()

    def allows(self, text: str) -> bool:
        """Whether the text is a whole answer."""
        matcher = self._fresh()
        ids = self._letters.encode(text)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_stopped()

    def wander(self, seed: int, limit: int = 4000) -> str:
        """A random answer; closings are drawn more often, so that it comes to an end."""
        draw = random.Random(seed)
        matcher, ids = self._fresh(), []
        while not matcher.is_stopped():
            closings = [
                closing for closing in self._closings if matcher.validate_tokens(closing) == len(closing)
            ]
            piece = draw.choice(closings) if closings and draw.random() < 0.4 else [self._any(matcher, draw)]
            assert matcher.consume_tokens(piece), matcher.get_error()
            ids += piece
            assert len(ids) < limit
        return self._letters.decode(ids)

    def _any(self, matcher: LLMatcher, draw: random.Random) -> int:
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
        # Numbers with an exponent may be too large for any reader.
        return int(draw.choice([token for token in allowed if token not in self._exponents] or allowed))

    def _fresh(self) -> LLMatcher:
        return LLMatcher(self._tokenizer, self._grammar, log_level=0)


def held(
    format: str, name: str | None, tools: Any = TOOLS, markers: tuple[str, ...] | None = None, **how: Any
) -> Held:
    letters = Letters(MARKERS[format] if markers is None else markers)
    return Held(forced_call(tools, name, format=format, markers=letters.markers, **how), letters)


XML = """<tool_call>
<function=weather>
<parameter=city>
Zür
ich
</parameter>
<parameter=days>
3
</parameter>
<parameter=unit>
C
</parameter>
<parameter=place>
{"lat": 1.5, "on": "2024-02-29"}
</parameter>
<parameter=tags>
["a", null]
</parameter>
</function>
</tool_call>"""
GLM = """<tool_call>weather
<arg_key>city</arg_key>
<arg_value>Zür
ich</arg_value>
<arg_key>days</arg_key>
<arg_value>3</arg_value>
<arg_key>unit</arg_key>
<arg_value>C</arg_value>
<arg_key>place</arg_key>
<arg_value>{"lat": 1.5, "on": "2024-02-29"}</arg_value>
<arg_key>tags</arg_key>
<arg_value>["a", null]</arg_value>
</tool_call>"""
ARGUMENTS = json.dumps(FULL, ensure_ascii=False)
COMPACT = json.dumps(FULL, ensure_ascii=False, separators=(",", ":"))
WRITTEN = {
    "hermes": f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>',
    "llama3": f'{{"name": "weather", "parameters": {ARGUMENTS}}}',
    "mistral": f"[TOOL_CALLS]weather[ARGS]{ARGUMENTS}",
    "harmony": "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    + COMPACT
    + "<|call|>",
    "qwen-xml": XML,
    "glm": GLM,
    "granite3": f'<|tool_call|>[{{"name": "weather", "arguments": {ARGUMENTS}}}]',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>"
    f"{ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
}


def test_every_format_is_tried() -> None:
    assert set(WRITTEN) == FORCIBLE


@pytest.mark.parametrize("format", sorted(FORCIBLE))
def test_exactly_one_call_in_the_formats_own_words(format: str) -> None:
    """No prose before it, no second call behind it, no blank that the format doesn't write."""
    named, written = held(format, "weather"), WRITTEN[format]
    assert named.allows(written)
    for wrong in (
        f"Sure: {written}",
        f"\n{written}",
        f"{written}\n",
        f"{written}{written}",
        written[:-1],
        "",
    ):
        assert not named.allows(wrong)
    assert not named.allows(written.replace("3", "8")), "over the maximum"
    assert not named.allows(written.replace('"lat"', '"let"')), "an unknown key"
    assert not named.allows(written.replace("2024-02", "2024-13")), "not a date"
    assert not named.allows(written.replace("weather", "now"))
    assert not named.allows(written.replace(": 1.5", ":  1.5").replace(":1.5", ": 1.5")), "a free blank"


@pytest.mark.parametrize("format", sorted(FORCIBLE))
def test_markers_that_are_no_tokens_are_written_as_text(format: str) -> None:
    plain = held(format, "weather", markers=())
    if format == "mistral":
        assert plain.allows(f'[TOOL_CALLS] [{{"name": "weather", "arguments": {ARGUMENTS}}}]')
        assert plain.allows(f'[TOOL_CALLS][{{"name": "weather", "arguments": {ARGUMENTS}}}]')
    else:
        assert plain.allows(WRITTEN[format])


def test_any_of_the_tools() -> None:
    either = held("hermes", None)
    assert either.allows(WRITTEN["hermes"])
    assert either.allows('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>')
    assert either.allows('<tool_call>\n{"name": "say \\"hi\\"", "arguments": {"text": "<b>"}}\n</tool_call>')
    assert not either.allows('<tool_call>\n{"name": "now", "arguments": {"text": "<b>"}}\n</tool_call>')


def test_a_control_token_in_a_string_is_never_the_token() -> None:
    quoted = WRITTEN["hermes"].replace("ich", "<think>")
    assert not held("hermes", "weather").allows(quoted)
    assert held("hermes", "weather", markers=MARKERS["hermes"][:2]).allows(quoted)


CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("markers", [MARKERS["hermes"], ()])
def test_a_thought_comes_before_the_call(markers: tuple[str, ...]) -> None:
    thought = "Maybe <tool_call\n{}</thin>\n</think>\n\n"
    for how, text, fits in (
        ("no", CALL, True),
        ("no", f"<think>{thought}{CALL}", False),
        ("may", CALL, True),
        ("may", f"<think>{thought}{CALL}", True),
        ("may", f"{thought}{CALL}", False),
        ("open", f"{thought}{CALL}", True),
        ("open", CALL, False),
        ("open", f"{thought}No call.", False),
    ):
        assert held("hermes", "now", markers=markers, thought=how).allows(text) is fits, (how, text)


def test_llama3_knows_no_thoughts() -> None:
    assert held("llama3", "now", thought="may").allows('{"name": "now", "parameters": {}}')
    assert not held("llama3", "now", thought="may").allows(
        '<think>?</think>{"name": "now", "parameters": {}}'
    )


def test_harmony_thinks_on_its_own_channel() -> None:
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
    thought = "<|channel|>analysis<|message|>Which?<|end|><|start|>assistant"
    assert held("harmony", "now", thought="may").allows(thought + call)
    assert held("harmony", "now", thought="may").allows(call)
    assert not held("harmony", "now").allows(thought + call)


@pytest.mark.parametrize("format", slow_but(["hermes", "gemma4"], sorted(FORCIBLE)))
@pytest.mark.parametrize("plain", [False, True], ids=["tokens", "text"])
def test_whatever_is_drawn_is_parsed_as_one_call_that_fits_the_schema(format: str, plain: bool) -> None:
    either = held(format, None, CALLABLE, markers=() if plain else None)
    seen = set()
    for seed in range(30):
        text = either.wander(seed)
        parser = OutputParser(FORMATS[format], tools=CALLABLE)
        pieces = [*parser.push(text), *parser.finish()]
        assert [type(piece) for piece in pieces] == [ToolCall], (text, pieces)
        (call,) = pieces
        assert isinstance(call, ToolCall)
        seen.add(call.name)
        (schema,) = (
            one["function"]["parameters"] for one in CALLABLE if one["function"]["name"] == call.name
        )
        jsonschema.validate(json.loads(call.arguments), schema)
    assert seen == {"weather", "now", "mixed"}


def test_bare_strings_are_free_up_to_the_first_tag_that_the_parser_ends_them_at() -> None:
    say = held(
        "qwen-xml", "run", [tool("run", {"properties": {"code": {"type": "string"}, "n": NUMBER_OR_LIST}})]
    )
    call = "<tool_call>\n<function=run>\n{}</function>\n</tool_call>"
    for value in ("", "\n", "\n\n\n", 'x = "</param>"\n<parameter=n>\n', "no line end"):
        assert say.allows(call.format(f"<parameter=code>\n{value}</parameter>\n"))
    assert say.allows(call.format(""))
    assert say.allows(call.format('<parameter=n>\n["x"]\n</parameter>\n'))
    assert not say.allows(call.format("<parameter=n>\nbare\n</parameter>\n"))
    for value in ("</parameter>\n", "</function>\n"):
        assert not say.allows(call.format(f"<parameter=code>\n{value}</parameter>\n"))


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
@pytest.mark.parametrize("format", ["hermes", "qwen-xml"])
def test_a_tool_without_parameters(format: str, parameters: Any) -> None:
    bare = held(format, "now", [tool("now", parameters)])
    if format == "hermes":
        assert bare.allows(CALL)
        assert not bare.allows(CALL.replace("{}", '{"a": 1}'))
    else:
        assert bare.allows("<tool_call>\n<function=now>\n</function>\n</tool_call>")


@pytest.mark.parametrize(
    ("tools", "name", "format", "param", "says"),
    [
        ([], None, "hermes", "tool_choice", "there are no tools"),
        (TOOLS, "nothing", "hermes", "tool_choice", "'nothing'"),
        (TOOLS, "now", "gemma4", "tool_choice", "gemma4"),
        ([*TOOLS, tool("f", {"type": "string"})], "f", "hermes", "tools[3].function", "'string'"),
        ([tool("f g")], None, "glm", "tools[0].function", "letters"),
        ([tool("f", {"properties": {"a>": {}}})], None, "glm", "tools[0].function", "a>"),
        ([tool("f", {"not": {}})], None, "hermes", "tools[0].function", "'f'.*not"),
        ([tool("f", [])], None, "hermes", "tools[0].function", "not a JSON schema"),
        (
            [tool("f", {"properties": {"a": {"pattern": "^(?=a)b$"}}})],
            None,
            "llama3",
            "tools[0]",
            "look-around",
        ),
        ([tool("f", {"properties": {"a": {"$ref": "http://x/"}}})], None, "llama3", "tools[0]", "http://x/"),
        (
            [tool("f", {"$ref": "#/$defs/F", "$defs": {"F": {}}})],
            None,
            "qwen-xml",
            "tools",
            "under properties",
        ),
    ],
)
def test_what_can_not_be_forced_is_refused_by_name(
    tools: Any, name: str | None, format: str, param: str, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        forced_call(tools, name, format=format, markers={})
    assert (caught.value.param or "").startswith(param)
    assert caught.value.status == 400


def test_deep_and_large_schemas_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"properties": {"a": deep}}
    with pytest.raises(InvalidRequest, match="nested"):
        forced_call([tool("f", deep)], "f", format="hermes", markers={})
    large = {"properties": {f"field_{i}": {"enum": ["x" * 50]} for i in range(MAX_GRAMMAR // 50)}}
    with pytest.raises(InvalidRequest, match="too large"):
        forced_call([tool("f", large)], "f", format="hermes", markers={})
