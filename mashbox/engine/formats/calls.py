"""The text of one tool-call region, from its opening to its closing, into calls with JSON arguments.

transformers' ``ResponseParser`` parses the region and casts its arguments by the tool's schema. Added here:
what is not a call that a client could run is found out (None), and arguments stay as the model wrote them.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import regex  # type: ignore[import-untyped]

from mashbox.engine.formats.base import Region

Split = Callable[[str], list[str]] | None


class Tools:
    """The tools of a request. ``listed`` None: any name is a tool."""

    def __init__(self, listed: list[dict[str, Any]] | None) -> None:
        self.listed = listed or []
        functions = [tool.get("function", tool) for tool in self.listed]
        self._properties = {function["name"]: _properties(function) for function in functions}
        self._any = listed is None

    def know(self, name: str) -> bool:
        """Whether a call of that name can be answered."""
        return self._any or name in self._properties

    def has_type(self, name: str, key: str) -> bool:
        """Whether the tool's schema says what type the argument has."""
        schema = self._properties.get(name, {}).get(key)
        return isinstance(schema, dict) and not {"type", "anyOf", "oneOf"}.isdisjoint(schema)


def _properties(function: dict[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


class Call(msgspec.Struct, frozen=True):
    """A call of a known tool; ``arguments`` is the JSON text of an object."""

    name: str
    arguments: str


def read_calls(region: Region, raw: str, tools: Tools, split: Split = None) -> list[Call] | None:
    """The calls of a region, None when any part of it is not a valid call of a known tool."""
    calls: list[Call] = []
    for piece in split(raw) if split else [raw]:
        found = _read_piece(region, piece, tools)
        if not found:
            return None
        calls += found
    return calls or None


def _read_piece(region: Region, raw: str, tools: Tools) -> list[Call] | None:
    if region.content == "xml-inline" and not _last_one_ends(region, raw):
        return None
    try:
        value, body = _parse(region, raw, tools)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if not region.is_json or (mended := _escape_newlines(raw)) == raw:
            return None
        return _read_piece(region, mended, tools)
    if region.content == "xml-inline" and _left_over(region, body):
        return None
    written = list(_written(body)) if region.is_json else []
    calls = []
    for function in _functions(value):
        call = _call(function, tools, written, untyped=region.content == "xml-inline")
        if call is None:
            return None
        calls.append(call)
    return calls


def _parse(region: Region, raw: str, tools: Tools) -> tuple[Any, str]:
    """The region's value, and the text between its opening and closing. Raises ValueError and its like."""
    from transformers.utils.chat_parsing import ResponseParser

    parser = ResponseParser(region.alone, prefix="", tools=tools.listed)
    events = parser.feed(raw)
    message, rest = parser.finalize()
    body = "".join(event["text"] for event in events + rest if event["type"] == "region_chunk")
    if region.name not in message:
        closed = [event for event in events + rest if event["type"] == "region_close"]
        return (closed[0]["value"] if closed else None), body
    return message[region.name], body


def _functions(value: Any) -> Iterator[Any]:
    """Each function object, however deep lists and ``{"function": …}`` wrap it."""
    if isinstance(value, list):
        for item in value:
            yield from _functions(item)
    elif isinstance(value, dict) and isinstance(value.get("function"), dict | list):
        yield from _functions(value["function"])
    else:
        yield value


def _call(function: Any, tools: Tools, written: list[tuple[Any, str]], *, untyped: bool) -> Call | None:
    if not isinstance(function, dict):
        return None
    name, arguments = function.get("name"), function.get("arguments", function.get("parameters"))
    if not isinstance(name, str) or not tools.know(name):
        return None
    if isinstance(arguments, str):
        text = arguments
        arguments = _loads(text)
        return Call(name, text) if isinstance(arguments, dict) else None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return None
    if untyped:
        arguments = {
            key: value if tools.has_type(name, key) else _decoded(value) for key, value in arguments.items()
        }
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        return None
    return Call(name, next((own for value, own in written if _same(value, arguments)), text))


def _written(body: str) -> Iterator[tuple[Any, str]]:
    """Every object in the region that may be a call's arguments: its value, and its text as written."""
    try:
        items = msgspec.json.decode(body, type=list[dict[str, msgspec.Raw]] | dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return
    if isinstance(items, dict):
        yield _loads(body), body.strip()
        items = [items]
    for item in items:
        for raw in item.values():
            text = bytes(raw).decode()
            if text.startswith("{"):
                yield _loads(text), text
                yield from ((value, own) for value, own in _written(text) if own != text)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: unlike in Python, 1, 1.0 and true are three things, and order counts."""
    return json.dumps(one) == json.dumps(other)


def _loads(text: str) -> Any:
    """The JSON value of a text, None when it is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON.")


def _decoded(value: Any) -> Any:
    """An object or array written as text where the schema does not say what it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        decoded = _loads(value)
        return value if decoded is None else decoded
    return value


def _last_one_ends(region: Region, raw: str) -> bool:
    """False if the last argument's closing tag is missing.

    Such a region is no call anyway, and looking for that tag from every opening before it would take the
    square of the length: a model that runs in a loop writes thousands.
    """
    pattern = region.content_args["tag_pattern"]
    first, last = _FIRST_TAG.search(pattern), _LAST_TAG.search(pattern)
    return not first or not last or raw.rfind(first[0]) <= raw.rfind(last[0])


def _left_over(region: Region, body: str) -> bool:
    """Whether the region holds text that belongs to no argument."""
    return bool(regex.sub(region.content_args["tag_pattern"], "", body, flags=regex.DOTALL).strip())


_FIRST_TAG = regex.compile(r"\A<[\w:-]+")
_LAST_TAG = regex.compile(r"</[\w:-]+>\Z")
_STRING = regex.compile(r'"(?:[^"\\]|\\.)*+"', regex.DOTALL)
_CONTROL = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


def _escape_newlines(raw: str) -> str:
    """Line ends and tabs inside JSON strings escaped; small models forget that."""
    return str(_STRING.sub(lambda match: match[0].translate(_CONTROL), raw))
