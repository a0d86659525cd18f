"""How many threads a step runs on: as many as the machine has free.

A step's threads wait for each other some hundred times. Where another program has one of the processors, the
others wait for it every time, and fewer threads are many times as fast; results are the same bits with any
number. So the pace of a few steps with a neighbouring number is tried now and then, and kept if it is better.
"""

import statistics
from collections import deque

TRIAL = 4
"""Steps of a trial; it ends at the first that is clearly slower."""

FEWEST, MOST = 24, 1536
"""Steps between two trials: doubled for each that found nothing."""

BETTER, WORSE, SUDDEN = 0.93, 1.25, 1.6
"""Of the usual time: to change, to end a trial, and to begin one at once."""

_RECENT = 9


class ThreadChoice:
    """Numbers of threads for steps that do the same work, from 1 to ``most``.

    Call ``threads`` before a step and ``note`` behind it.
    """

    def __init__(self, most: int) -> None:
        self._ladder = ladder(most)
        self._place = len(self._ladder) - 1
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._usual = 0.0
        self._trial: list[float] = []
        self._tried: int | None = None
        self._down = True
        self._reach = 1
        self._wait = self._left = FEWEST

    @property
    def threads(self) -> int:
        return self._ladder[self._place if self._tried is None else self._tried]

    def note(self, seconds: float) -> None:
        """Tell what the step took, or what it took for each of its rows."""
        if self._tried is not None:
            self._note_trial(seconds)
            return
        self._recent.append(seconds)
        self._left -= 1
        if len(self._recent) < _RECENT or len(self._ladder) == 1:
            return
        now = statistics.median(self._recent)
        if self._usual and now > SUDDEN * self._usual:
            self._usual, self._wait, self._left = now, FEWEST, 0
        # Work grows with the context, slowly: only a leap is a reason to look around.
        self._usual = now if not self._usual else 0.9 * self._usual + 0.1 * now
        if self._left <= 0:
            self._begin()

    def _begin(self) -> None:
        """Try a neighbour: fewer and more by turns, where there are both."""
        last = len(self._ladder) - 1
        self._down = self._place == last or (self._place > 0 and not self._down)
        self._tried = max(self._place - self._reach, 0) if self._down else self._place + 1
        self._trial = []

    def _note_trial(self, seconds: float) -> None:
        assert self._tried is not None
        usual = statistics.median(self._recent)
        self._trial.append(seconds)
        slow = seconds > WORSE * usual
        if not slow and len(self._trial) < TRIAL:
            return
        if not slow and statistics.median(self._trial) < BETTER * usual:
            self._place = self._tried
            self._recent.clear()
            self._usual, self._wait, self._reach = 0.0, FEWEST, 1
        elif not slow and self._down and self._tried > 0:
            # No worse with fewer: still fewer may be what is free.
            self._reach += 1
            self._wait = FEWEST
        else:
            self._reach = 1
            self._wait = min(2 * self._wait, MOST)
        self._tried, self._left = None, self._wait


def ladder(most: int) -> list[int]:
    """The numbers that are tried, ascending: each about a quarter more than the one before."""
    steps = [most]
    while steps[-1] > 1:
        steps.append(steps[-1] - max(1, steps[-1] // 4))
    return steps[::-1]


class Threads:
    """A :class:`ThreadChoice` for each number of rows; long pieces of prompts share one, by the row."""

    MANY = 17

    def __init__(self, most: int) -> None:
        self._choices = [ThreadChoice(most) for _ in range(self.MANY + 1)]

    def of(self, rows: int) -> int:
        return self._choices[min(rows, self.MANY)].threads

    def note(self, rows: int, seconds: float) -> None:
        if rows < self.MANY:
            self._choices[rows].note(seconds)
        elif rows >= 2 * self.MANY:
            # Of a short rest the fixed part weighs too much to be compared.
            self._choices[self.MANY].note(seconds / rows)
