"""A token from a row of logits, after temperature, top_k, top_p and min_p, in this order.

Cuts are made at a threshold value, and ties at the threshold are kept. Nothing sorts the vocabulary: a cut
first finds, in a pass or two, the few tokens among which it lies. The CPU kernels do it where they are built;
what numpy does instead is the same, but for the last bit of a sum.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.request import Sampling
from mashbox.engine.worker.kernels.cpu import best_instructions, library
from mashbox.errors import UsageError

Floats = NDArray[np.float32]
Draw = Callable[[Floats, Sampling, float], int | None]

# A client's number may lie beyond these: as a float32 it would be 0 or infinity, and its row NaN.
_FLOAT32 = np.finfo(np.float32)
# Tokens that share one maximum, or one sum: the square root of a vocabulary, roughly.
_GROUP = 128
# Shares of the likeliest token's weight: what lies between two of them is sorted to find a nucleus' border.
_DEPTHS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3)


def draw(row: Floats, sampling: Sampling, number: float) -> int | None:
    """A token of ``row`` [vocab_size] by a ``number`` from 0 to below 1; the likeliest for a greedy request.

    None if the row holds NaN, or its largest number is infinite.
    """
    return chosen()(row, sampling, number)


@functools.cache
def chosen() -> Draw:
    """The kernels' draw, or numpy's where they are not built or can't be loaded."""
    try:
        return kernel_draw(best_instructions())
    except (UsageError, OSError):
        return numpy_draw


def kernel_draw(instructions: int) -> Draw:
    """The draw of the kernels for one set of instructions.

    UsageError if they are not built, OSError if they can't be loaded.
    """
    call = library().mashbox_draw

    def drawn(row: Floats, sampling: Sampling, number: float) -> int | None:
        row = np.ascontiguousarray(row, np.float32)
        temperature = 0.0 if sampling.greedy else in_float32(sampling.temperature)
        token: int = call(
            row.ctypes.data,
            len(row),
            temperature,
            min(sampling.top_k, len(row)),
            sampling.top_p,
            sampling.min_p,
            number,
            instructions,
        )
        return None if token < 0 else token

    return drawn


def numpy_draw(row: Floats, sampling: Sampling, number: float) -> int | None:
    best = int(row.argmax())  # NaN comes first
    top = float(row[best])
    if not math.isfinite(top):
        return None
    return best if sampling.greedy else _draw(row, top, sampling, number)


def in_float32(positive: float) -> float:
    """The nearest number that a float32 holds as one that is neither 0 nor infinite."""
    return min(max(positive, float(_FLOAT32.tiny)), float(_FLOAT32.max))


def _draw(row: Floats, top: float, sampling: Sampling, number: float) -> int:
    """``top`` is the row's largest number."""
    kept: NDArray[Any] | None = None
    if 0 < sampling.top_k < len(row):
        kept = np.flatnonzero(row >= _kth_largest(row, sampling.top_k))
    # The maximum is taken off first: a tiny temperature then can't overflow.
    weights = (row if kept is None else row[kept]) - np.float32(top)
    with np.errstate(over="ignore", under="ignore"):
        weights /= np.float32(in_float32(sampling.temperature))
        np.exp(weights, out=weights)
    # The likeliest weight is 1.
    floor = max(_nucleus_floor(weights, sampling.top_p), sampling.min_p)
    if floor > 0.0:
        inner = np.flatnonzero(weights >= np.float32(floor))
        weights = weights[inner]
        kept = inner if kept is None else kept[inner]
    index = _invert(weights, number)
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
