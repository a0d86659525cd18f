"""The state of all slots, whatever runs on it: keys and values, and what else a slot keeps.

A layer's keys live in one array [slots, kv_heads, ctx, key_dim], its values likewise; each state of a
linear-attention layer in one array [slots, ...]. Arrays are numpy's, or torch's tensors: what is done to
them here reads the same for both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mashbox.engine.worker.block import Block, Like
from mashbox.errors import DoesNotFit

Array = Any
"""numpy's, or torch's tensor."""

StateKey = tuple[str, int, int]
"""("conv" or "recurrent", layer, number of the state within the layer)"""

Layout = tuple[tuple[object, ...], ...]
"""What the pools of a cache are called, their shapes without slots and tokens, and their dtypes."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One slot's states of convolutions and recurrences, without the slot's axis, one behind the other."""

    block: Block
    layout: Layout

    @property
    def nbytes(self) -> int:
        return self.block.nbytes


@dataclass(frozen=True, slots=True)
class SlotState:
    """One slot's exported state: copies of the arrays of its tokens ``start`` to ``length``.

    They are keys and values [kv_heads, length - start, dim], two a layer that has them, one behind the other;
    ``end`` is None of an empty slot.
    """

    start: int
    length: int
    block: Block
    end: Snapshot | None
    layout: Layout

    @property
    def nbytes(self) -> int:
        return self.block.nbytes + (self.end.nbytes if self.end else 0)


class SlotPools:
    """The pools of ``slots`` static slots of ``ctx`` tokens, and what can be done to a slot's state.

    ``lengths`` are the tokens that each slot holds.
    """

    def __init__(self, slots: int, ctx: int) -> None:
        self.slots = slots
        self.ctx = ctx
        self.lengths = [0] * slots
        self._keys: dict[int, Array] = {}
        self._values: dict[int, Array] = {}
        self._pools: dict[StateKey, Array] = {}
        self._layout: Layout = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all pools."""
        return sum(pool.nbytes for pool in [*self._token_pools(), *self._pools.values()])

    @property
    def recurrent(self) -> bool:
        """Whether there are states that can't be cut back to an earlier token."""
        return bool(self._pools)

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of one slot's states."""
        return int(sum(pool.nbytes for pool in self._pools.values())) // self.slots

    def snapshot(self, slot: int) -> Snapshot:
        return Snapshot(Block(self._states(slot)), self._layout)

    def rewind(self, slot: int, length: int, snapshot: Snapshot) -> None:
        states = self._states(slot)
        likes = [Like(tuple(state.shape), state.dtype) for state in states]
        for to, held in zip(states, snapshot.block.views(likes), strict=True):
            to[...] = held
        self.lengths[slot] = length

    def copy(self, source: int, target: int, length: int, snapshot: Snapshot | None) -> None:
        """Copy ``length`` tokens; the states come from ``snapshot`` where there is one."""
        self._copy_tokens(source, target, length)
        if snapshot is None:
            for pool in self._pools.values():
                pool[target] = pool[source]
        else:
            self.rewind(target, length, snapshot)
        self.lengths[target] = length

    def export(self, slot: int, start: int = 0) -> SlotState:
        length = self.lengths[slot]
        end = self.snapshot(slot) if length else None
        block = Block.like(self._shapes(length - start))
        self._read_tokens(slot, start, block.views(self._shapes(length - start)))
        return SlotState(start, length, block, end, self._layout)

    def restore(
        self,
        slot: int,
        states: Sequence[SlotState],
        length: int,
        snapshot: Snapshot | None,
        source: int,
        kept: int,
    ) -> None:
        """``kept`` tokens of ``source``, then those of each state, up to ``length``."""
        if source != slot:
            self._copy_tokens(source, slot, kept)
        for state in states:
            held = state.block.views(self._shapes(state.length - state.start))
            wanted = max(min(length, state.length) - state.start, 0)
            self._write_tokens(slot, state.start, [rows[:, :wanted] for rows in held])
        if end := snapshot or (states[-1].end if states else None):
            self.rewind(slot, length, end)
        elif source != slot:
            for pool in self._pools.values():
                pool[slot] = pool[source]
        self.lengths[slot] = length

    def fits(self, state: SlotState | Snapshot) -> bool:
        """Whether it was exported by a cache of this shape; a whole state must have room here too."""
        return state.layout == self._layout and (isinstance(state, Snapshot) or state.length <= self.ctx)

    def _shapes(self, count: int) -> list[Like]:
        """What keys and values of ``count`` tokens are like: [kv_heads, count, dim]."""
        return [Like((pool.shape[1], count, pool.shape[3]), pool.dtype) for pool in self._token_pools()]

    def _read_tokens(self, slot: int, start: int, out: Sequence[Array]) -> None:
        """Copy the slot's tokens from ``start`` on into keys and values [kv_heads, count, dim]."""
        for pool, rows in zip(self._token_pools(), out, strict=True):
            rows[...] = pool[slot, :, start : start + rows.shape[1]]

    def _write_tokens(self, slot: int, start: int, held: Sequence[Array]) -> None:
        """The other way."""
        for pool, rows in zip(self._token_pools(), held, strict=True):
            pool[slot, :, start : start + rows.shape[1]] = rows

    def _copy_tokens(self, source: int, target: int, length: int) -> None:
        for pool in self._token_pools():
            pool[target, :, :length] = pool[source, :, :length]

    def _token_pools(self) -> list[Array]:
        return [*self._keys.values(), *self._values.values()]

    def _states(self, slot: int) -> list[Array]:
        """Views of a slot's states."""
        return [pool[slot] for pool in self._pools.values()]

    def _lay_out(self) -> None:
        """Note the pools that there are now."""
        pools = [*self._keys.items(), *self._values.items(), *self._pools.items()]
        counted = len(self._keys) + len(self._values)
        self._layout = tuple(
            # Of keys and values without the tokens, of which contexts differ.
            (key, (pool.shape[1], pool.shape[3]) if index < counted else pool.shape[1:], pool.dtype)
            for index, (key, pool) in enumerate(pools)
        )


def no_memory(slots: int, ctx: int) -> DoesNotFit:
    """What to raise where the system has no memory for pools."""
    return DoesNotFit(
        f"There is no memory for {slots} slots of {ctx} tokens.", "Use a smaller --ctx or fewer --slots."
    )
