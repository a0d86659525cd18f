"""What a measurement gives: the shape of ``mashbox bench --json``, described in docs/bench.md.

Fields are only ever added; ``version`` changes when one changes its meaning.
"""

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

VERSION = 1


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles (nearest rank) of ``samples`` readings."""

    p50: float
    p95: float
    p99: float
    samples: int


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One server that was measured. ``counts`` tells who counted tokens: itself, or we by its pieces."""

    name: str
    url: str
    model: str | None
    own: bool
    slots: int | None
    context: int | None
    counts: str


class Decode(msgspec.Struct, frozen=True, kw_only=True):
    """``streams`` answers at a time. ``tokens_per_second`` of all together, while all were at work."""

    server: str
    streams: int
    requests: int
    prompt_tokens: int
    tokens: int
    tokens_per_second: float | None
    first_ms: Spread | None
    token_ms: Spread | None


class Prefill(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of ``tokens`` that no cache knew (save ``cached``, such as the template's own beginning)."""

    server: str
    tokens: int
    cached: int | None
    first_ms: Spread
    tokens_per_second: float


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """The same long beginning for the first and the second time; ``ratio`` is cold by warm."""

    server: str
    prompt_tokens: int
    cold_ms: float
    warm_ms: float
    ratio: float
    cached_tokens: int | None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's session, turn by turn; tokens are sums over its turns."""

    server: str
    turns: int
    seconds: float
    first_ms: Spread
    prompt_tokens: int
    cached_tokens: int | None
    tokens: int


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """How many times faster the first server was than the second, pair by pair."""

    figure: str
    median: float
    low: float
    high: float
    pairs: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. ``left_out`` says what was not measured and why; ``complete``: it came to its end."""

    version: int = VERSION
    mashbox: str
    created: str
    seed: str
    seconds: float
    complete: bool
    servers: list[Server]
    decode: list[Decode]
    prefill: list[Prefill]
    cache: list[Cache]
    session: list[Session]
    ratios: list[Ratio]
    left_out: list[str]
    notes: list[str]


def percentile(values: Sequence[float], share: float) -> float:
    """The least of ``values`` that at least ``share`` of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(seconds: Iterable[float]) -> Spread | None:
    """In milliseconds; None of nothing."""
    values = [1e3 * each for each in seconds]
    if not values:
        return None
    p50, p95, p99 = (round(percentile(values, share), 3) for share in (0.5, 0.95, 0.99))
    return Spread(p50=p50, p95=p95, p99=p99, samples=len(values))


def ratio(figure: str, pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Of (first, second), both a speed: more is better."""
    values = [round(first / second, 4) for first, second in pairs]
    return Ratio(
        figure=figure,
        median=round(statistics.median(values), 4),
        low=min(values),
        high=max(values),
        pairs=len(values),
    )
