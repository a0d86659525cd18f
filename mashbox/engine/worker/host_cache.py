"""The prompt cache's second tier: states of slots in host memory, least recently used out first."""

import itertools
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


def common_prefix(a: Ids, b: Ids) -> int:
    """Tokens that two sequences have in common from the start."""
    size = min(len(a), len(b))
    differ = a[:size] != b[:size]
    return int(differ.argmax()) if differ.any() else size


class Entry(NamedTuple):
    """One saved state: the tokens that it holds, whose they are, and its size in bytes, tokens included."""

    ids: Ids
    owner: str
    state: Any
    nbytes: int


class HostCache:
    """Entries of up to ``cap`` bytes in all; 0 keeps nothing.

    ``bytes`` is what all entries take together, to the byte; ``evictions`` counts those removed for room.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.bytes = 0
        self.evictions = 0
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: Ids, owner: str, *, whole: bool) -> tuple[int, int | None]:
        """The longest prefix of ``ids`` that an entry of ``owner`` holds, and the entry's key.

        ``whole``: only entries all of whose tokens are a prefix count, since their state can't be cut.
        """
        best, key = 0, None
        for number, entry in self._entries.items():
            if entry.owner != owner or len(entry.ids) <= best:
                continue
            length = common_prefix(entry.ids, ids)
            if length > best and (not whole or length == len(entry.ids)):
                best, key = length, number
        return best, key

    def get(self, key: int) -> Entry:
        """An entry, which counts as used."""
        self._entries.move_to_end(key)
        return self._entries[key]

    def make_room(self, nbytes: int) -> bool:
        """Evict until ``nbytes`` more fit under the cap; False when they never can."""
        if nbytes > self.cap:
            return False
        while self.bytes + nbytes > self.cap:
            self._drop(next(iter(self._entries)))
            self.evictions += 1
        return True

    def put(self, ids: Ids, owner: str, state: Any, *, whole: bool) -> None:
        """Keep a state, if it fits. Entries that it makes useless go: their tokens are a prefix of its."""
        entry = Entry(ids.copy(), owner, state, int(state.nbytes) + ids.nbytes)
        if not whole:
            useless = [
                number
                for number, other in self._entries.items()
                if other.owner == owner and common_prefix(other.ids, ids) == len(other.ids)
            ]
            for number in useless:
                self._drop(number)
        if self.make_room(entry.nbytes):
            self._entries[next(self._numbers)] = entry
            self.bytes += entry.nbytes

    def _drop(self, key: int) -> None:
        self.bytes -= self._entries.pop(key).nbytes
