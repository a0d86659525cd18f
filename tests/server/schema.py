"""Holds answers to the description: each JSON document, and the data of each event of a stream."""

import functools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema

from mashbox.server.describe import description
from mashbox.server.failure import family_of

DOCUMENT = description("scripted")
COMPONENTS = DOCUMENT["components"]

ENDS_IN_DONE = ("ChatCompletionChunk", "Completion")
"""Streams of the APIs whose events have no names: they end in ``[DONE]``, or in an ``Error``."""


def check(answer: httpx.Response) -> None:
    """Hold a whole answer, its headers too, to what is described of its path and method."""
    path, method = answer.request.url.raw_path.decode().partition("?")[0], answer.request.method
    check_response(path, method, answer.status_code, answer.content)
    assert answer.headers["x-request-id"]
    if family_of(path) == "anthropic":
        assert answer.headers["request-id"] == answer.headers["x-request-id"]
    if answer.status_code in (429, 503, 529) and method != "HEAD":
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    for name in _response(path, method, answer.status_code).get("headers", ()):
        assert name in answer.headers, f"{name} is missing"


def check_response(path: str, method: str, status: int, body: bytes | str) -> None:
    """Raise AssertionError unless the body of an answer is as described.

    What goes wrong before a path and method are known is held to the error shape of its family.
    """
    text = body if isinstance(body, str) else body.decode()
    if method == "HEAD":
        assert text == ""
        return
    content = _response(path, method, status).get("content")
    if content is None:
        assert text == ""
        return
    if text.startswith(("data:", "event:", ":")):
        _check_stream(text, _name(content["text/event-stream"]))
    elif "application/json" in content and not text.startswith("<"):
        schema = content["application/json"]["schema"]
        _check_value(json.loads(text), schema["$ref"].rpartition("/")[2] if "$ref" in schema else None)
    else:
        assert {"text/plain", "text/html", "text/css"} & set(content), f"{path} is not described so"


def _response(path: str, method: str, status: int) -> dict[str, Any]:
    """What is described of this status."""
    operations = DOCUMENT["paths"].get(_template(path), {})
    operation = operations.get(method.lower())
    if operation is None:
        if method == "HEAD":
            return {}
        unknown_model = path.startswith("/v1/models/")
        assert status in (400, 401, 403, 405) or (status == 404 and not operations) or unknown_model, status
        error = "AnthropicError" if family_of(path) == "anthropic" else "Error"
        return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{error}"}}}}
    found: dict[str, Any] | None = operation["responses"].get(str(status))
    assert found is not None, f"{method} {path} answered {status}, which is not described"
    if "$ref" in found:
        found = COMPONENTS["responses"][found["$ref"].rpartition("/")[2]]
    return found


def _template(path: str) -> str:
    path = path.removesuffix("/") or "/"
    if path.startswith("/assets/"):
        return "/assets/{name}"
    return "/v1/models/{model}" if path.startswith("/v1/models/") else path


def _name(media: dict[str, Any]) -> str:
    return str(media["schema"]["$ref"].rpartition("/")[2])


def _events(text: str) -> Iterator[tuple[str | None, str]]:
    """The name and data of each event; comments have neither."""
    assert text.endswith("\n\n"), "the last event is not ended"
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = [line.partition(": ")[::2] for line in block.split("\n") if not line.startswith(":")]
        found = dict(fields)
        assert len(found) == len(fields) and set(found) <= {"event", "data"}
        if found:
            yield found.get("event"), found["data"]


def _check_stream(text: str, schema: str) -> None:
    ended = False
    for name, data in _events(text):
        assert not ended, "an event follows the last one"
        if data == "[DONE]":
            assert schema in ENDS_IN_DONE
            ended = True
            continue
        value = json.loads(data)
        if schema in ENDS_IN_DONE:
            assert name is None
            ended = "error" in value
            _check_value(value, "Error" if ended else schema)
        else:
            assert name == value["type"]
            ended = name in ("message_stop", "response.completed", "response.incomplete", "response.failed")
            ended = ended or (name == "error" and schema == "MessageStreamEvent")
            _check_value(_completed(value), schema)
    assert ended, "the stream has no last event"


def _completed(event: dict[str, Any]) -> dict[str, Any]:
    """A failed response has the status failed: words describe it, the list of statuses lacks it."""
    if event["type"] != "response.failed":
        return event
    assert event["response"]["status"] == "failed"
    return {**event, "response": {**event["response"], "status": "incomplete"}}


@functools.cache
def _validator(schema: str) -> jsonschema.Draft202012Validator:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": COMPONENTS}
    return jsonschema.Draft202012Validator(whole)


def _check_value(value: Any, schema: str | None) -> None:
    if schema is None:
        assert isinstance(value, dict)
        return
    problems = [f"{error.json_path}: {error.message}" for error in _validator(schema).iter_errors(value)]
    problems += _undescribed(value, COMPONENTS["schemas"][schema], "$")
    assert not problems, f"not as described in {schema}: {problems}"


def _undescribed(value: Any, schema: dict[str, Any], at: str) -> Iterator[str]:
    """Fields that an answer has and the description has not, where it tells any."""
    if "$ref" in schema:
        schema = COMPONENTS["schemas"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _undescribed(item, schema["items"], f"{at}[{index}]")
    if isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            if name in schema["properties"]:
                yield from _undescribed(inner, schema["properties"][name], f"{at}.{name}")
            else:
                yield f"{at}.{name} is not described"
