"""JSON bodies to typed structs, with refusals that name the field."""

import json
import re
from typing import Any, TypeVar

import msgspec

from mashbox.errors import InvalidRequest

T = TypeVar("T", bound=msgspec.Struct)

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]+)`$")
_GOT = re.compile(r"^Expected `(?P<want>[^`]+)`, got `(?P<got>[^`]+)`$")
_FRACTION = re.compile(r"^Expected `([a-z |]*\| )?int( \|[a-z |]*)?`, got `float`")
_VALUE = re.compile(r"^Invalid enum value (?P<value>.+)$", re.DOTALL)
_BOUND = re.compile(r"^Expected `[a-z]+` (?P<bound>[<>]=? .+)$")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_WORDS = {"int": "an integer", "float": "a number", "str": "a string", "bool": "true or false"} | {
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _worded(types: str) -> str:
    words = [_WORDS.get(part.strip(), part.strip()) for part in types.split("|")]
    return " or ".join(word for word in words if word != "null") or "null"


def invalid(param: str, what: str, remedy: str = "") -> InvalidRequest:
    """A refusal of one field: ``param`` is its path, ``what`` completes the sentence after its name."""
    return InvalidRequest(f"{param} {what}", param=param or None, remedy=remedy)


def _refusal(error: msgspec.ValidationError) -> InvalidRequest:
    """msgspec says ``Expected `int`, got `str` - at `$.messages[0].role```; say it in our words."""
    match = _AT.match(str(error))
    what, path = (match["what"], (match["path"] or "").lstrip(".")) if match else (str(error), "")
    missing = _MISSING.match(what)
    if missing:
        return invalid(f"{path}.{missing['name']}".lstrip("."), "is missing.")
    field = path or "The body"
    got, bound, value = _GOT.match(what), _BOUND.match(what), _VALUE.match(what)
    if got:
        sentence = f"must be {_worded(got['want'])}, not {_worded(got['got'])}."
    elif bound:
        sentence = f"must be {bound['bound']}."
    elif value:
        sentence = f"can't be {value['value']}."
    else:
        sentence = f"is not valid: {what}."
    return InvalidRequest(f"{field} {sentence}", param=path or None)


def _has_half_character(raw: bytes) -> bool:
    """Whether a body that msgspec refuses is JSON with half of a surrogate pair, which it calls cut short."""
    if not _HALF.search(raw):
        return False
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def parse(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body. Raises InvalidRequest: malformed, not UTF-8, too deep, a wrong type, out of range.

    A whole number written with a fraction (``100.0``) is an integer, as JSON Schema has it.
    """
    try:
        try:
            return decoder.decode(raw)
        except msgspec.ValidationError as error:
            if not _FRACTION.search(str(error)):
                raise
        body: T = msgspec.convert(_whole_numbers(msgspec.json.decode(raw)), decoder.type)
        return body
    except msgspec.ValidationError as error:
        raise _refusal(error) from None
    except msgspec.DecodeError as error:
        if _has_half_character(raw):
            raise InvalidRequest(
                "The body is not valid JSON: a string holds half a character, such as \\ud83d alone.",
                remedy="Cut texts between whole characters.",
            ) from None
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply.") from None


def _whole_numbers(value: Any) -> Any:
    """The same JSON with every float that is a whole number as an integer."""
    if isinstance(value, dict):
        return {key: _whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
