"""Who holds what: which slot a request gets, and how much of its prompt is there already.

A slot keeps the sequence of its last request. A new request takes up the longest prefix of its prompt that
any slot holds (its own, or another's, busy or free: then it is copied), and goes on with what host memory
holds behind it. What a slot loses by this goes to host memory first, as far as it is held nowhere else. The
state of a recurrent model can't be cut: there a prefix ends at a state point, or where a saved state or a
slot ends.
"""

import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mashbox.engine.worker import points
from mashbox.engine.worker.host_cache import HostCache, Ids, common_prefix
from mashbox.engine.worker.runner import Runner

_log = logging.getLogger(__name__)

# Fewer tokens are read again faster than they are worth keeping.
WORTH_SAVING = 32


class Cover(NamedTuple):
    """Keys and values of a sequence: ``kept`` tokens of slot ``source``, then those of ``chain`` in turn.

    ``chain`` are keys of host memory; they end behind ``reach`` tokens. ``fork`` is the longest beginning in
    common with anything that was compared.
    """

    source: int
    kept: int
    chain: list[int]
    reach: int
    fork: int


class Found(NamedTuple):
    """A beginning of ``length`` tokens to take up, and the state at its ``end`` where a point gives it."""

    cover: Cover
    length: int
    end: Any = None


class _Slot:
    """``ids[:length]`` is what the runner's slot holds, and whose it is.

    State points are due at ``places``; behind ``fork`` tokens its prompt parted from others.
    """

    def __init__(self, ctx: int) -> None:
        self._ids = np.zeros(ctx, dtype=np.int32)
        self.length = 0
        self.owner = ""
        self.session: str | None = None
        self.busy = False
        self.used = 0
        self.places: list[int] = []
        self.fork = 0

    @property
    def ids(self) -> Ids:
        return self._ids[: self.length]

    def hold(self, ids: Ids) -> None:
        """Put ``ids`` behind what is held."""
        self._ids[self.length : self.length + len(ids)] = ids
        self.length += len(ids)


class Slots:
    """The runner's slots as a cache of prefixes.

    One tenant's text is never another's hit, unless ``share``.
    """

    def __init__(self, runner: Runner, host: HostCache, *, share: bool = False) -> None:
        self._runner = runner
        self._host = host
        self._share = share
        self._slots = [_Slot(runner.ctx) for _ in range(runner.slots)]
        self._clock = itertools.count(1)

    @property
    def free(self) -> bool:
        """Whether a slot can be taken."""
        return not all(slot.busy for slot in self._slots)

    def take(self, ids: Ids, tenant: str, session: str | None) -> int:
        """A free slot for a request: the one that holds its conversation, else the one missed least."""
        free = [index for index, slot in enumerate(self._slots) if not slot.busy]
        owner = self._owner(tenant)
        points = self._host.points(ids, owner) if self._runner.recurrent else None

        def continues(index: int) -> int:
            """Tokens in common with a slot whose sequence the request goes on with."""
            slot = self._slots[index]
            common = common_prefix(slot.ids, ids) if slot.owner == owner else 0
            if common == slot.length:
                return common
            if session is None or session != slot.session:
                return 0
            return common if points is None else max((p for p in points if p <= common), default=0)

        best = max(free, key=continues)
        if not continues(best):
            best = min(free, key=lambda index: (self._slots[index].length > 0, self._slots[index].used))
        slot = self._slots[best]
        slot.busy, slot.session, slot.used = True, session, next(self._clock)
        return best

    def begin(self, index: int, ids: Ids, tenant: str) -> int:
        """Bring the longest known prefix of ``ids`` into a taken slot; its length (less than all of it)."""
        slot, owner = self._slots[index], self._owner(tenant)
        # The last token is always read: its logits are what the answer begins with.
        wanted, held = ids[:-1], self._held_by(owner)
        found = self._usable(self._cover(wanted, owner, held, index), wanted, owner, held)
        cover, length = found.cover, found.length
        states = [entry.state for entry in self._host.get(cover.chain)]
        stays = min(cover.kept, length) if cover.source == index else 0
        with self._host.in_use([*states, *filter(None, [found.end])]):
            self._save_what_goes(index, stays)
        if length and (states or cover.source != index):
            kept = min(cover.kept, length)
            self._runner.restore(index, states, length, found.end, source=cover.source, kept=kept)
            slot.length = 0
            slot.hold(ids[:length])
        else:
            self._cut(index, length, found.end)
        slot.owner = owner
        slot.fork = cover.fork
        slot.places = self._places(slot.length, cover.fork, len(ids))
        self._save_point(slot, index)
        return slot.length

    def piece(self, index: int, size: int) -> int:
        """Tokens to read at once, ``size`` or fewer: a state is saved where a piece ends."""
        slot = self._slots[index]
        return min(size, slot.places[0] - slot.length) if slot.places else size

    def hold(self, index: int, ids: Ids) -> None:
        """Note that a slot now holds ``ids`` too."""
        slot = self._slots[index]
        slot.hold(ids)
        self._save_point(slot, index)

    def release(self, index: int, *, keep: bool = True) -> None:
        """Give a slot back; ``keep`` False forgets its sequence, which can't be relied on."""
        slot = self._slots[index]
        slot.busy, slot.used = False, next(self._clock)
        slot.places = []
        if not keep:
            self._host.forget(slot.ids, slot.owner)
            self._cut(index, 0)

    def _owner(self, tenant: str) -> str:
        return "" if self._share else tenant

    def _cover(self, ids: Ids, owner: str, slots: Mapping[int, Ids], prefer: int) -> Cover:
        """How far the keys and values of ``ids`` can be brought together from ``slots`` and host memory.

        Of slots that hold the same number of them, ``prefer`` is taken: what a slot has need not be copied.
        """
        common = {number: common_prefix(held, ids) for number, held in slots.items()}
        source = max(common, key=lambda number: (common[number], number == prefer), default=prefer)
        kept = common.get(source, 0)
        chain, reach = self._host.chain(ids, owner, kept)
        fork = max(kept, self._host.longest(ids, owner))
        return Cover(source, kept, chain, reach, fork)

    def _usable(self, cover: Cover, ids: Ids, owner: str, slots: Mapping[int, Ids]) -> Found:
        """What of ``cover`` can be taken up: all of it, or as far as there is a state that can't be cut."""
        if not self._runner.recurrent:
            return Found(cover, cover.reach)
        points = self._host.points(ids[: cover.reach], owner)
        ends = self._host.ends(ids[: cover.reach], owner)
        whole = {len(held): n for n, held in slots.items() if common_prefix(held, ids) == len(held)}
        length = max([0, *points, *ends, *whole])
        if length in points:
            return Found(self._up_to(cover, ids, owner, length), length, self._host.point(ids, owner, length))
        if length in ends:
            (entry,) = self._host.get([ends[length]])
            return Found(self._up_to(cover, ids, owner, length), length, entry.state.end)
        if not length:
            return Found(cover._replace(kept=0, chain=[]), 0)
        # The state is where the slot that ends here has it.
        return Found(cover._replace(source=whole[length], kept=length, chain=[]), length)

    def _up_to(self, cover: Cover, ids: Ids, owner: str, length: int) -> Cover:
        chain, _ = self._host.chain(ids[:length], owner, min(cover.kept, length))
        return cover._replace(kept=min(cover.kept, length), chain=chain)

    def _save_what_goes(self, index: int, stays: int) -> None:
        """Send to host memory what a slot is about to lose and nobody else holds.

        Where all of that has no room beside what is being taken up, its beginning goes there alone.
        """
        slot = self._slots[index]
        runner, owner = self._runner, slot.owner
        if not self._host.cap or self._not_worth(slot.length - stays, slot.ids, owner, stays):
            return
        once = runner.snapshot_bytes
        each = (runner.kv_bytes // runner.slots - once) // runner.ctx
        left = {**self._held_by(owner), index: slot.ids[:stays]}
        while True:
            ids = slot.ids
            cover = self._cover(ids, owner, left, index)
            lost = slot.length - self._usable(cover, ids, owner, left).length
            if self._not_worth(lost, ids, owner, cover.reach):
                return
            self._host.get(cover.chain)
            # Room is made before the copy is, so that the cap holds at every moment.
            start = cover.reach
            nbytes = once + each * (slot.length - start)
            if not self._host.room_for(ids, owner, nbytes, start):
                whole = nbytes + ids.nbytes <= self._host.cap
                fitting = start + (self._host.spare - once - start * ids.itemsize) // (each + ids.itemsize)
                if not whole or runner.recurrent or fitting - start < WORTH_SAVING:
                    return
                self._cut(index, fitting)
                continue
            # What the copy builds on may have been what had to go.
            if all(key in self._host for key in cover.chain):
                if (state := _copied(runner.export, index, start)) is None:
                    return
                self._host.put(ids, owner, state, start)
                # Newer than the copy, which is of no use without it.
                self._host.get(cover.chain)
                return

    def _not_worth(self, lost: int, ids: Ids, owner: str, reach: int) -> bool:
        """Whether ``lost`` tokens behind ``reach`` may go: so few, and nothing saved builds on them."""
        return lost < WORTH_SAVING and not self._host.leans_on(ids, owner, reach)

    def _held_by(self, owner: str) -> dict[int, Ids]:
        return {number: slot.ids for number, slot in enumerate(self._slots) if slot.owner == owner}

    def _places(self, start: int, fork: int, total: int) -> list[int]:
        """Where a prompt's state points are due; nowhere if there is no use or no room for them."""
        if not self._runner.recurrent or self._runner.snapshot_bytes > self._host.cap:
            return []
        return points.places(start, fork, total)

    def _save_point(self, slot: _Slot, index: int) -> None:
        """Save the slot's state if it has come to a place where that is due."""
        if not slot.places or slot.length < slot.places[0]:
            return
        slot.places = slot.places[1:]
        if self._host.room_for_point(slot.ids, slot.owner, self._runner.snapshot_bytes):
            snapshot = _copied(self._runner.snapshot, index)
            if snapshot is not None:
                self._host.put_point(slot.ids, slot.owner, snapshot, fork=slot.length == slot.fork)

    def _cut(self, index: int, length: int, point: Any = None) -> None:
        """Keep the first ``length`` tokens of a slot, with the state ``point`` where it can't be cut."""
        slot = self._slots[index]
        if length == slot.length:
            return
        if not length:
            self._runner.reset(index)
        elif point is not None:
            self._runner.rewind(index, length, point)
        else:
            self._runner.truncate(index, length)
        slot.length = length


def _copied(copy: Callable[..., Any], *args: int) -> Any:
    """What ``copy`` makes; None where the system has no memory for it: the requests go on without a cache."""
    try:
        return copy(*args)
    except (OSError, MemoryError) as error:
        _log.warning("There is no memory for a state in the prompt cache: %s", error)
        return None
