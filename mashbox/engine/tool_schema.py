"""A tool's parameters as the JSON schema that its forced arguments are held to.

What a schema says is never widened, save that ``format`` values which JSON Schema doesn't define are dropped
(it calls them annotations). It is narrowed in one place: an object that lists its properties and says nothing
of others gets no others, since a small model otherwise fills its limit with inventions.
"""

from collections.abc import Callable, Mapping
from typing import Any

# The string formats that llguidance holds text to; it refuses all others.
_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
_ANNOTATIONS = frozenset(
    (
        "description",
        "title",
        "default",
        "examples",
        "example",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    )
)
# Keywords that say nothing with these values, but that llguidance refuses with any.
_IDLE: dict[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "not": (False,),
}
_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_SINGLE = frozenset(("items", "additionalProperties", "additionalItems"))
_OBJECT_KEYS = frozenset(("properties", "patternProperties", "additionalProperties", "required"))


def arguments_schema(parameters: Any) -> dict[str, Any]:
    """The schema of a call's arguments, always of an object; ``parameters`` None or empty allow only ``{}``.

    Raises ValueError, with what is wrong, for parameters that describe no object.
    """
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise ValueError("they are not a JSON schema object")
    kind = parameters.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ValueError(f"their type is {kind!r}, not 'object'")
    try:
        schema = _tidy({**parameters, "type": "object"}, close=not _mixes(parameters))
    except RecursionError:
        raise ValueError("they are nested too deeply") from None
    assert isinstance(schema, dict)
    described = schema.keys() - {"type", "required", "properties", "$schema"}
    if not schema.get("properties") and not schema.get("required") and not described:
        schema["additionalProperties"] = False
    return schema


def _tidy(schema: Any, *, close: bool) -> Any:
    """A copy without what says nothing; with ``close``, objects that list their properties get no others."""
    if not isinstance(schema, Mapping):
        return schema
    tidied = {
        key: _inner(key, value, lambda inner: _tidy(inner, close=close))
        for key, value in schema.items()
        if not _says_nothing(key, value)
    }
    if close and _lists_all(tidied):
        tidied["additionalProperties"] = False
    return tidied


def _inner(key: str, value: Any, change: Callable[[Any], Any]) -> Any:
    """The value of a keyword with ``change`` made to each schema directly in it."""
    if key in _MAPS and isinstance(value, Mapping):
        return {name: change(inner) for name, inner in value.items()}
    if isinstance(value, list) and (key in _LISTS or key == "items"):
        return [change(inner) for inner in value]
    return change(value) if key in _SINGLE else value


def _says_nothing(key: str, value: Any) -> bool:
    if key == "format":
        return isinstance(value, str) and value not in _FORMATS
    return key in _ANNOTATIONS or any(value is idle or value == idle for idle in _IDLE.get(key, ()))


def _lists_all(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return False
    if schema.keys() & {
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "unevaluatedProperties",
    }:
        return False
    required = schema.get("required", [])
    return isinstance(required, list) and all(name in properties for name in required)


def _mixes(schema: Any) -> bool:
    """Whether an object's properties come from several places, each leaving room for the others."""
    if not isinstance(schema, Mapping):
        return False
    if "allOf" in schema or (schema.keys() & {"anyOf", "oneOf", "$ref"} and schema.keys() & _OBJECT_KEYS):
        return True
    found: list[bool] = []
    for key, value in schema.items():
        _inner(key, value, lambda inner: found.append(_mixes(inner)))
    return any(found)
