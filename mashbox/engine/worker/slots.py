"""Who holds what: which slot a request gets, and how much of its prompt is there already.

A slot keeps the sequence of its last request. A new request takes up the longest prefix of its prompt that
any slot holds (its own, or another's, busy or free: then it is copied) or that host memory holds. What a slot
loses by this goes to host memory first, unless it is held elsewhere too. The state of a recurrent model can't
be cut: there a prefix ends at a state point, or where a slot ends.
"""

import itertools
from typing import Any

import numpy as np

from mashbox.engine.worker import points
from mashbox.engine.worker.host_cache import HostCache, Ids, Wanted
from mashbox.engine.worker.runner import Runner

# Fewer tokens are read again faster than they are worth keeping.
WORTH_SAVING = 32


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
        wanted = self._wanted(ids, self._owner(tenant))

        def continues(index: int) -> int:
            """Tokens in common with a slot whose sequence the request goes on with."""
            slot = self._slots[index]
            common = wanted.match(slot.ids, slot.owner)
            goes_on = common == slot.length or (session is not None and session == slot.session)
            return common if goes_on else 0

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
        wanted = self._wanted(ids[:-1], owner)
        own = wanted.match(slot.ids, slot.owner)
        other, source = self._best_other(index, wanted)
        saved, key = self._host.find(wanted)
        best = max(own, other, saved)
        # Fetched before anything is saved, which may put them out.
        entry = self._host.get(key) if key is not None and best == saved > max(own, other) else None
        point = self._host.point(wanted.ids, owner, best) if best in (wanted.stops or ()) else None
        self._save_what_goes(index, own if best == own else 0)
        if best == own:
            self._cut(index, own, point)
        elif entry is not None:
            self._runner.restore(index, entry.state, best, point)
            slot.length = 0
            slot.hold(entry.ids[:best])
        elif source is not None:
            self._runner.copy(source, index, best, point)
            slot.length = 0
            slot.hold(self._slots[source].ids[:best])
        slot.owner = owner
        slot.fork = wanted.fork
        slot.places = self._places(slot.length, wanted.fork, len(ids))
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

    def _wanted(self, ids: Ids, owner: str) -> Wanted:
        return Wanted(ids, owner, self._host.points(ids, owner) if self._runner.recurrent else None)

    def _best_other(self, index: int, wanted: Wanted) -> tuple[int, int | None]:
        """The longest match in another slot, and which."""
        best, source = 0, None
        for other, slot in enumerate(self._slots):
            if other != index and (common := wanted.match(slot.ids, slot.owner)) > best:
                best, source = common, other
        return best, source

    def _save_what_goes(self, index: int, stays: int) -> None:
        """Send a slot's sequence to host memory if it is about to lose part of it that nobody else holds."""
        slot = self._slots[index]
        if slot.length - stays < WORTH_SAVING or not self._host.cap:
            return
        wanted = self._wanted(slot.ids, slot.owner)
        elsewhere, _ = self._best_other(index, wanted)
        saved, _ = self._host.find(wanted)
        if slot.length - max(elsewhere, saved) < WORTH_SAVING:
            return
        # Room is made before the copy is, so that the cap holds at every moment.
        runner = self._runner
        once = runner.snapshot_bytes
        each = (runner.kv_bytes // runner.slots - once) // runner.ctx
        if self._host.room_for(slot.ids, slot.owner, once + each * slot.length):
            self._host.put(slot.ids, slot.owner, runner.export(index))

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
            snapshot = self._runner.snapshot(index)
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
