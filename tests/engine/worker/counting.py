"""A runner whose logits are a hash of the slot's whole sequence: fast, exact, and wrong state shows."""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Snapshot(NamedTuple):
    """The part of a slot's state that can't be cut."""

    seen: list[int]
    nbytes: int


class State(NamedTuple):
    """Tokens of an exported slot from ``start`` on, of eight bytes each and those of its snapshot."""

    ids: list[int]
    end: Snapshot = Snapshot([], 0)
    start: int = 0

    @property
    def nbytes(self) -> int:
        return 8 * len(self.ids) + self.end.nbytes


class CountingRunner:
    """Implements the Runner protocol over plain lists of token ids."""

    weight_bytes = 0
    recurrent = False
    snapshot_bytes = 0
    takes_runs = True

    def __init__(
        self, slots: int = 4, ctx: int = 64, vocab_size: int = 50, speakable: int | None = None
    ) -> None:
        self.slots, self.ctx, self.vocab_size = slots, ctx, vocab_size
        self.kv_bytes = 8 * slots * ctx
        self.speakable = vocab_size if speakable is None else speakable
        self.held: list[list[int]] = [[] for _ in range(slots)]
        self.prefills: list[int] = []
        self.decodes: list[int] = []
        self.broken_token: int | None = None

    def length(self, slot: int) -> int:
        return len(self.held[slot])

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> torch.Tensor | None:
        assert ids
        self._append(slot, ids)
        self.prefills.append(len(ids))
        return self.logits(self.held[slot]) if logits else None

    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
        assert len(set(slots)) == len(slots)
        self.decodes.append(len(slots))
        for slot, token in zip(slots, ids, strict=True):
            assert self.held[slot], "a decode on an empty slot"
            self._append(slot, [token])
        return torch.stack([self.logits(self.held[slot]) for slot in slots])

    def decode_runs(self, slots: Sequence[int], runs: Sequence[Sequence[int]]) -> torch.Tensor:
        assert len(set(slots)) == len(slots)
        self.decodes.append(sum(map(len, runs)))
        found = []
        for slot, ids in zip(slots, runs, strict=True):
            assert self.held[slot] and ids
            for token in ids:
                self._append(slot, [token])
                found.append(self.logits(self.held[slot]))
        return torch.stack(found)

    def logits(self, sequence: list[int]) -> torch.Tensor:
        row = torch.rand(self.vocab_size, generator=torch.Generator().manual_seed(hash(tuple(sequence))))
        row[self.speakable :] = -torch.inf
        if self.broken_token in sequence:
            row[3] = torch.nan
        return row * 8

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """What greedy decoding must give, computed without slots."""
        sequence = list(prompt)
        for _ in range(count):
            sequence.append(int(self.logits(sequence).argmax()))
        return sequence[len(prompt) :]

    def reset(self, slot: int) -> None:
        self.held[slot] = []

    def truncate(self, slot: int, length: int) -> bool:
        if self.recurrent and 0 < length < len(self.held[slot]):
            return False
        del self.held[slot][length:]
        return True

    def snapshot(self, slot: int) -> Snapshot:
        return Snapshot(list(self.held[slot]), self.snapshot_bytes if self.held[slot] else 0)

    def rewind(self, slot: int, length: int, snapshot: Snapshot) -> None:
        self.held[slot] = self._cut(self.held[slot], length, snapshot)

    def copy(
        self, source: int, target: int, length: int | None = None, snapshot: Snapshot | None = None
    ) -> None:
        self.held[target] = self._cut(self.held[source], length, snapshot)

    def export(self, slot: int, start: int = 0) -> State:
        return State(self.held[slot][start:], self.snapshot(slot), start)

    def restore(
        self,
        slot: int,
        states: Sequence[State],
        length: int | None = None,
        snapshot: Snapshot | None = None,
        *,
        source: int | None = None,
        kept: int = 0,
    ) -> None:
        ids = self.held[slot if source is None else source]
        end = len(ids)
        ids = ids[:kept]
        for state in states:
            assert state.start <= len(ids), "a hole between two states"
            # Of one sequence, or a later answer shows it.
            ids[state.start :] = state.ids
            end = len(ids)
        if self.recurrent and snapshot is None:
            assert length in (None, end), "a state cut without a snapshot"
        self.held[slot] = ids[:length]
        if snapshot is not None:
            assert snapshot.seen == self.held[slot], "a snapshot of other tokens"

    def _cut(self, ids: list[int], length: int | None, snapshot: Snapshot | None) -> list[int]:
        kept = ids[:length]
        if snapshot is not None:
            assert snapshot.seen == kept, "a snapshot of other tokens"
        elif self.recurrent:
            assert kept == ids, "a state cut without a snapshot"
        return kept

    def _append(self, slot: int, ids: Sequence[int]) -> None:
        self.held[slot].extend(ids)
        if len(self.held[slot]) > self.ctx:
            raise ValueError("past the context")


class RecurrentRunner(CountingRunner):
    """One with a state of 100 bytes a slot that can't be cut."""

    recurrent = True
    snapshot_bytes = 100

    def __init__(
        self, slots: int = 4, ctx: int = 64, vocab_size: int = 50, speakable: int | None = None
    ) -> None:
        super().__init__(slots, ctx, vocab_size, speakable)
        self.kv_bytes += slots * self.snapshot_bytes
