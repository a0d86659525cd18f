"""Rows of logits into tokens, each row by its own request's parameters.

Every step is a function of one row alone, so a request's tokens do not depend on its batch-mates: cuts are
made at a threshold value (ties at the threshold are kept), and the one random number that draws a token
comes from (seed, position).
"""

from collections.abc import Sequence

import torch

from mashbox.engine.request import Sampling
from mashbox.engine.worker.guide import Guide

_MASK = (1 << 64) - 1
# How many of the most likely tokens are looked at before a whole sort is paid for.
_HEAD = 1024
# A client's number may lie beyond these: as a float32 it would be 0 or infinity, and its row NaN.
_FLOAT32 = torch.finfo(torch.float32)


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
        self._seen: torch.Tensor | None = None
        self._counts: torch.Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            self._seen = torch.zeros(vocab_size, dtype=torch.bool)
            self._seen[torch.tensor(prompt, dtype=torch.long)] = True
        if sampling.presence_penalty or sampling.frequency_penalty:
            self._counts = torch.zeros(vocab_size, dtype=torch.float32)

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature == 0.0 or self.sampling.top_k == 1

    @property
    def penalised(self) -> bool:
        return self._seen is not None or self._counts is not None

    @property
    def alters(self) -> bool:
        """Whether the row's logits are changed before anything is drawn."""
        return self.penalised or self.guide is not None

    def alter(self, row: torch.Tensor) -> torch.Tensor:
        """``row`` (float32 [vocab_size]) after penalties and guide; NaN throughout if the guide fails."""
        if self.penalised:
            row = self.penalise(row)
        return self.guide.mask(row) if self.guide else row

    def next_uniform(self) -> float:
        return uniform(self.sampling.seed, self.position)

    def penalise(self, row: torch.Tensor) -> torch.Tensor:
        """A changed copy of ``row`` (float32 [vocab_size]).

        Repetition: Keskar et al., CTRL, 2019 (section 4.1). Presence and frequency: as the OpenAI API
        describes them.
        """
        row = row.clone()
        if self._seen is not None:
            penalty = _in_float32(self.sampling.repetition_penalty)
            row = torch.where(self._seen, torch.where(row > 0, row / penalty, row * penalty), row)
            row = row.clamp(_FLOAT32.min, _FLOAT32.max)
        if self._counts is not None:
            row -= self.sampling.frequency_penalty * self._counts
            row -= self.sampling.presence_penalty * (self._counts > 0)
        return row

    def accept(self, token: int) -> None:
        """Note that ``token`` was produced."""
        self.position += 1
        if self.guide:
            self.guide.accept(token)
        if self._seen is not None:
            self._seen[token] = True
        if self._counts is not None:
            self._counts[token] += 1


def _in_float32(positive: float) -> float:
    return min(max(positive, _FLOAT32.tiny), _FLOAT32.max)


def sample(logits: torch.Tensor, rows: Sequence[RowSampler]) -> list[int | None]:
    """The next token of each row of ``logits`` (float32 [rows, vocab_size]); None where a row holds NaN.

    The rows' samplers take note of their tokens.
    """
    if any(row.alters for row in rows):
        logits = torch.stack(
            [row.alter(line) if row.alters else line for row, line in zip(rows, logits, strict=True)]
        )
    best = logits.argmax(dim=-1)
    # argmax gives NaN the first place, so one look per row finds it.
    broken = torch.isnan(logits.gather(1, best[:, None])[:, 0]).tolist()
    tokens: list[int | None] = [
        None if bad else token for bad, token in zip(broken, best.tolist(), strict=True)
    ]
    drawn = [i for i, row in enumerate(rows) if not row.greedy and not broken[i]]
    if drawn:
        picked = _draw(logits[drawn], [rows[i] for i in drawn])
        for i, draw in zip(drawn, picked, strict=True):
            tokens[i] = draw
    for row, token in zip(rows, tokens, strict=True):
        if token is not None:
            row.accept(token)
    return tokens


def _draw(logits: torch.Tensor, rows: Sequence[RowSampler]) -> list[int]:
    """Draw from each row after temperature, top_k, top_p and min_p, in this order."""
    settings = [row.sampling for row in rows]
    # The maximum is taken off first: a tiny temperature then can't overflow.
    logits = logits - logits.max(dim=-1, keepdim=True).values
    logits = logits / torch.tensor([[_in_float32(s.temperature)] for s in settings])
    if any(s.top_k for s in settings):
        logits = _keep_top_k(logits, [s.top_k for s in settings])
    weights = torch.softmax(logits, dim=-1)
    floor = _nucleus_floor(weights, [s.top_p for s in settings])
    if any(s.min_p for s in settings):
        min_p = torch.tensor([[s.min_p] for s in settings])
        floor = torch.maximum(floor, min_p * weights.max(dim=-1, keepdim=True).values)
    weights = torch.where(weights >= floor, weights, 0.0)
    # Inverse of the distribution function in vocabulary order; float64 keeps small tails exact.
    heights = weights.to(torch.float64).cumsum(dim=-1)
    draws = torch.tensor([[row.next_uniform()] for row in rows], dtype=torch.float64)
    picked = torch.searchsorted(heights, draws * heights[:, -1:], right=True)
    return [int(i) for i in picked[:, 0].tolist()]


def _keep_top_k(logits: torch.Tensor, top_k: Sequence[int]) -> torch.Tensor:
    """Minus infinity below each row's k-th largest value; k = 0 keeps the row whole."""
    size = logits.shape[-1]
    largest = torch.topk(logits, min(max(top_k), size), dim=-1).values
    index = torch.tensor([[min(k, size) - 1 if k else 0] for k in top_k])
    threshold = largest.gather(1, index)
    whole = torch.tensor([[k == 0] for k in top_k])
    return torch.where(whole | (logits >= threshold), logits, -torch.inf)


def _nucleus_floor(weights: torch.Tensor, top_p: Sequence[float]) -> torch.Tensor:
    """The smallest probability in each row's nucleus, float32 [rows, 1] (0 where top_p is 1).

    Holtzman et al., The Curious Case of Neural Text Degeneration, 2020.
    """
    floor = torch.zeros(len(top_p), 1)
    for i, p in enumerate(top_p):
        if p < 1.0:
            floor[i] = _row_floor(weights[i], p)
    return floor


def _row_floor(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    head = torch.topk(weights, min(_HEAD, weights.shape[0])).values
    mass = head.to(torch.float64).cumsum(dim=0)
    if mass[-1] < top_p and head.shape[0] < weights.shape[0]:
        head = weights.sort(descending=True).values
        mass = head.to(torch.float64).cumsum(dim=0)
    reached = int(torch.searchsorted(mass, top_p))
    return head[min(reached, head.shape[0] - 1)]
