"""``/metrics``: what the server does, in Prometheus' text format, under vLLM's names with ``mashbox:``.

Names, labels, buckets and meanings are those of vLLM's ``vllm/v1/metrics/loggers.py``, so that a dashboard
made for it works after one substitution. Figures of a request are taken when it ends, from the engine's own
counts and times; while it runs, an event costs one addition. Everything here runs on the event loop.
"""

import asyncio
import itertools
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from litestar import Response, get
from litestar.datastructures import State
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from mashbox.engine.engine import Engine
from mashbox.engine.events import Finished
from mashbox.server.line import WaitingLine

PREFIX = "mashbox:"

REASONS = ("stop", "length", "abort", "error")
"""Values of ``finished_reason``. An answer that ends in tool calls is a stop, as the engine sees it."""

_FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_PER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    *(0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0),
    *(30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)

_SECONDS = {
    "time_to_first_token_seconds": ("From the arrival of a request to its first new token.", _FIRST_TOKEN_S),
    "inter_token_latency_seconds": (
        "Time between two new tokens: each token counts with the mean of its request.",
        _PER_TOKEN_S,
    ),
    "time_per_output_token_seconds": ("The older name of inter_token_latency_seconds.", _PER_TOKEN_S),
    "request_time_per_output_token_seconds": (
        "Mean time per new token after the first, once a request.",
        _PER_TOKEN_S,
    ),
    "e2e_request_latency_seconds": ("From the arrival of a request to its last token.", _REQUEST_S),
    "request_queue_time_seconds": ("Time a request waited for a slot.", _REQUEST_S),
    "request_inference_time_seconds": ("Time a request ran: reading its prompt and answering.", _REQUEST_S),
    "request_prefill_time_seconds": ("From the start of the run to the first new token.", _REQUEST_S),
    "request_decode_time_seconds": ("From the first new token to the last.", _REQUEST_S),
}
_TOKENS = {
    "request_prompt_tokens": "Prompt tokens of a request.",
    "request_prefill_kv_computed_tokens": "Prompt tokens of a request that the cache did not hold.",
    "request_generation_tokens": "New tokens of a request.",
    "request_max_num_generation_tokens": "New tokens of the longest answer to a request, which has one.",
    "request_params_max_tokens": "The limit that a request named, if it did; at most the context.",
}


def token_bounds(most: int) -> list[float]:
    """1, 2, 5, 10, 20, 50 … up to ``most``."""
    steps = (mantissa * 10**power for power in itertools.count() for mantissa in (1, 2, 5))
    return [float(step) for step in itertools.takewhile(lambda step: step <= most, steps)]


class Histogram:
    """Counts of values in buckets. prometheus-client's own can't take a value several times at once."""

    def __init__(self, about: str, bounds: Sequence[float]) -> None:
        self.about = about
        self.total = 0.0
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds and how many values are at or below each."""
        bounds = (*map(floatToGoString, self._bounds), "+Inf")
        return list(zip(bounds, itertools.accumulate(self._counts), strict=True))


class Watched:
    """One request's life. Use with ``with``: how the block is left tells how the request ended."""

    def __init__(self, metrics: "Metrics", max_tokens: int | None) -> None:
        self._metrics = metrics
        self._arrived = time.monotonic()
        self._max_tokens = max_tokens
        self._prompt_tokens: int | None = None
        self._first_s: float | None = None
        self.is_finished = False
        self.pieces = 0

    def accepted(self, prompt_tokens: int) -> None:
        """It has a place in the line. What is refused before that is no request here."""
        self._prompt_tokens = prompt_tokens
        self._metrics.live.add(self)

    def piece(self) -> None:
        """A piece of the answer is there. Until the end, pieces stand for the tokens that are not told."""
        if not self.pieces:
            self._first_s = time.monotonic() - self._arrived
            self._metrics.prompt_tokens += self._prompt_tokens or 0
        self.pieces += 1

    def finished(self, event: Finished) -> None:
        """The answer is whole."""
        self.is_finished = True
        latency_s = time.monotonic() - self._arrived
        if self._first_s is None:
            self._metrics.prompt_tokens += event.usage.prompt_tokens
        # A tool call comes whole, long after its first token, which the engine knows the time of.
        first_s = min(self._first_s or latency_s, latency_s - event.timings.predicted_ms / 1e3)
        self._metrics.count_finished(event, max(0.0, first_s), latency_s, self._max_tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metrics.live.discard(self)
        if self._prompt_tokens is not None and not self.is_finished:
            left = isinstance(error, asyncio.CancelledError)
            self._metrics.count_broken_off("abort" if left else "error", self._first_s, self.pieces)


class Metrics(Collector):
    """All figures of one server. ``exposition`` is the page; ``request`` begins the watch over a request."""

    def __init__(self, engine: Engine, line: WaitingLine) -> None:
        self._engine = engine
        self._line = line
        self._ended = dict.fromkeys(REASONS, 0)
        self._generated = self._shown_generated = 0
        self._looked_up = self._found = 0
        self.prompt_tokens = 0
        self.live: set[Watched] = set()
        bounds = token_bounds(engine.card.max_model_len)
        self.histograms = {name: Histogram(about, steps) for name, (about, steps) in _SECONDS.items()}
        self.histograms |= {name: Histogram(about, bounds) for name, about in _TOKENS.items()}
        self.histograms["request_params_n"] = Histogram(
            "Answers that a request asked for.", (1, 2, 5, 10, 20)
        )
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        """The page in the text format, version 0.0.4."""
        return generate_latest(self._registry)

    @property
    def generated(self) -> int:
        """New tokens until now, those of running answers too."""
        # A token can end a thought and begin a text: two pieces. A counter must not go back when that shows.
        running = self._generated + sum(watched.pieces for watched in self.live)
        self._shown_generated = max(self._shown_generated, running)
        return self._shown_generated

    @property
    def looked_up(self) -> tuple[int, int]:
        """Prompt tokens of the requests that have ended, and those of them found in the cache."""
        return self._looked_up, self._found

    def request(self, max_tokens: int | None) -> Watched:
        """Watch over a request that has just arrived; ``max_tokens`` as its client asked."""
        return Watched(self, max_tokens)

    def count_finished(
        self, event: Finished, first_s: float, latency_s: float, max_tokens: int | None
    ) -> None:
        """Take in the figures of a whole answer; ``first_s`` is its first token's time, after the arrival."""
        usage, timings, add = event.usage, event.timings, self._add
        self._ended["length" if event.reason == "length" else "stop"] += 1
        self._generated += usage.completion_tokens
        self._looked_up += usage.prompt_tokens
        self._found += usage.cached_tokens
        prefill_s, decode_s = timings.prompt_ms / 1e3, timings.predicted_ms / 1e3
        add("time_to_first_token_seconds", first_s)
        add("e2e_request_latency_seconds", latency_s)
        add("request_queue_time_seconds", timings.queue_ms / 1e3)
        add("request_prefill_time_seconds", prefill_s)
        add("request_decode_time_seconds", decode_s)
        add("request_inference_time_seconds", prefill_s + decode_s)
        add("request_prompt_tokens", usage.prompt_tokens)
        add("request_prefill_kv_computed_tokens", usage.prompt_tokens - usage.cached_tokens)
        add("request_generation_tokens", usage.completion_tokens)
        add("request_max_num_generation_tokens", usage.completion_tokens)
        add("request_params_n", 1)
        if max_tokens is not None:
            add("request_params_max_tokens", min(max_tokens, self._engine.card.max_model_len))
        after_first = usage.completion_tokens - 1
        if after_first > 0:
            per_token_s = decode_s / after_first
            add("request_time_per_output_token_seconds", per_token_s)
            add("inter_token_latency_seconds", per_token_s, after_first)
            add("time_per_output_token_seconds", per_token_s, after_first)

    def count_broken_off(self, reason: str, first_s: float | None, pieces: int) -> None:
        """An answer ended before its end: its client left (abort), or it failed (error)."""
        self._ended[reason] += 1
        self._generated += pieces
        if first_s is not None:
            self._add("time_to_first_token_seconds", first_s)

    def _add(self, name: str, value: float, times: int = 1) -> None:
        self.histograms[name].add(value, times)

    def collect(self) -> Iterable[Metric]:
        """Every family, for prometheus-client."""
        model = self._engine.card.id
        yield from self._gauges(model)
        yield from self._host_cache()
        yield self._cache_config()
        yield from self._counters(model)
        for name, histogram in self.histograms.items():
            family = HistogramMetricFamily(PREFIX + name, histogram.about, labels=["model_name"])
            family.add_metric([model], histogram.buckets(), histogram.total)
            yield family

    def _gauges(self, model: str) -> Iterator[Metric]:
        status, slots = self._engine.status(), self._line.slots
        for name, about, value in (
            ("num_requests_running", "Requests that have a slot.", self._line.running),
            ("num_requests_waiting", "Requests that wait for a slot.", self._line.waiting),
            (
                "kv_cache_usage_perc",
                "Share of the slots that hold a running request, 0 to 1.",
                min(1.0, status.live_rows / slots),
            ),
        ):
            family = GaugeMetricFamily(PREFIX + name, about, labels=["model_name"])
            family.add_metric([model], value)
            yield family
        compiled = GaugeMetricFamily(
            f"{PREFIX}programs_compiled_after_ready",
            "Programs compiled since the server was ready, over all workers; no sample while unknown.",
        )
        if status.compiles_after_ready is not None:
            compiled.add_metric([], status.compiles_after_ready)
        yield compiled

    def _host_cache(self) -> Iterator[Metric]:
        status = self._engine.status()
        for name, about, value in (
            ("host_cache_bytes", "Bytes of the prompts kept in main memory.", status.host_cache_bytes),
            ("snapshot_bytes", "Bytes of the saved states beside them.", status.snapshot_bytes),
            (
                "host_cache_cap_bytes",
                "The most bytes that are kept in main memory.",
                self._engine.card.cache_ram_mib << 20,
            ),
        ):
            yield GaugeMetricFamily(PREFIX + name, about, value=value)
        about = "Kept prompts that had to go to stay within the cap."
        yield CounterMetricFamily(f"{PREFIX}host_cache_evictions", about, value=status.host_cache_evictions)

    def _cache_config(self) -> Metric:
        card = self._engine.card
        labels = {
            "block_size": str(card.max_model_len),
            "num_blocks": str(card.slots),
            "num_gpu_blocks": str(card.slots),
            "enable_prefix_caching": str(card.prefix_cache),
            "cache_ram_mib": str(card.cache_ram_mib),
        }
        about = "Layout of the cache: a block is a slot, which holds one whole context."
        family = GaugeMetricFamily(f"{PREFIX}cache_config_info", about, labels=list(labels))
        family.add_metric(list(labels.values()), 1)
        return family

    def _counters(self, model: str) -> Iterator[Metric]:
        cached = self._engine.card.prefix_cache
        for name, about, value in (
            ("prompt_tokens", "Prompt tokens, those from the cache too.", self.prompt_tokens),
            ("generation_tokens", "New tokens.", self.generated),
            (
                "prefix_cache_queries",
                "Prompt tokens looked up in the cache.",
                self._looked_up if cached else 0,
            ),
            ("prefix_cache_hits", "Prompt tokens found in the cache.", self._found if cached else 0),
            ("num_preemptions", "Running requests that were put back: none ever is.", 0),
        ):
            family = CounterMetricFamily(PREFIX + name, about, labels=["model_name"])
            family.add_metric([model], value)
            yield family
        yield from self._speculation(model)
        ended = CounterMetricFamily(
            f"{PREFIX}request_success",
            "Requests that ended, by reason.",
            labels=["model_name", "finished_reason"],
        )
        for reason, count in self._ended.items():
            ended.add_metric([model, reason], count)
        yield ended
        about = "Times the worker was started again after a fault."
        yield CounterMetricFamily(
            f"{PREFIX}worker_restarts", about, value=self._engine.status().worker_restarts
        )

    def _speculation(self, model: str) -> Iterator[Metric]:
        status = self._engine.status()
        for name, about, value in (
            ("drafts", "Runs of tokens that were guessed.", status.drafts),
            ("draft_tokens", "Tokens that were guessed.", status.drafted),
            ("accepted_tokens", "Guessed tokens that came.", sum(status.accepted)),
        ):
            family = CounterMetricFamily(f"{PREFIX}spec_decode_num_{name}", about, labels=["model_name"])
            family.add_metric([model], value)
            yield family
        family = CounterMetricFamily(
            f"{PREFIX}spec_decode_num_accepted_tokens_per_pos",
            "Guessed tokens that came, by their place in the run.",
            labels=["model_name", "position"],
        )
        for position, count in enumerate(status.accepted):
            family.add_metric([model, str(position)], count)
        yield family


# Litestar adds the charset to every text type.
_MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4.removesuffix("; charset=utf-8")


@get("/metrics")
async def metrics(state: State) -> Response[bytes]:
    """The page, while the model loads too."""
    page: Metrics = state.service.metrics
    return Response(page.exposition(), media_type=_MEDIA_TYPE)
