"""Who holds what: which slot a request gets, and how much of its prompt is there already.

A slot keeps the sequence of its last request. A new request takes up the longest prefix of its prompt that
any slot holds (its own, or another's, busy or free: then it is copied) or that host memory holds. What a slot
loses by this goes to host memory first, unless it is held elsewhere too.
"""

import itertools

import numpy as np

from mashbox.engine.worker.host_cache import HostCache, Ids, common_prefix
from mashbox.engine.worker.runner import Runner

# A shorter sequence is read again faster than it is worth keeping.
WORTH_SAVING = 32


class _Slot:
    """``ids[:length]`` is what the runner's slot holds, and whose it is."""

    def __init__(self, ctx: int) -> None:
        self._ids = np.zeros(ctx, dtype=np.int32)
        self.length = 0
        self.owner = ""
        self.session: str | None = None
        self.busy = False
        self.used = 0

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

        def continues(index: int) -> int:
            """Tokens in common with a slot whose sequence the request goes on with."""
            slot = self._slots[index]
            common = self._match(slot, ids, owner)
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
        wanted = ids[:-1]
        own = self._match(slot, wanted, owner)
        other, source = self._best_other(index, wanted, owner)
        saved, key = self._host.find(wanted, owner, whole=self._runner.recurrent)
        best = max(own, other, saved)
        # Fetched before anything is saved, which may put it out.
        entry = self._host.get(key) if key is not None and best == saved > max(own, other) else None
        self._save_what_goes(index, own if best == own else 0)
        if best == own:
            self._cut(index, own)
        elif source is not None and best == other:
            self._runner.copy(source, index)
            self._took(slot, self._slots[source].ids)
            self._cut(index, best)
        elif entry is not None:
            self._runner.restore(index, entry.state)
            self._took(slot, entry.ids)
            self._cut(index, best)
        slot.owner = owner
        return slot.length

    def hold(self, index: int, ids: Ids) -> None:
        """Note that a slot now holds ``ids`` too."""
        self._slots[index].hold(ids)

    def release(self, index: int, *, keep: bool = True) -> None:
        """Give a slot back; ``keep`` False forgets its sequence, which can't be relied on."""
        slot = self._slots[index]
        slot.busy, slot.used = False, next(self._clock)
        if not keep:
            self._cut(index, 0)

    def _owner(self, tenant: str) -> str:
        return "" if self._share else tenant

    def _match(self, slot: _Slot, ids: Ids, owner: str) -> int:
        """Tokens of ``ids`` that can be taken up from a slot."""
        if slot.owner != owner:
            return 0
        common = common_prefix(slot.ids, ids)
        return common if common == slot.length or not self._runner.recurrent else 0

    def _best_other(self, index: int, ids: Ids, owner: str) -> tuple[int, int | None]:
        """The longest match in another slot, and which."""
        best, source = 0, None
        for other, slot in enumerate(self._slots):
            if other != index and (common := self._match(slot, ids, owner)) > best:
                best, source = common, other
        return best, source

    def _save_what_goes(self, index: int, stays: int) -> None:
        """Send a slot's sequence to host memory if it is about to lose part of it that nobody else holds."""
        slot = self._slots[index]
        if slot.length - stays < WORTH_SAVING or not self._host.cap:
            return
        elsewhere, _ = self._best_other(index, slot.ids, slot.owner)
        saved, _ = self._host.find(slot.ids, slot.owner, whole=self._runner.recurrent)
        if max(elsewhere, saved) >= slot.length:
            return
        # Room is made before the copy is, so that the cap holds at every moment.
        share = self._runner.kv_bytes // (self._runner.slots * self._runner.ctx)
        if self._host.make_room(share * slot.length + slot.ids.nbytes):
            self._host.put(slot.ids, slot.owner, self._runner.export(index), whole=self._runner.recurrent)

    def _took(self, slot: _Slot, ids: Ids) -> None:
        slot.length = 0
        slot.hold(ids)

    def _cut(self, index: int, length: int) -> None:
        """Keep the first ``length`` tokens of a slot; none where its state can't be cut there."""
        slot = self._slots[index]
        if length == slot.length:
            return
        if not length or not self._runner.truncate(index, length):
            self._runner.reset(index)
            length = 0
        slot.length = length
