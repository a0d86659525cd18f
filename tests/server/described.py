"""JSON Schemas as flat facts, so that two of them can be compared place by place."""

from collections.abc import Mapping
from typing import Any

Facts = dict[str, dict[str, Any]]
"""Place (``messages[].role``) to what is said of it: types, enum, bounds, default, required."""

BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems")

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}


def facts(schema: Mapping[str, Any], definitions: Mapping[str, Any], at: str = "") -> Facts:
    """What a schema says of each place in a value. Null is left out: it stands for an absent field."""
    found: Facts = {at: {"required": False}}
    _gather(schema, definitions, at, found)
    return found


def _gather(schema: Mapping[str, Any], definitions: Mapping[str, Any], at: str, found: Facts) -> None:
    here = found.setdefault(at, {"required": False})
    if "$ref" in schema:
        _gather(definitions[schema["$ref"].rpartition("/")[2]], definitions, at, found)
    for alternative in schema.get("anyOf", ()):
        _gather(alternative, definitions, at, found)
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else [])
    allowed = {value for value in allowed if value is not None}
    given = schema.get("type", [])
    kinds = {given} if isinstance(given, str) else set(given)
    kinds |= {_KINDS[type(value)] for value in allowed}
    if kinds - {"null"}:
        here["types"] = here.get("types", frozenset()) | frozenset(kinds - {"null"})
    if allowed:
        here["enum"] = here.get("enum", frozenset()) | frozenset(allowed)
    here |= {name: schema[name] for name in BOUNDS if name in schema}
    if schema.get("default") is not None:
        here["default"] = schema["default"]
    for name, inner in schema.get("properties", {}).items():
        place = f"{at}.{name}".lstrip(".")
        _gather(inner, definitions, place, found)
        found[place]["required"] = name in schema.get("required", ())
    if "items" in schema:
        _gather(schema["items"], definitions, f"{at}[]", found)


def flat(value: Any, at: str = "", *, names: bool = False) -> dict[str, Any]:
    """JSON pointers to the leaves of a document, prose and examples left out.

    ``names``: the keys are names somebody chose (of paths, schemas, fields), so that none of them is prose.
    """
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            if names or key not in ("description", "summary", "example"):
                chosen = not names and key in ("properties", "paths", "schemas", "responses")
                found |= flat(inner, f"{at}/{key.replace('~', '~0').replace('/', '~1')}", names=chosen)
        return found or {at: {}}
    if isinstance(value, list):
        found = {} if value else {at: value}
        for index, inner in enumerate(value):
            found |= flat(inner, f"{at}/{index}")
        return found
    return {at: value}
