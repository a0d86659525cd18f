"""The state of all slots: keys and values, and the states of convolutions and recurrences.

A layer's keys live in one tensor [slots, kv_heads, ctx, key_dim], its values likewise; each state of a
linear-attention layer in one tensor [slots, ...]. All are allocated once, when the first forward pass shows
their shapes. :class:`SlotCache` is what transformers' modules get as their ``cache``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from mashbox.engine.worker.attention import Step
from mashbox.engine.worker.block import Block
from mashbox.errors import DoesNotFit

_StateKey = tuple[str, int, int]
"""("conv" or "recurrent", layer, number of the state within the layer)"""

_Layout = tuple[tuple[object, ...], ...]
"""What the pools of a cache are called, their shapes without slots and tokens, and their dtypes."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One slot's states of convolutions and recurrences, without the slot's axis, one behind the other."""

    block: Block
    layout: _Layout

    @property
    def nbytes(self) -> int:
        return self.block.nbytes


@dataclass(frozen=True, slots=True)
class SlotState:
    """One slot's exported state: copies of the tensors of its tokens ``start`` to ``length``.

    They are keys and values [kv_heads, length - start, dim], two a layer that has them, one behind the other;
    ``end`` is None of an empty slot.
    """

    start: int
    length: int
    block: Block
    end: Snapshot | None
    layout: _Layout

    @property
    def nbytes(self) -> int:
        return self.block.nbytes + (self.end.nbytes if self.end else 0)


class SlotCache(Cache):  # type: ignore[misc]
    """transformers' cache over ``slots`` static slots of ``ctx`` tokens.

    It holds no lengths of its own while a step runs: the runner announces a :class:`Step`, the modules write
    and read through the methods below, and the runner commits. With ``gather`` a step's rows are copied
    together: worth it for models that expand latents into keys between cache and attention, and would
    otherwise expand those of the slots between as well.
    """

    def __init__(self, slots: int, ctx: int, *, gather: bool = False) -> None:
        super().__init__(layers=[])
        self.slots = slots
        self.ctx = ctx
        self.lengths = [0] * slots
        self._gather = gather
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._pools: dict[_StateKey, Tensor] = {}
        self._gathered: dict[_StateKey, Tensor] = {}
        self._layout: _Layout = ()
        self._step: Step | None = None

    def __bool__(self) -> bool:
        # Its list of layers is empty, it is not: modules may ask ``if cache``.
        return True

    # What transformers' modules call.

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new tokens' keys and values [rows, kv_heads, count, dim]; views of all that count.

        The views are [span, kv_heads, longest, dim], where span runs over the slots from the step's first to
        its last; what lies beyond a row's own length is stale and must not be read.
        """
        step = self._running()
        step.writes += 1
        if layer_idx not in self._keys:
            self._keys[layer_idx] = self._pool_of_tokens(key_states)
            self._values[layer_idx] = self._pool_of_tokens(value_states)
            self._lay_out()
        pools = (self._keys[layer_idx], self._values[layer_idx])
        for pool, new in zip(pools, (key_states, value_states), strict=True):
            if len(step.slots) == 1:
                pool[step.slots[0], :, step.starts[0] : step.longest] = new[0]
            else:
                pool[step.rows, :, step.at] = new[:, :, 0]
        longest = step.longest
        if self._gather and step.span > len(step.slots):
            return pools[0][step.rows, :, :longest], pools[1][step.rows, :, :longest]
        span = slice(step.first, step.first + step.span)
        return pools[0][span, :, :longest], pools[1][span, :, :longest]

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return self._running().starts[0] > 0

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._state(("conv", layer_idx, state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._state(("recurrent", layer_idx, state_idx))

    def update_conv_state(
        self,
        conv_states: Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Append inputs [rows, channels, count] of a convolution and keep the last ``conv_kernel_size``.

        Returns what the convolution reads: the inputs with the kept ones before them.
        """
        key = ("conv", layer_idx, state_idx)
        before = self._state(key)
        size = self._pools[key].shape[-1] if key in self._pools else conv_kernel_size or conv_states.shape[-1]
        seen = conv_states if before is None else torch.cat([before, conv_states], dim=-1)
        if seen.shape[-1] < size:
            seen = torch.nn.functional.pad(seen, (size - seen.shape[-1], 0))
        self._write(key, seen[..., -size:])
        return seen

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        self._write(("recurrent", layer_idx, state_idx), recurrent_states)
        return recurrent_states

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(self._running().starts)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self._running().longest, 0

    # What the runner calls.

    def allocate(self, layers: int, heads: int, dim: int, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
        """Make the pools of a runner that writes them itself: keys and values of each layer.

        They are [slots, heads, ctx, dim].
        """
        like = torch.empty(1, heads, 1, dim, dtype=dtype)
        for layer in range(layers):
            self._keys[layer] = self._pool_of_tokens(like)
            self._values[layer] = self._pool_of_tokens(like)
        self._lay_out()
        return list(zip(self._keys.values(), self._values.values(), strict=True))

    def begin(self, step: Step) -> None:
        self._step = step
        self._gathered.clear()

    def commit(self) -> None:
        """End the step: in-place changes of gathered states go back, lengths grow."""
        step = self._running()
        for key, state in self._gathered.items():
            self._pools[key][step.rows] = state
        for slot, start in zip(step.slots, step.starts, strict=True):
            self.lengths[slot] = start + step.count
        self._end()

    def abandon(self) -> None:
        """End a step that failed: its slots hold nothing that can be relied on, so they become empty."""
        for slot in self._running().slots:
            self.lengths[slot] = 0
        self._end()

    @property
    def nbytes(self) -> int:
        """Bytes of all pools."""
        return sum(t.nbytes for t in [*self._keys.values(), *self._values.values(), *self._pools.values()])

    @property
    def recurrent(self) -> bool:
        """Whether there are states that can't be cut back to an earlier token."""
        return bool(self._pools)

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of one slot's states."""
        return sum(pool.nbytes for pool in self._pools.values()) // self.slots

    def snapshot(self, slot: int) -> Snapshot:
        return Snapshot(Block(self._states(slot)), self._layout)

    def rewind(self, slot: int, length: int, snapshot: Snapshot) -> None:
        states = self._states(slot)
        for to, held in zip(states, snapshot.block.views(states), strict=True):
            to.copy_(held)
        self.lengths[slot] = length

    def copy(self, source: int, target: int, length: int, snapshot: Snapshot | None) -> None:
        """Copy ``length`` tokens; the states come from ``snapshot`` where there is one."""
        for to, held in zip(self._tokens(target, length), self._tokens(source, length), strict=True):
            to.copy_(held)
        if snapshot is None:
            for pool in self._pools.values():
                pool[target] = pool[source]
        else:
            self.rewind(target, length, snapshot)
        self.lengths[target] = length

    def export(self, slot: int, start: int = 0) -> SlotState:
        length = self.lengths[slot]
        end = self.snapshot(slot) if length else None
        return SlotState(start, length, Block(self._tokens(slot, length, start)), end, self._layout)

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
            for to, held in zip(self._tokens(slot, kept), self._tokens(source, kept), strict=True):
                to.copy_(held)
        for state in states:
            room = self._tokens(slot, state.length, state.start)
            wanted = max(length - state.start, 0)
            for to, held in zip(room, state.block.views(room), strict=True):
                to[:, :wanted] = held[:, :wanted]
        if end := snapshot or (states[-1].end if states else None):
            self.rewind(slot, length, end)
        elif source != slot:
            for pool in self._pools.values():
                pool[slot] = pool[source]
        self.lengths[slot] = length

    def fits(self, state: SlotState | Snapshot) -> bool:
        """Whether it was exported by a cache of this shape; a whole state must have room here too."""
        return state.layout == self._layout and (isinstance(state, Snapshot) or state.length <= self.ctx)

    # Its own.

    def _tokens(self, slot: int, length: int, start: int = 0) -> list[Tensor]:
        """Views of a slot's keys and values [kv_heads, length - start, dim]."""
        return [pool[slot, :, start:length] for pool in [*self._keys.values(), *self._values.values()]]

    def _states(self, slot: int) -> list[Tensor]:
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

    def _running(self) -> Step:
        if self._step is None:
            raise RuntimeError("The slot cache was used outside a step.")
        return self._step

    def _end(self) -> None:
        self._gathered.clear()
        self._step = None

    def _pool_of_tokens(self, like: Tensor) -> Tensor:
        return self._pool(like, like.shape[1], self.ctx, like.shape[3])

    def _pool(self, like: Tensor, *shape: int) -> Tensor:
        try:
            # An ordinary tensor, which may be changed outside of inference mode as well.
            with torch.inference_mode(False):
                return torch.zeros(self.slots, *shape, dtype=like.dtype, device=like.device)
        except RuntimeError as error:
            # What torch raises when memory is refused, on any device.
            raise DoesNotFit(
                f"There is no memory for {self.slots} slots of {self.ctx} tokens.",
                "Use a smaller --ctx or fewer --slots.",
            ) from error

    def _state(self, key: _StateKey) -> Tensor | None:
        """The rows' states, which the caller may change in place; None when they are just beginning."""
        step = self._running()
        if step.starts[0] == 0 or key not in self._pools:
            return None
        if len(step.slots) == 1:
            return self._pools[key][step.first : step.first + 1]
        if key not in self._gathered:
            self._gathered[key] = self._pools[key][step.rows]
        return self._gathered[key]

    def _write(self, key: _StateKey, state: Tensor) -> None:
        step = self._running()
        if key not in self._pools:
            self._pools[key] = self._pool(state, *state.shape[1:])
            self._lay_out()
        self._pools[key][step.rows] = state
        # What was gathered before is older than what was just written.
        self._gathered.pop(key, None)
