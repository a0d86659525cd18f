"""What runners over :class:`~mashbox.engine.worker.slot_pools.SlotPools` share: slots' books and bounds."""

from __future__ import annotations

from collections.abc import Sequence

from mashbox.engine.worker.runner import Logits
from mashbox.engine.worker.slot_pools import SlotPools, SlotState, Snapshot


class SlotRunner:
    """All of a :class:`~mashbox.engine.worker.runner.Runner` but ``prefill`` and ``decode``.

    A derived class sets the attributes; ``_cache`` may have its pools later. One that takes runs says so, and
    has ``decode_runs`` of its own.
    """

    takes_runs = False

    slots: int
    ctx: int
    vocab_size: int
    weight_bytes: int
    kv_bytes: int
    _cache: SlotPools

    @property
    def recurrent(self) -> bool:
        return self._cache.recurrent

    @property
    def snapshot_bytes(self) -> int:
        return self._cache.snapshot_bytes

    def decode_runs(self, slots: Sequence[int], runs: Sequence[Sequence[int]]) -> Logits:
        raise NotImplementedError("This runner decodes one token of a slot in a step.")

    def length(self, slot: int) -> int:
        self._check_slot(slot)
        return self._cache.lengths[slot]

    def reset(self, slot: int) -> None:
        self._check_slot(slot)
        self._cache.lengths[slot] = 0

    def truncate(self, slot: int, length: int) -> bool:
        self._check_slot(slot)
        held = self._cache.lengths[slot]
        if not 0 <= length <= held:
            raise ValueError(f"Slot {slot} holds {held} tokens, it can't be cut to {length}.")
        if self._cache.recurrent and 0 < length < held:
            return False
        self._cache.lengths[slot] = length
        return True

    def snapshot(self, slot: int) -> Snapshot:
        self._check_slot(slot)
        if not self._cache.lengths[slot]:
            raise ValueError(f"Slot {slot} is empty: there is no state to take a snapshot of.")
        return self._cache.snapshot(slot)

    def rewind(self, slot: int, length: int, snapshot: Snapshot) -> None:
        self._check_slot(slot)
        self._check_cut(length, self._cache.lengths[slot], snapshot)
        self._cache.rewind(slot, length, snapshot)

    def copy(
        self, source: int, target: int, length: int | None = None, snapshot: Snapshot | None = None
    ) -> None:
        self._check_slot(source)
        self._check_slot(target)
        held = self._cache.lengths[source]
        length = held if length is None else length
        self._check_cut(length, held, snapshot)
        if source != target or snapshot is not None or length < held:
            self._cache.copy(source, target, length, snapshot)

    def export(self, slot: int, start: int = 0) -> SlotState:
        self._check_slot(slot)
        held = self._cache.lengths[slot]
        if not 0 <= start <= held:
            raise ValueError(f"Slot {slot} holds {held} tokens, there are none from {start} on.")
        return self._cache.export(slot, start)

    def restore(
        self,
        slot: int,
        states: Sequence[SlotState],
        length: int | None = None,
        snapshot: Snapshot | None = None,
        *,
        source: int | None = None,
        kept: int = 0,
    ) -> None:
        self._check_slot(slot)
        source = slot if source is None else source
        self._check_slot(source)
        last = held = self._cache.lengths[source] if kept else 0
        if not 0 <= kept <= held:
            raise ValueError(f"Slot {source} holds {held} tokens, not {kept}.")
        reach = kept
        for state in states:
            if not self._cache.fits(state):
                raise ValueError("The exported state is not one of this model, or longer than the context.")
            if state.start > reach:
                raise ValueError(f"The exported state begins at {state.start}, behind the {reach} before it.")
            reach, last = max(reach, state.length), state.length
        length = reach if length is None else length
        if length or reach:
            self._check_cut(length, reach, snapshot, end=last)
        self._cache.restore(slot, states, length, snapshot, source, kept)

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.slots:
            raise ValueError(f"There is no slot {slot}: slots run from 0 to {self.slots - 1}.")

    def _check_cut(self, length: int, held: int, snapshot: Snapshot | None, end: int | None = None) -> None:
        """``end``: where the state that can't be cut lies, if not behind all that is held."""
        if length == held and snapshot is None and end in (None, length):
            return
        if not 0 < length <= held:
            raise ValueError(f"{held} tokens are held, they can't be cut to {length}.")
        needed = self._cache.recurrent and length != end
        if (needed and snapshot is None) or (snapshot and not self._cache.fits(snapshot)):
            raise ValueError(f"{held} tokens can't be cut to {length} without a snapshot of this model.")

    def _check_ids(self, ids: Sequence[int]) -> None:
        if not ids or min(ids) < 0 or max(ids) >= self.vocab_size:
            raise ValueError(f"Token ids must be one or more, each from 0 to {self.vocab_size - 1}.")

    def _check_prefill(self, slot: int, ids: Sequence[int]) -> None:
        self._check_slot(slot)
        self._check_ids(ids)
        start = self._cache.lengths[slot]
        if start + len(ids) > self.ctx:
            raise ValueError(f"Slot {slot} holds {start} of {self.ctx} tokens: no room for {len(ids)} more.")

    def _check_decode(self, slots: Sequence[int], ids: Sequence[int]) -> None:
        self._check_runs(slots, [[token] for token in ids])

    def _check_runs(self, slots: Sequence[int], runs: Sequence[Sequence[int]]) -> None:
        if not slots or len(slots) != len(runs) or len(set(slots)) != len(slots):
            raise ValueError("decode needs one token or more for each of one or more distinct slots.")
        for slot, ids in zip(slots, runs, strict=True):
            self._check_ids(ids)
            self._check_slot(slot)
            held = self._cache.lengths[slot]
            if not 0 < held <= self.ctx - len(ids):
                raise ValueError(f"Slot {slot} holds {held} of {self.ctx} tokens: it can't take a next one.")
