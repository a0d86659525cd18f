"""Schemas that arguments are held to: nothing widened, objects closed only where that is safe."""

from typing import Any

import pytest

from mashbox.engine.tool_schema import arguments_schema


def test_annotations_and_idle_keywords_go_but_properties_of_their_names_stay() -> None:
    schema = arguments_schema(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {
                "description": {"type": "string", "description": "d", "default": "x", "format": "password"},
                "format": {"type": "integer", "format": "int32", "title": "t"},
                "when": {"type": "string", "format": "date-time"},
                "map": {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}},
                "list": {"type": "array", "items": {"const": {"default": 1}}, "uniqueItems": False},
            },
        }
    )
    assert schema == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "description": {"type": "string"},
            "format": {"type": "integer"},
            "when": {"type": "string", "format": "date-time"},
            "map": {"type": "object", "additionalProperties": {}},
            "list": {"type": "array", "items": {"const": {"default": 1}}},
        },
        "additionalProperties": False,
    }


@pytest.mark.parametrize("keyword", [{"uniqueItems": True}, {"propertyNames": {"maxLength": 3}}, {"not": {}}])
def test_what_can_not_be_held_is_not_dropped(keyword: dict[str, Any]) -> None:
    schema = arguments_schema({"properties": {"a": keyword}})
    assert schema["properties"]["a"] == keyword


A = {"a": {"type": "object", "properties": {"b": {}}}}


@pytest.mark.parametrize(
    ("parameters", "outer", "inner"),
    [
        ({"properties": A}, True, True),
        ({"properties": A, "additionalProperties": {"type": "string"}}, False, True),
        ({"properties": A, "required": ["a", "other"]}, False, True),
        ({"properties": A, "minProperties": 2}, False, True),
        ({"properties": A, "allOf": [{"properties": {"c": {}}}]}, False, False),
        ({"properties": A, "anyOf": [{"required": ["c"]}]}, False, False),
    ],
)
def test_objects_are_closed_where_they_list_all_their_properties(
    parameters: dict[str, Any], outer: bool, inner: bool
) -> None:
    schema = arguments_schema(parameters)
    assert (schema.get("additionalProperties") is False) is outer
    assert ("additionalProperties" in schema["properties"]["a"]) is inner
    assert "type" not in parameters, "the client's own schema is left alone"


def test_no_parameters_are_an_empty_object() -> None:
    for parameters in (None, {}, {"type": "object", "properties": {}, "required": []}):
        assert arguments_schema(parameters)["additionalProperties"] is False
    assert "additionalProperties" not in arguments_schema({"patternProperties": {"^x": {}}})
    assert arguments_schema({"type": ["object", "null"]})["type"] == "object"


@pytest.mark.parametrize("parameters", [[], "object", {"type": "array"}, {"type": ["null"]}])
def test_parameters_that_are_no_object(parameters: Any) -> None:
    with pytest.raises(ValueError, match=r"type|schema"):
        arguments_schema(parameters)
