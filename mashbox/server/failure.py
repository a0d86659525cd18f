"""Every failure in the words of the API that was asked: status, body and headers.

OpenAI's shape is ``{"error": {"message", "type", "param", "code"}}``; Anthropic's, on ``/v1/messages*``,
is ``{"type": "error", "error": {"type", "message"}, "request_id"}``.
"""

import logging
from typing import Any, Literal

import msgspec
from litestar.exceptions import HTTPException

from mashbox.errors import EngineError, EngineLoading, LineFull, MashboxError, PromptTooLong, RequestError

Family = Literal["openai", "anthropic"]

log = logging.getLogger("mashbox.server")


class Refused(RequestError):
    """A request that is turned away for what it is (path, method, key, origin, size), not what it says."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        remedy: str = "",
        code: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message, code=code, remedy=remedy)
        self.status = status
        self.headers = headers


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, ready to be written in either shape."""

    status: int
    message: str
    type: str
    param: str | None = None
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def body(self, family: Family, request_id: str) -> dict[str, Any]:
        """The JSON document of an error response."""
        if family == "anthropic":
            error = {"type": self.type, "message": self.message}
            return {"type": "error", "error": error, "request_id": request_id}
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def event(self, family: Family, request_id: str) -> dict[str, Any]:
        """The error event of a stream that has already begun; it names the response it ends."""
        return {**self.body(family, request_id), "request_id": request_id}


def family_of(path: str) -> Family:
    """The error shape of a path, known or not."""
    clean = "/" + path.strip("/")
    return "anthropic" if clean == "/v1/messages" or clean.startswith("/v1/messages/") else "openai"


def _type(status: int, family: Family) -> str:
    if status in (429, 503, 529):
        return "overloaded_error" if family == "anthropic" else "unavailable"
    if status >= 500:
        return "api_error" if family == "anthropic" else "server_error"
    return "invalid_request_error"


def _engine_status(error: EngineError, family: Family) -> int:
    crowded = isinstance(error, EngineLoading) or (isinstance(error, LineFull) and error.everyone)
    return 529 if family == "anthropic" and crowded else error.status


def _message(error: RequestError, family: Family) -> str:
    if family == "anthropic" and isinstance(error, PromptTooLong):
        # Claude Code reads both numbers out of this sentence and compacts its history by the difference.
        return f"prompt is too long: {error.tokens} tokens > {min(error.limit, error.tokens - 1)} maximum"
    return str(error)


def failure_of(error: BaseException, family: Family = "openai") -> Failure:
    """Turn any exception into a failure. What mashbox did not raise on purpose says nothing of its cause."""
    if isinstance(error, EngineError):
        status = _engine_status(error, family)
        headers: tuple[tuple[str, str], ...] = ()
        if error.retry_after is not None:
            headers += (("retry-after", str(error.retry_after)),)
        if family == "anthropic" and isinstance(error, EngineLoading):
            headers += (("x-should-retry", "true"),)
        return Failure(status=status, message=str(error), type=_type(status, family), headers=headers)
    if isinstance(error, RequestError):
        return Failure(
            status=error.status,
            message=_message(error, family),
            type=_type(error.status, family),
            param=error.param,
            code=error.code,
            headers=error.headers if isinstance(error, Refused) else (),
        )
    if isinstance(error, HTTPException) and error.status_code < 500:
        kept = tuple((k, v) for k, v in (error.headers or {}).items() if k.lower() == "allow")
        return Failure(
            status=error.status_code,
            message=error.detail,
            type=_type(error.status_code, family),
            headers=kept,
        )
    if not isinstance(error, MashboxError):
        log.error("a request failed unexpectedly", exc_info=error)
        return Failure(status=500, message="The server failed on this request.", type=_type(500, family))
    return Failure(status=500, message=str(error), type=_type(500, family))
