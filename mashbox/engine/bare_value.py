"""Values in formats that write strings without quotes: how one must look to be read back as what it is."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class BareValue(NamedTuple):
    """How a format that writes strings without quotes writes a value.

    It is one of ``words``, or any text of the pattern ``free`` (empty: none), or JSON by the schema ``json``
    (None: none). What reads it back knows from the schema's own ``type``, ``anyOf`` and ``oneOf`` whether a
    text is a string.
    """

    words: tuple[str, ...] = ()
    free: str = ""
    json: dict[str, Any] | None = None


_ANY_TEXT = "(?s:.*)"
# Where a list or object is allowed too, what begins like one would be read as one.
_NO_JSON = r"([^\s\[{](?s:.*))?"


def bare_value(schema: Any, root: Mapping[str, Any]) -> BareValue:
    """How a parameter's value is written; ``root`` holds the definitions that its schema may refer to.

    A free string's length, pattern and format aren't held to. Raises ValueError when a value of a type that
    the schema doesn't name itself could not be told from a string.
    """
    if not isinstance(schema, Mapping):
        return BareValue(free=_ANY_TEXT)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    types = _types(schema)
    shared = {key: root[key] for key in ("$schema", "$defs", "definitions") if key in root}
    if types and "string" not in types:
        return BareValue(json={**schema, **shared})
    if isinstance(values, list):
        return _one_of(values, typed=bool(types))
    if schema.keys() & {"$ref", "allOf"}:
        return _behind_reference(schema, root, shared)
    if types <= {"string"}:
        return BareValue(free=_ANY_TEXT)
    others = _without_strings(schema)
    free = _NO_JSON if types & {"object", "array"} else _ANY_TEXT
    return BareValue(free=free, json=None if others is None else {**others, **shared})


def _types(schema: Any) -> set[str]:
    """The types that the schema names, its alternatives' included."""
    if not isinstance(schema, Mapping):
        return set()
    declared = schema.get("type", [])
    types = {declared} if isinstance(declared, str) else set(declared)
    return types.union(*(_types(inner) for key in ("anyOf", "oneOf") for inner in schema.get(key, [])))


def _one_of(values: list[Any], *, typed: bool) -> BareValue:
    """Of values whose types aren't named only strings, lists and objects are read back as what they are."""
    words = tuple(value for value in values if isinstance(value, str))
    others = [value for value in values if isinstance(value, list | dict) or (typed and value not in words)]
    if not words and not others:
        raise ValueError("a parameter lists values of a type that it doesn't name")
    return BareValue(words=words, json={"enum": others} if others else None)


def _behind_reference(
    schema: Mapping[str, Any], root: Mapping[str, Any], shared: Mapping[str, Any]
) -> BareValue:
    """Like a list or object if that is what stands behind the reference, else refused."""
    reference = schema.get("$ref", schema["allOf"][0].get("$ref") if "allOf" in schema else None)
    target: Any = root
    for part in str(reference).split("/")[1:]:
        target = target.get(part) if isinstance(target, Mapping) else None
    types = _types(target)
    if types and types <= {"object", "array"}:
        return BareValue(json={**schema, **shared})
    if target is not None and isinstance(target, Mapping) and "$ref" not in target and types == {"string"}:
        return bare_value(target, root)
    raise ValueError(f"a parameter's type stands behind {reference!r}")


def _without_strings(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema less the alternatives that allow strings; None when none are left."""
    for key in ("anyOf", "oneOf"):
        if key in schema:
            left = [inner for inner in schema[key] if _types(inner) and "string" not in _types(inner)]
            return {**schema, key: left} if left else None
    return {**schema, "type": [kind for kind in schema["type"] if kind != "string"]}
