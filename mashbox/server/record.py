"""The line that a request leaves in the log: who asked for what, how it went, how long it took.

Nothing of what a client wrote stands in it but the session's tag: no prompt, no key, no path that is not a
route's, no message of an error (which could quote the prompt).
"""

import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec

from mashbox.engine.events import Finished
from mashbox.engine.request import Request

if TYPE_CHECKING:
    from litestar.types import Scope

log = logging.getLogger("mashbox.request")

MOST_SESSION = 80
"""Characters of a session's tag that are shown."""


class Record(msgspec.Struct, kw_only=True):
    """What is known of one request. Durations are in milliseconds, ``seed`` is the one that was used.

    ``finish`` is the answer's reason to end, or ``abort`` when its client left; ``error`` the kind of
    failure. What does not apply is None.
    """

    request_id: str
    method: str
    route: str
    status: int | None = None
    id: str | None = None
    tenant: str | None = None
    session: str | None = None
    stream: bool | None = None
    seed: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    new_tokens: int | None = None
    queue_ms: float | None = None
    prompt_ms: float | None = None
    predicted_ms: float | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    total_ms: float | None = None
    finish: str | None = None
    error: str | None = None

    def asked(self, request: Request) -> None:
        """The body has become a request to the engine."""
        self.id, self.seed, self.stream = request.id, request.sampling.seed, not request.held
        self.session = request.session[:MOST_SESSION] if request.session else None

    def finished(self, event: Finished) -> None:
        """The answer is whole."""
        self.finish = event.reason
        self.prompt_tokens = event.usage.prompt_tokens
        self.cached_tokens = event.usage.cached_tokens
        self.new_tokens = event.usage.completion_tokens
        self.queue_ms = event.timings.queue_ms
        self.prompt_ms = event.timings.prompt_ms
        self.predicted_ms = event.timings.predicted_ms
        if event.timings.drafted:
            self.drafted_tokens, self.accepted_tokens = event.timings.drafted, event.timings.accepted

    def failed(self, error: BaseException) -> None:
        """The request ends with an error."""
        self.error = type(error).__name__

    def write(self, began: float) -> None:
        """Log the request, which came at ``began`` of the monotonic clock. What only looks and is served is
        for the debug level: probes and scrapers would drown the rest."""
        self.total_ms = (time.monotonic() - began) * 1000
        if self.id is not None and self.finish is None and self.error is None:
            self.finish = "abort"
        looks = self.method != "POST" and (self.status is None or self.status < 400 or self.status == 503)
        log.log(logging.DEBUG if looks else logging.INFO, self)

    def fields(self) -> dict[str, Any]:
        """What is known, in order; times to the tenth of a millisecond."""
        known = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: round(value, 1) if isinstance(value, float) else value
            for name, value in known.items()
            if value is not None
        }

    def brief(self) -> str:
        """``POST /route 200 34+12 tokens · 30 cached · 61.2/s · 0.23 s``, and what is out of the ordinary."""
        parts = [f"{self.method} {self.route} {self.status or '-'}"]
        if self.new_tokens is not None:
            parts[0] += f" {self.prompt_tokens}+{self.new_tokens} tokens"
            if self.cached_tokens:
                parts.append(f"{self.cached_tokens} cached")
            if self.predicted_ms and self.new_tokens > 1:
                parts.append(f"{(self.new_tokens - 1) * 1e3 / self.predicted_ms:.1f}/s")
        if self.total_ms is not None:
            parts.append(f"{self.total_ms / 1e3:.2f} s")
        parts += [word for word in (self.finish, self.error, self.tenant) if word not in (None, "stop")]
        return " · ".join(map(str, parts))

    def __str__(self) -> str:
        """``POST /route 200 name=value …``; a session's tag is quoted: it can forge no field and no line."""
        fields = self.fields()
        head = [fields.pop("method"), fields.pop("route"), str(fields.pop("status", "-"))]
        if self.session is not None:
            fields["session"] = ascii(self.session)
        if self.stream is not None:
            fields["stream"] = "yes" if self.stream else "no"
        return " ".join([*head, *(f"{name}={value}" for name, value in fields.items())])


def record_of(scope: "Scope") -> Record:
    """The record of the request that is being answered; one that nobody writes outside of a server."""
    record = scope.get("state", {}).get("record")
    return record if isinstance(record, Record) else Record(request_id="", method="", route="")
