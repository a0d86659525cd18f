"""Every error of the tree in both shapes."""

from typing import Any

import pytest

from mashbox import errors
from mashbox.server.failure import Family, Refused, failure_of, family_of
from mashbox.server.service import ShuttingDown


def subclasses(kind: type[Any]) -> list[type[Any]]:
    """The class and all below it, of mashbox itself."""
    ours = [sub for sub in kind.__subclasses__() if sub.__module__.startswith("mashbox.")]
    return [kind, *(deep for sub in ours for deep in subclasses(sub))]


MADE: list[tuple[BaseException, int, int]] = [
    (errors.InvalidRequest("x", param="seed"), 400, 400),
    (errors.PromptTooLong(9, 4), 400, 400),
    (errors.ModelNotFound("a", "b"), 404, 404),
    (Refused(401, "x"), 401, 401),
    (Refused(413, "x"), 413, 413),
    (errors.EngineLoading(), 503, 529),
    (ShuttingDown(), 503, 529),
    (errors.LineFull("x", 3), 429, 429),
    (errors.LineFull("x", 3, everyone=True), 429, 529),
    (errors.WorkerFault("x"), 500, 500),
    (errors.BadWeights("x"), 500, 500),
    (RuntimeError("private"), 500, 500),
]

TYPES: dict[Family, dict[int, str]] = {
    "openai": {429: "unavailable", 500: "server_error", 503: "unavailable"},
    "anthropic": {429: "overloaded_error", 500: "api_error", 529: "overloaded_error"},
}


@pytest.mark.parametrize(("error", "openai", "anthropic"), MADE, ids=lambda value: type(value).__name__)
def test_status_and_type(error: BaseException, openai: int, anthropic: int) -> None:
    families: tuple[tuple[Family, int], ...] = (("openai", openai), ("anthropic", anthropic))
    for family, status in families:
        failure = failure_of(error, family)
        assert failure.status == status
        assert failure.type == TYPES[family].get(status, "invalid_request_error")
        assert "private" not in failure.message
        waits = "retry-after" in dict(failure.headers)
        assert waits == (status in (429, 503, 529))
    anthropic_headers = dict(failure_of(error, "anthropic").headers)
    assert ("x-should-retry" in anthropic_headers) == isinstance(error, errors.EngineLoading)


def test_every_request_and_engine_error_is_in_the_list() -> None:
    listed = {type(error) for error, _, _ in MADE}
    abstract = {errors.RequestError, errors.EngineError}
    every = set(subclasses(errors.RequestError)) | set(subclasses(errors.EngineError))
    assert every - abstract <= listed


def test_bodies() -> None:
    failure = failure_of(errors.InvalidRequest("seed is odd", param="seed", code="c"))
    error = {"message": "seed is odd", "type": "invalid_request_error", "param": "seed", "code": "c"}
    assert failure.body("openai", "r") == {"error": error}
    assert failure.event("openai", "chatcmpl-1") == {"error": error, "request_id": "chatcmpl-1"}
    assert failure.body("anthropic", "r") == failure.event("anthropic", "r")
    assert failure.body("anthropic", "r") == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "seed is odd"},
        "request_id": "r",
    }


@pytest.mark.parametrize(
    ("path", "family"),
    [
        ("/v1/messages", "anthropic"),
        ("/v1/messages/", "anthropic"),
        ("//v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/v1/messagesx", "openai"),
        ("/v1/chat/completions", "openai"),
        ("/", "openai"),
    ],
)
def test_families(path: str, family: str) -> None:
    assert family_of(path) == family
