"""How the numbers of a head lie in the kernels: in places of a size that vectors take, zeros between them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.worker.load.shapes import Shape
from mashbox.packing import eights, padded_head

Rows = NDArray[np.intp]
"""Numbers of rows, in an order; -1: a row of zeros."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of ``size`` numbers, of which the first ``turned`` are turned.

    The kernels turn number i with number i + turned / 2. ``neighbours``: the module turns numbers 2 i and
    2 i + 1 instead.
    """

    size: int
    turned: int
    neighbours: bool

    @property
    def room(self) -> int:
        """Places of a head."""
        return padded_head(self.size, self.turned)

    @property
    def turned_room(self) -> int:
        """Places of the numbers that are turned."""
        return self.room - eights(self.size - self.turned)

    def turning(self, count: int) -> Rows | None:
        """The rows of ``count`` heads of queries or keys as their places take them; None: as they are."""
        turned, rest = np.arange(self.turned), np.arange(self.turned, self.size)
        half = self.turned // 2
        halves = [turned[::2], turned[1::2]] if self.neighbours else [turned[:half], turned[half:]]
        parts = [_filled(half, self.turned_room // 2) for half in halves]
        return self._of(count, np.concatenate([*parts, _filled(rest, eights(len(rest)))]))

    def still(self, count: int) -> Rows | None:
        """The same of values: as they are, the places without a number behind them."""
        return self._of(count, _filled(np.arange(self.size), self.room))

    def _of(self, count: int, places: Rows) -> Rows | None:
        if np.array_equal(places, np.arange(self.size)):
            return None
        firsts = self.size * np.arange(count)[:, None]
        return np.where(places < 0, -1, firsts + places).ravel()


def heads_of(shape: Shape) -> Heads:
    return Heads(shape.head_dim, shape.turned, shape.neighbours)


def _filled(numbers: Rows, room: int) -> Rows:
    return np.concatenate([numbers, np.full(room - len(numbers), -1, numbers.dtype)])
