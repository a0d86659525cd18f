"""Rows of logits into tokens, each row by its own request's parameters.

Every step is a function of one row alone, so a request's tokens do not depend on its batch-mates, and the one
random number that draws a token comes from (seed, position).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.request import Sampling
from mashbox.engine.worker.draw import draw, in_float32
from mashbox.engine.worker.guide import Guide

Floats = NDArray[np.float32]

_MASK = (1 << 64) - 1
_FLOAT32 = np.finfo(np.float32)


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
        return self.sampling.greedy

    def token(self, row: Floats) -> int | None:
        """Draw the next token from ``row`` [vocab_size], which is left as it is, and take note of it.

        None, and no note, if the row holds NaN, or its largest number is infinite.
        """
        if self._seen or self._counts or self.guide:
            row = self._altered(row)
        token = draw(row, self.sampling, 0.0 if self.greedy else self.next_uniform())
        if token is not None:
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
            penalty = np.float32(in_float32(self.sampling.repetition_penalty))
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
