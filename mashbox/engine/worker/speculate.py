"""How many guesses are worth the longer step that verifies them.

A step of more rows takes longer; how much longer is learned from the steps themselves. A guess is verified
when that is likely to make the streams faster. The clock has its say here, which is allowed: whether
something was guessed changes no token, only when it comes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mashbox.engine.worker.draft import Drafter, Guess

MOST_ROWS = 32
"""Rows of a step with guesses among them: the gain of more is small, and a step stays short."""

MOST_GUESSES = MOST_ROWS - 1

_WORTH = 0.03
"""What guessing must promise of a stream's speed: less lies within what the costs are known to."""

# A step of n rows in units of one of a single row, before any was measured; more than most machines need.
_EACH_MORE = 0.3
_ROWS = np.arange(MOST_ROWS + 1)
_PRIOR = 1.0 + _EACH_MORE * (_ROWS - 1)
_LEVEL_LEARN, _SHAPE_LEARN = 0.25, 0.06
_OUTLIER = 4.0
_LASTS = 16
"""Steps for which a table of costs is good, unless a number of rows runs for the first time."""


class StepCosts:
    """Seconds of a step by its number of rows, from the steps that ran.

    The level of all follows every step, since clocks and contexts change; the shape, how much dearer one
    number of rows is than another, follows slowly.
    """

    def __init__(self) -> None:
        self._level = 0.0
        self._shape: dict[int, float] = {}
        self._table: list[float] = []
        self._age = 0

    def took(self, rows: int, seconds: float) -> None:
        """A step of so many rows ran; one of more than MOST_ROWS tells nothing that is asked for."""
        if rows > MOST_ROWS:
            return
        self._age += 1
        if not self._level:
            self._level = seconds / float(_PRIOR[rows])
        known = self._shape.get(rows)
        expected = self._level * float(_PRIOR[rows]) * (known or self._correction(rows))
        ratio = min(max(seconds / expected, 1 / _OUTLIER), _OUTLIER)
        if known:
            self._level *= ratio**_LEVEL_LEARN
            self._shape[rows] = known * ratio**_SHAPE_LEARN
        else:
            self._shape[rows] = self._correction(rows) * ratio
            self._age = _LASTS

    def table(self) -> list[float]:
        """Seconds to expect by the number of rows, 0 to MOST_ROWS; all 0 before any step ran."""
        if self._age >= _LASTS or not self._table:
            self._age = 0
            self._table = [float(time) for time in self._level * _PRIOR * self._correction(_ROWS)]
        return self._table

    def _correction(self, rows: Any) -> Any:
        """What was measured by what was expected before; between the nearest known numbers of rows."""
        if not self._shape:
            return 1.0
        known = sorted(self._shape)
        return np.interp(rows, known, [self._shape[count] for count in known])


def plan(drafters: Sequence[tuple[Drafter | None, int]], costs: StepCosts) -> list[list[int]]:
    """Guesses to verify for each row of the next step, each with a drafter and the most it has use for.

    The sum over the streams of the logarithm of their speed is made as large as it gets: what one gains, the
    others must not pay for with more.
    """
    rows = len(drafters)
    room = MOST_ROWS - rows
    # No more than are likely to be chosen: each costs a microsecond, wanted or not.
    each = room if rows == 1 else 2 * room // rows + 1
    offers = [drafter.guesses(min(most, each)) if drafter else () for drafter, most in drafters]
    chosen: list[list[int]] = [[] for _ in drafters]
    seconds = costs.table() if any(offers) else [0.0]
    if room < 1 or not seconds[-1]:
        return chosen
    order = _by_gain(offers)[:room]
    gained, best, count = 0.0, _WORTH * rows, 0
    for number, (gain, _) in enumerate(order, start=1):
        gained += gain
        net = gained - rows * math.log(seconds[rows + number] / seconds[rows])
        if net > best:
            best, count = net, number
    for _, row in order[:count]:
        chosen[row].append(offers[row][len(chosen[row])].token)
    return chosen


def _by_gain(offers: Sequence[Sequence[Guess]]) -> list[tuple[float, int]]:
    """Each guess as what it adds to the logarithm of its row's tokens in the step, and its row; best first.

    A row's gains fall from guess to guess, so sorting keeps their order.
    """
    gains = []
    for row, guesses in enumerate(offers):
        tokens = 1.0
        for guess in guesses:
            gains.append((math.log1p(guess.chance / tokens), row))
            tokens += guess.chance
    gains.sort(key=lambda gain: -gain[0])
    return gains
