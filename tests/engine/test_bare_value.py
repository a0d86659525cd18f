"""Values without quotes: strings as words or free text, all else as JSON, nothing that could be misread."""

from typing import Any

import pytest

from mashbox.engine.bare_value import bare_value

ROOT = {"$defs": {"Text": {"type": "string"}, "Box": {"type": "object"}, "Age": {"type": "integer"}}}
NUMBER = {"type": "number"}


def with_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, **ROOT}


@pytest.mark.parametrize(
    ("schema", "words", "free", "json"),
    [
        ({"type": "string"}, (), True, None),
        ({"type": "string", "enum": ["a", "b"]}, ("a", "b"), False, None),
        ({"const": "a"}, ("a",), False, None),
        ({}, (), True, None),
        (True, (), True, None),
        ({"type": "integer"}, (), False, {"type": "integer"}),
        ({"type": ["string", "null"]}, (), True, {"type": ["null"]}),
        ({"type": ["string", "null"], "enum": ["a", None]}, ("a",), False, {"enum": [None]}),
        ({"anyOf": [{"type": "string"}, NUMBER]}, (), True, {"anyOf": [NUMBER]}),
        ({"anyOf": [NUMBER, {"type": "null"}]}, (), False, {"anyOf": [NUMBER, {"type": "null"}]}),
        ({"enum": ["a", 1, [2]]}, ("a",), False, {"enum": [[2]]}),
        ({"$ref": "#/$defs/Text"}, (), True, None),
        ({"$ref": "#/$defs/Box"}, (), False, {"$ref": "#/$defs/Box"}),
        ({"allOf": [{"$ref": "#/$defs/Box"}]}, (), False, {"allOf": [{"$ref": "#/$defs/Box"}]}),
    ],
)
def test_how_values_are_written(schema: Any, words: tuple[str, ...], free: bool, json: Any) -> None:
    value = bare_value(schema, ROOT)
    assert (value.words, bool(value.free)) == (words, free)
    assert value.json == (None if json is None else json if "enum" in json else with_definitions(json))


def test_free_text_beside_lists_and_objects_does_not_begin_like_one() -> None:
    mixed = bare_value({"type": ["string", "array"]}, {})
    assert mixed.free != bare_value({"type": "string"}, {}).free
    assert mixed.json == {"type": ["array"]}


@pytest.mark.parametrize(
    "schema", [{"enum": [1, 2]}, {"const": None}, {"$ref": "#/$defs/Age"}, {"$ref": "#/$defs/None"}]
)
def test_values_that_would_be_read_back_as_strings_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="type"):
        bare_value(schema, ROOT)
