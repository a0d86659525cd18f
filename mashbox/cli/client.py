"""A client of an OpenAI-compatible server: health, models, streamed chat.

Works with any such server; what only mashbox answers (health, timings) is used where it is there.
"""

import dataclasses
import json
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import httpx

from mashbox.cli.sse import Parser
from mashbox.errors import RemoteError, Unreachable, UsageError

CONNECT_SECONDS = 5.0
SILENT_SECONDS = 600.0
"""mashbox says something every 10 s, but other servers are silent while they read a long prompt."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece of an answer as it arrives; ``kind`` tells text from thought."""

    kind: Literal["text", "thinking"]
    text: str


@dataclasses.dataclass(frozen=True)
class Call:
    """A tool call; nobody here runs it, it is shown."""

    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class End:
    """How an answer ended. Seconds are measured here; counts are the server's, None where it sent none.

    ``decode_rate`` is in tokens per second after the first: the server's own figure where there is one.
    """

    reason: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    first_seconds: float | None = None
    seconds: float = 0.0
    decode_rate: float | None = None


Answer = Piece | Call | End


@dataclasses.dataclass(frozen=True)
class Health:
    """What ``/health`` says; ``details`` is its whole body."""

    ready: bool
    details: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """One entry of ``/v1/models``, ``context`` in tokens; what the server does not tell keeps its default."""

    id: str
    context: int | None = None
    owner: str = ""
    slots: int | None = None

    @property
    def is_ours(self) -> bool:
        """A mashbox serves it: its id is one of the catalogue, and every sampling field is known there."""
        return self.owner == "mashbox-labs"


_HOST = re.compile(rb"[A-Za-z0-9._-]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%\w+)?")
"""The library takes some that no system could look up: with spaces, with one bracket."""


def base_url(text: str) -> str:
    """``host:port``, with or without http:// and /v1, as the address that routes are added to."""
    url = text.strip()
    if "://" not in url:
        url = "http://" + url
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as problem:
        raise UsageError(
            f"{text!r} is no address: {problem}.", "Write it like http://127.0.0.1:8000."
        ) from None
    port = parsed.port or 80
    if parsed.scheme not in ("http", "https") or not _HOST.fullmatch(parsed.raw_host) or port > 65_535:
        raise UsageError(f"{text!r} is no http address.", "Write it like http://127.0.0.1:8000.")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Client:
    """Asks one server. Close it, or use it in a ``with`` block."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = base_url(url)
        self.key = key
        timeout = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A proxy between a machine and itself only breaks things; other hosts may need it.
        parsed = httpx.URL(self.url)
        local = parsed.host in ("localhost", "127.0.0.1", "::1")
        # Reading the certificates takes longer than all else here, and http needs none. (A proxy may.)
        verify = not (local and parsed.scheme == "http")
        self._http = httpx.Client(timeout=timeout, headers=headers, trust_env=not local, verify=verify)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def health(self) -> Health | None:
        """What the server says of itself; None when it has no such route. Raises Unreachable."""
        response = self._get("/health")
        try:
            body = response.json()
        except ValueError:
            return None
        if not isinstance(body, dict) or body.get("status") not in ("ok", "loading"):
            return None
        return Health(ready=response.status_code == 200, details=body)

    def models(self) -> list[Model]:
        """The models that the server serves. Raises RemoteError."""
        response = self._get("/v1/models")
        if response.status_code != 200:
            raise refused(response, response.content)
        try:
            entries = response.json()["data"]
            return [
                Model(
                    str(entry["id"]),
                    entry.get("max_model_len"),
                    owner=str(entry.get("owned_by") or ""),
                    slots=entry.get("slots"),
                )
                for entry in entries
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RemoteError(f"{self.url} does not answer like an OpenAI server.", "Check --url.") from None

    def details(self, path: str) -> Mapping[str, Any]:
        """The JSON object at a path that not every server has, empty where it is not. Raises Unreachable."""
        response = self._get(path)
        try:
            body = response.json() if response.status_code == 200 else {}
        except ValueError:
            body = {}
        return body if isinstance(body, dict) else {}

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Generator[Answer, None, None]:
        """Pieces of the streamed answer, then one :class:`End`; options that are None are not sent.

        Closing the generator ends the connection, which stops the answer. Raises RemoteError.
        """
        body = {"messages": list(messages), "stream": True, "stream_options": {"include_usage": True}}
        body |= {name: value for name, value in options.items() if value is not None}
        reading = _Reading()
        try:
            with self._http.stream("POST", self.url + "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    raise refused(response, response.read())
                parser = Parser()
                for data in response.iter_bytes():
                    for event in parser.feed(data):
                        yield from reading.take(event.data)
        except httpx.RequestError as problem:
            raise self._unreachable(problem, began=reading.began) from None
        if not reading.complete:
            raise Unreachable(f"{self.url} broke off in the middle of the answer.", "Ask again.")
        yield reading.end()

    def _get(self, path: str) -> httpx.Response:
        try:
            return self._http.get(self.url + path, timeout=CONNECT_SECONDS * 2)
        except httpx.RequestError as problem:
            raise self._unreachable(problem) from None

    def _unreachable(self, problem: httpx.RequestError, *, began: bool = False) -> Unreachable:
        if began:
            return Unreachable(f"{self.url} broke off in the middle of the answer.", "Ask again.")
        if isinstance(problem, httpx.ReadTimeout):
            return Unreachable(f"{self.url} does not answer (silent for too long).", "Is it still at work?")
        return Unreachable(f"No server answers at {self.url}.", "Start one with: mashbox run")


class _Reading:
    """Folds the chunks of one stream."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._first: float | None = None
        self._last = self._start
        self._reason: str | None = None
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._calls: dict[int, Call] = {}
        self._done = False

    @property
    def began(self) -> bool:
        """Some of the answer has been seen."""
        return self._first is not None

    @property
    def complete(self) -> bool:
        return self._done or self._reason is not None

    def take(self, data: str) -> Iterator[Answer]:
        if data == "[DONE]":
            self._done = True
            return
        chunk = chunk_of(data)
        self._usage = chunk.get("usage") or self._usage
        self._timings = chunk.get("timings") or self._timings
        for choice in chunk.get("choices") or []:
            yield from self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> Iterator[Answer]:
        delta = choice.get("delta") or {}
        thought, text = delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content")
        if thought or text or delta.get("tool_calls"):
            self._last = time.monotonic()
            self._first = self._first or self._last
        if thought:
            yield Piece("thinking", thought)
        if text:
            yield Piece("text", text)
        for part in delta.get("tool_calls") or []:
            self._add_call(part)
        if choice.get("finish_reason"):
            self._reason = choice["finish_reason"]
            yield from self._calls.values()

    def _add_call(self, part: dict[str, Any]) -> None:
        index, function = part.get("index", 0), part.get("function") or {}
        old = self._calls.get(index, Call("", ""))
        self._calls[index] = Call(
            old.name + (function.get("name") or ""), old.arguments + (function.get("arguments") or "")
        )

    def end(self) -> End:
        completion = self._usage.get("completion_tokens")
        first = None if self._first is None else self._first - self._start
        span = 0.0 if self._first is None else self._last - self._first
        measured = (completion - 1) / span if completion and completion > 1 and span > 0 else None
        return End(
            reason=self._reason or "stop",
            prompt_tokens=self._usage.get("prompt_tokens"),
            completion_tokens=completion,
            cached_tokens=(self._usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            first_seconds=first,
            seconds=self._last - self._start,
            decode_rate=self._timings.get("predicted_per_second") or measured,
        )


def chunk_of(data: str) -> dict[str, Any]:
    """A chunk of a streamed answer, empty when it is no object; RemoteError for one that tells an error."""
    try:
        chunk = json.loads(data)
    except ValueError:
        raise RemoteError("The server sent a piece of the answer that is not JSON.") from None
    if not isinstance(chunk, dict):
        return {}
    if chunk.get("error"):
        raise RemoteError(error_message(chunk) or "The server failed in the middle of the answer.")
    return chunk


def error_message(body: Any) -> str:
    """The message in an error body of OpenAI's or Anthropic's shape, "" when there is none."""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def refused(response: httpx.Response, content: bytes) -> RemoteError:
    """The error for an HTTP status other than 200, in words for the user."""
    try:
        body = json.loads(content)
    except ValueError:
        body = {}
    error = body.get("error") if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    wait = _seconds(response.headers.get("retry-after"))
    again = f"Try again in {wait:g} s." if wait is not None else "Try again shortly."
    said = error_message(body) or f"The server answered {response.status_code} {response.reason_phrase}."
    remedy = ""
    match response.status_code:
        case 401:
            said, remedy = "The server wants a key.", "Give --api-key, or set MASHBOX_API_KEY."
        case 404 if not error_message(body):
            said, remedy = f"{response.url} is not there.", "Is it an OpenAI-compatible server? Check --url."
        case 429 | 503 if "again" not in said:
            remedy = again
    status = response.status_code
    return RemoteError(
        said, remedy, status=status, code=code if isinstance(code, str) else None, retry_after=wait
    )


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
