"""The prompt cache in host memory: states of slots and state points, least recently used out first."""

import itertools
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.worker import points

Ids = NDArray[np.int32]


def common_prefix(a: Ids, b: Ids) -> int:
    """Tokens that two sequences have in common from the start."""
    size = min(len(a), len(b))
    differ = a[:size] != b[:size]
    return int(differ.argmax()) if differ.any() else size


class Entry(NamedTuple):
    """A saved state behind ``ids``: whose it is, and its size in bytes, token ids included.

    Of a slot's state it holds the tokens from ``start`` on: those before were held elsewhere when it came.
    ``fork``: it is a point where two sequences parted.
    """

    ids: Ids
    owner: str
    state: Any
    nbytes: int
    start: int = 0
    fork: bool = False


class HostCache:
    """Slots' states and state points of up to ``cap`` bytes in all; 0 keeps nothing.

    ``bytes`` is what all states take, ``point_bytes`` what all points take, to the byte; ``evictions``
    counts those of both removed for room. A point is the part of a state that can't be cut, see
    :mod:`mashbox.engine.worker.points`, which also bounds their number along one sequence.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.bytes = 0
        self.point_bytes = 0
        self.evictions = 0
        # One order for both: the first of all is the one used least recently.
        self._order: OrderedDict[int, None] = OrderedDict()
        self._entries: dict[int, Entry] = {}
        self._points: dict[int, Entry] = {}
        self._numbers = itertools.count()
        self._pinned: set[int] = set()

    @property
    def spare(self) -> int:
        """Bytes that can be had by putting out all that is not in use."""
        return self.cap - sum(self._held(number).nbytes for number in self._pinned)

    @contextmanager
    def in_use(self, states: Collection[Any]) -> Iterator[None]:
        """Within the block these states stay: one that is put out while it is in use frees no memory."""
        used = {id(state) for state in states}
        self._pinned = {
            number
            for number in self._order
            if not used.isdisjoint(map(id, (state := self._held(number).state, getattr(state, "end", None))))
        }
        try:
            yield
        finally:
            self._pinned = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: int) -> bool:
        return key in self._entries

    def chain(self, ids: Ids, owner: str, reach: int) -> tuple[list[int], int]:
        """Keys of the entries that lead on from the first ``reach`` tokens of ``ids``, and how far they do.

        Each begins no later than where the one before it, or ``reach``, ends.
        """
        common = {
            number: common_prefix(entry.ids, ids)
            for number, entry in self._entries.items()
            if entry.owner == owner and len(entry.ids) > reach
        }
        keys: list[int] = []
        while True:
            known = [number for number in common if self._entries[number].start <= reach]
            best = max(known, key=common.__getitem__, default=None)
            if best is None or common[best] <= reach:
                return keys, reach
            keys.append(best)
            reach = common[best]

    def ends(self, ids: Ids, owner: str) -> dict[int, int]:
        """Keys of the entries whose tokens are a beginning of ``ids``, by their lengths."""
        return {
            len(entry.ids): number
            for number, entry in self._entries.items()
            if entry.owner == owner and common_prefix(entry.ids, ids) == len(entry.ids)
        }

    def longest(self, ids: Ids, owner: str) -> int:
        """The most tokens that ``ids`` has in common with any entry, whether or not they can be taken up."""
        return max((common_prefix(e.ids, ids) for e in self._entries.values() if e.owner == owner), default=0)

    def leans_on(self, ids: Ids, owner: str, reach: int) -> bool:
        """Whether an entry begins among the tokens of ``ids`` behind ``reach``, and so needs them."""
        return any(
            reach < entry.start <= common_prefix(entry.ids, ids)
            for entry in self._entries.values()
            if entry.owner == owner
        )

    def get(self, keys: Sequence[int]) -> list[Entry]:
        """Entries of a chain, which count as used: the first last, since the others need it."""
        for key in reversed(keys):
            self._order.move_to_end(key)
        return [self._entries[key] for key in keys]

    def points(self, ids: Ids, owner: str) -> list[int]:
        """Ascending lengths of the beginnings of ``ids`` of which there is a point."""
        return [len(self._points[number].ids) for number in self._on_the_way(ids, owner)]

    def point(self, ids: Ids, owner: str, length: int) -> Any:
        """The state at a length that ``points`` gave; it counts as used."""
        (number,) = (n for n in self._on_the_way(ids, owner) if len(self._points[n].ids) == length)
        self._order.move_to_end(number)
        return self._points[number].state

    def room_for(self, ids: Ids, owner: str, nbytes: int, start: int = 0) -> bool:
        """Make room for a state of ``nbytes`` over ``ids`` from ``start`` on, to be copied under the cap.

        Entries that it makes useless go: it holds all that they do. False when it can't fit.
        """
        if nbytes + ids.nbytes > self.spare:
            return False
        for number, other in list(self._entries.items()):
            if (
                number not in self._pinned
                and other.owner == owner
                and other.start >= start
                and common_prefix(other.ids, ids) == len(other.ids)
            ):
                self._drop(number)
        # A state that can't be cut needs its points for as long as it stays.
        for number in self._on_the_way(ids, owner):
            self._order.move_to_end(number)
        self._make_room(nbytes + ids.nbytes)
        return True

    def put(self, ids: Ids, owner: str, state: Any, start: int = 0) -> None:
        """Keep a state, if it fits."""
        entry = Entry(ids.copy(), owner, state, int(state.nbytes) + ids.nbytes, start)
        if self.room_for(ids, owner, int(state.nbytes), start):
            self._entries[self._newest()] = entry
            self.bytes += entry.nbytes

    def room_for_point(self, ids: Ids, owner: str, nbytes: int) -> bool:
        """Make room for a point of ``nbytes`` behind ``ids``; False if it is known or can never fit."""
        if nbytes + ids.nbytes > self.spare or len(ids) in self.points(ids, owner):
            return False
        self._make_room(nbytes + ids.nbytes)
        return True

    def put_point(self, ids: Ids, owner: str, state: Any, *, fork: bool = False) -> None:
        """Keep a point, if it is new and fits; one of too many on the way to it goes."""
        if not self.room_for_point(ids, owner, int(state.nbytes)):
            return
        entry = Entry(ids.copy(), owner, state, int(state.nbytes) + ids.nbytes, fork=fork)
        self._points[self._newest()] = entry
        self.point_bytes += entry.nbytes
        way = self._on_the_way(ids, owner)
        if len(way) > points.MOST:
            along = [self._points[number] for number in way]
            forks = {len(point.ids) for point in along if point.fork}
            self._drop(way[points.least_missed([len(point.ids) for point in along], forks)])

    def forget(self, ids: Ids, owner: str) -> None:
        """Drop all that a sequence of ``owner`` may have been taken up from, or left behind."""
        for number in self._on_the_way(ids, owner):
            self._drop(number)
        for number, entry in list(self._entries.items()):
            if entry.owner == owner and common_prefix(entry.ids, ids):
                self._drop(number)

    def _on_the_way(self, ids: Ids, owner: str) -> list[int]:
        """Numbers of the points along a sequence, ascending by length."""
        along = [
            (len(point.ids), number)
            for number, point in self._points.items()
            if point.owner == owner
            and len(point.ids) <= len(ids)
            and np.array_equal(point.ids, ids[: len(point.ids)])
        ]
        return [number for _, number in sorted(along)]

    def _make_room(self, nbytes: int) -> None:
        """Evict until ``nbytes`` (no more than the spare ones) fit."""
        while self.bytes + self.point_bytes + nbytes > self.cap:
            self._drop(next(number for number in self._order if number not in self._pinned))
            self.evictions += 1

    def _held(self, number: int) -> Entry:
        return self._entries.get(number) or self._points[number]

    def _newest(self) -> int:
        number = next(self._numbers)
        self._order[number] = None
        return number

    def _drop(self, number: int) -> None:
        del self._order[number]
        if number in self._entries:
            self.bytes -= self._entries.pop(number).nbytes
        else:
            self.point_bytes -= self._points.pop(number).nbytes
