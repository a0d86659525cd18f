"""Rows of logits into tokens, each row by its own request's parameters.

Every step is a function of one row alone, so a request's tokens do not depend on its batch-mates: cuts are
made at a threshold value (ties at the threshold are kept), and the one random number that draws a token
comes from (seed, position). Nothing sorts the vocabulary: a cut first finds, in a pass or two, the few tokens
among which it lies. (numpy rather than torch: a call costs a microsecond, and its passes are vectorised.)
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.request import Sampling
from mashbox.engine.worker.guide import Guide

Floats = NDArray[np.float32]

_MASK = (1 << 64) - 1
# A client's number may lie beyond these: as a float32 it would be 0 or infinity, and its row NaN.
_FLOAT32 = np.finfo(np.float32)
# Tokens that share one maximum, or one sum: the square root of a vocabulary, roughly.
_GROUP = 128
# Shares of the likeliest token's weight: what lies between two of them is sorted to find a nucleus' border.
_DEPTHS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position).

    SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) run twice, so that
    neighbouring seeds and positions are unrelated.
    """
    return (_mix(_mix(seed) ^ (position & _MASK)) >> 11) / (1 << 53)


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class RowSampler:
    """One request's way from logits to tokens: parameters, and counts where a penalty needs them.

    A ``guide`` forbids tokens after the penalties and before all else, so that none of them can be drawn,
    greedily or not, and the cuts of top_k, top_p and min_p are made among the allowed ones.
    """

    def __init__(
        self, sampling: Sampling, prompt: Sequence[int], vocab_size: int, guide: Guide | None = None
    ) -> None:
        self.sampling = sampling
        self.guide = guide
        self.position = 0
        self._seen = self._counts = None
        if sampling.repetition_penalty != 1.0:
            self._seen = _Tally(vocab_size)
            for token in prompt:
                self._seen.add(token)
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._counts = _Tally(vocab_size)

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature == 0.0 or self.sampling.top_k == 1

    def token(self, row: Floats) -> int | None:
        """Draw the next token from ``row`` [vocab_size], which is left as it is, and take note of it.

        None, and no note, if the row holds NaN, or its largest number is infinite.
        """
        if self._seen or self._counts or self.guide:
            row = self._altered(row)
        best = int(row.argmax())  # NaN comes first
        top = float(row[best])
        if not math.isfinite(top):
            return None
        token = best if self.greedy else _draw(row, top, self.sampling, self.next_uniform())
        self.accept(token)
        return token

    def next_uniform(self) -> float:
        return uniform(self.sampling.seed, self.position)

    def penalise(self, row: Floats) -> Floats:
        """A changed copy of ``row`` (float32 [vocab_size]).

        Repetition: Keskar et al., CTRL, 2019 (section 4.1). Presence and frequency: as the OpenAI API
        describes them.
        """
        row = row.copy()
        if self._seen:
            penalty = np.float32(_in_float32(self.sampling.repetition_penalty))
            values = row[self._seen.ids]
            with np.errstate(over="ignore"):
                values = np.where(values > 0, values / penalty, values * penalty)
            row[self._seen.ids] = values.clip(_FLOAT32.min, _FLOAT32.max)
        if self._counts:
            penalties = self.sampling.frequency_penalty * self._counts.counts
            row[self._counts.ids] -= (penalties + self.sampling.presence_penalty).astype(np.float32)
        return row

    def accept(self, token: int) -> None:
        """Note that ``token`` was produced."""
        self.position += 1
        if self.guide:
            self.guide.accept(token)
        if self._seen:
            self._seen.add(token)
        if self._counts:
            self._counts.add(token)

    def _altered(self, row: Floats) -> Floats:
        if self._seen or self._counts:
            row = self.penalise(row)
        return self.guide.mask(row) if self.guide else row


class _Tally:
    """How often each token came: of the few that did, not of the vocabulary."""

    def __init__(self, vocab_size: int) -> None:
        self._places: dict[int, int] = {}
        self._ids = np.zeros(min(64, vocab_size), np.intp)
        self._counts = np.zeros(len(self._ids))

    @property
    def ids(self) -> NDArray[np.intp]:
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> NDArray[np.float64]:
        return self._counts[: len(self._places)]

    def add(self, token: int) -> None:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids, self._counts = (
                np.concatenate([a, np.zeros_like(a)]) for a in (self._ids, self._counts)
            )
        self._ids[place] = token
        self._counts[place] += 1


def _in_float32(positive: float) -> float:
    return min(max(positive, float(_FLOAT32.tiny)), float(_FLOAT32.max))


def _draw(row: Floats, top: float, sampling: Sampling, draw: float) -> int:
    """Draw after temperature, top_k, top_p and min_p, in this order; ``top`` is the row's largest number."""
    kept: NDArray[Any] | None = None
    if 0 < sampling.top_k < len(row):
        kept = np.flatnonzero(row >= _kth_largest(row, sampling.top_k))
    # The maximum is taken off first: a tiny temperature then can't overflow.
    weights = (row if kept is None else row[kept]) - np.float32(top)
    with np.errstate(over="ignore", under="ignore"):
        weights /= np.float32(_in_float32(sampling.temperature))
        np.exp(weights, out=weights)
    # The likeliest weight is 1.
    floor = max(_nucleus_floor(weights, sampling.top_p), sampling.min_p)
    if floor > 0.0:
        inner = np.flatnonzero(weights >= np.float32(floor))
        weights = weights[inner]
        kept = inner if kept is None else kept[inner]
    index = _invert(weights, draw)
    return int(index if kept is None else kept[index])


def _kth_largest(row: Floats, k: int) -> np.float32:
    """The k-th largest number. At least k lie at or above the k-th largest maximum of groups: only those are
    looked at."""
    groups = len(row) // _GROUP
    if k < groups:
        maxima = row[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
        bound = np.partition(maxima, groups - k)[groups - k]
        row = row[row >= bound]
    return np.float32(np.partition(row, len(row) - k)[len(row) - k])


def _nucleus_floor(weights: Floats, top_p: float) -> float:
    """The smallest weight in the nucleus (0 where ``top_p`` is 1); the largest weight is 1.

    Holtzman et al., The Curious Case of Neural Text Degeneration, 2020.
    """
    if top_p >= 1.0:
        return 0.0
    wanted = top_p * float(weights.sum(dtype=np.float64))
    head = weights[weights >= np.float32(_DEPTHS[0])]
    if float(head.sum(dtype=np.float64)) < wanted:
        return _reached(weights[weights < np.float32(_DEPTHS[0])], wanted - float(head.sum(dtype=np.float64)))
    for depth in _DEPTHS[1:]:
        higher = head >= np.float32(depth)
        mass = float(head[higher].sum(dtype=np.float64))
        if mass < wanted:
            return _reached(head[~higher], wanted - mass)
        head = head[higher]
    return _reached(head, wanted)


def _reached(weights: Floats, wanted: float) -> float:
    """The weight with which the sum of the largest ``weights`` (one or more) comes to ``wanted``."""
    heights = np.sort(weights)[::-1]
    place = int(heights.cumsum(dtype=np.float64).searchsorted(wanted))
    return float(heights[min(place, len(heights) - 1)])


def _invert(weights: Floats, draw: float) -> int:
    """The inverse of the distribution function, in the order of ``weights``: first the group, then in it.

    Sums are float64, which keeps small tails exact. A weight of 0 is never drawn.
    """
    groups = len(weights) // _GROUP
    start, stop, wanted = 0, len(weights), 0.0
    if groups > 1:
        sums = weights[: groups * _GROUP].reshape(groups, _GROUP).sum(axis=1, dtype=np.float32)
        rest = float(weights[groups * _GROUP :].sum(dtype=np.float64))
        heights = sums.cumsum(dtype=np.float64)
        wanted = draw * (float(heights[-1]) + rest)
        group = int(heights.searchsorted(wanted, side="right"))
        wanted -= float(heights[group - 1]) if group else 0.0
        start, stop = group * _GROUP, min((group + 1) * _GROUP, stop)
    inside = weights[start:stop].cumsum(dtype=np.float64)
    if groups <= 1:
        wanted = draw * float(inside[-1])
    # A group's sum may be rounded up: beyond its end lies its last token that has a weight.
    last = int(inside.searchsorted(inside[-1]))
    return start + min(int(inside.searchsorted(wanted, side="right")), last)
