"""What the routes have in common: sampling fields and limits, ids, usage and timings."""

import secrets
import uuid
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from litestar.types import Scope

from mashbox.engine.events import Timings, Usage
from mashbox.engine.request import Sampling
from mashbox.server.body import invalid

SEED_RANGE = 1 << 64

MOST_TOP_K = 1 << 31
"""A larger top_k changes nothing: no vocabulary is larger. It would not pass to the worker."""

TokenLimit = Annotated[int, msgspec.Meta(ge=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class SharedFields(msgspec.Struct, kw_only=True):
    """Fields of every route that generates. Null counts as absent in every one of them."""

    model: str | None = None
    stream: bool | None = False
    prompt_cache_key: str | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=4)] | None = 0.0
    top_p: Annotated[float, msgspec.Meta(le=1)] | None = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0)] | None = 0
    min_p: Annotated[float, msgspec.Meta(ge=0)] | None = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_sequences: list[str] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] | None = 1.0
    frequency_penalty: Penalty | None = 0.0
    presence_penalty: Penalty | None = 0.0
    n: Literal[1] | None = None


class SamplingFields(SharedFields, kw_only=True):
    """Fields of Chat Completions and Completions alike. ``merge`` has no effect."""

    merge: bool | None = True


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def random_seed() -> int:
    """A seed that survives a trip through JavaScript's numbers, so that it can be sent again."""
    return secrets.randbits(53)


def sampling_of(fields: SharedFields, seed: int) -> Sampling:
    """The sampling a body asks for; ``seed`` is any integer. Raises InvalidRequest beyond the ranges."""
    top_p, min_p = _or(fields.top_p, 1.0), _or(fields.min_p, 0.0)
    if top_p <= 0:
        raise invalid("top_p", "must be above 0 and at most 1.")
    if min_p >= 1:
        raise invalid("min_p", "must be at least 0 and below 1.")
    return Sampling(
        temperature=_or(fields.temperature, 0.0),
        top_k=min(fields.top_k or 0, MOST_TOP_K),
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=_or(fields.repetition_penalty, 1.0),
        presence_penalty=_or(fields.presence_penalty, 0.0),
        frequency_penalty=_or(fields.frequency_penalty, 0.0),
        seed=seed % SEED_RANGE,
    )


MOST_STOPS = 256
MOST_STOP_CHARACTERS = 16_384
"""Each letter of an answer is held against every stop text, beside all other answers: so there is an end."""


def limit_of(fields: SharedFields) -> int | None:
    """Most new tokens: the newer name wins. None: up to the end of the context."""
    return fields.max_tokens if fields.max_completion_tokens is None else fields.max_completion_tokens


def stops_of(fields: SharedFields) -> tuple[str, ...]:
    """Stop strings; Anthropic's name serves when OpenAI's is absent."""
    name, given = "stop", fields.stop
    if given is None:
        name, given = "stop_sequences", fields.stop_sequences
    stops = [given] if isinstance(given, str) else given or []
    if "" in stops:
        raise invalid(name, "must not hold an empty string.")
    if len(stops) > MOST_STOPS:
        raise invalid(name, f"holds {len(stops):,} texts, and at most {MOST_STOPS} are looked for.")
    if sum(map(len, stops)) > MOST_STOP_CHARACTERS:
        raise invalid(name, f"is longer than {MOST_STOP_CHARACTERS:,} characters in all.")
    return tuple(stops)


def refuse_logprobs(name: str, value: bool | int | None) -> None:
    """Log probabilities: ``true`` or any integer asks for them, ``false`` and null don't."""
    if value is not None and value is not False:
        raise invalid(name, "is not supported: this server gives no log probabilities.")


def session_of(scope: Scope, key: str | None) -> str | None:
    """The session a request belongs to: ``prompt_cache_key``, else the X-Session-Id header."""
    if key:
        return key
    for name, value in scope["headers"]:
        if name == b"x-session-id" and value:
            return value.decode("latin-1")
    return None


def tenant_of(scope: Scope) -> str:
    """The owner of the key that the boundary accepted; "" without keys."""
    return str(scope["state"].get("tenant", ""))


def new_id(prefix: str) -> str:
    """``prefix`` and 32 random hexadecimal digits."""
    return f"{prefix}{uuid.uuid4().hex}"


def _per_second(count: int, milliseconds: float) -> float | None:
    return count / (milliseconds / 1000) if count > 0 and milliseconds > 0 else None


def timings_json(usage: Usage, timings: Timings) -> dict[str, Any]:
    """The ``ChatTimings`` schema, whose fields are those of llama-server's timings block."""
    prompt_n = usage.prompt_tokens - usage.cached_tokens
    return {
        "prompt_n": prompt_n,
        "prompt_ms": timings.prompt_ms,
        "prompt_per_second": _per_second(prompt_n, timings.prompt_ms),
        "predicted_n": usage.completion_tokens,
        "predicted_ms": timings.predicted_ms,
        "predicted_per_second": _per_second(usage.completion_tokens - 1, timings.predicted_ms),
        "cache_n": usage.cached_tokens,
        "queue_ms": timings.queue_ms,
    }


def usage_json(usage: Usage) -> dict[str, Any]:
    """Prompt, new and all tokens."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def chat_usage_json(usage: Usage) -> dict[str, Any]:
    """The ``ChatUsage`` schema."""
    return usage_json(usage) | {"prompt_tokens_details": {"cached_tokens": usage.cached_tokens}}


def joined(texts: Iterable[str], between: str) -> str:
    """Texts that are not empty, with ``between`` between them."""
    return between.join(text for text in texts if text)
