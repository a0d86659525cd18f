"""The state of all slots: keys and values, and the states of convolutions and recurrences.

A layer's keys live in one tensor [slots, kv_heads, ctx, key_dim], its values likewise; each state of a
linear-attention layer in one tensor [slots, ...]. All are allocated once, when the first forward pass shows
their shapes. :class:`SlotCache` is what transformers' modules get as their ``cache``.
"""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from mashbox.engine.worker.attention import Step
from mashbox.engine.worker.slot_pools import SlotPools, StateKey, no_memory


class SlotCache(SlotPools, Cache):  # type: ignore[misc]
    """transformers' cache over ``slots`` static slots of ``ctx`` tokens.

    It holds no lengths of its own while a step runs: the runner announces a :class:`Step`, the modules write
    and read through the methods below, and the runner commits. With ``gather`` a step's rows are copied
    together: worth it for models that expand latents into keys between cache and attention, and would
    otherwise expand those of the slots between as well.
    """

    def __init__(self, slots: int, ctx: int, *, gather: bool = False) -> None:
        SlotPools.__init__(self, slots, ctx)
        Cache.__init__(self, layers=[])
        self._gather = gather
        self._gathered: dict[StateKey, Tensor] = {}
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

    # Its own.

    def _running(self) -> Step:
        if self._step is None:
            raise RuntimeError("The slot cache was used outside a step.")
        return self._step

    def _end(self) -> None:
        self._gathered.clear()
        self._step = None

    def _state(self, key: StateKey) -> Tensor | None:
        """The rows' states, which the caller may change in place; None when they are just beginning."""
        step = self._running()
        if step.starts[0] == 0 or key not in self._pools:
            return None
        if len(step.slots) == 1:
            state: Tensor = self._pools[key][step.first : step.first + 1]
            return state
        if key not in self._gathered:
            self._gathered[key] = self._pools[key][step.rows]
        return self._gathered[key]

    def _write(self, key: StateKey, state: Tensor) -> None:
        step = self._running()
        if key not in self._pools:
            self._pools[key] = self._pool(state, *state.shape[1:])
            self._lay_out()
        self._pools[key][step.rows] = state
        # What was gathered before is older than what was just written.
        self._gathered.pop(key, None)

    def _pool_of_tokens(self, like: Tensor) -> Tensor:
        return self._pool(like, like.shape[1], self.ctx, like.shape[3])

    def _pool(self, like: Tensor, *shape: int) -> Tensor:
        try:
            # An ordinary tensor, which may be changed outside of inference mode as well.
            with torch.inference_mode(False):
                return torch.zeros(self.slots, *shape, dtype=like.dtype, device=like.device)
        except RuntimeError as error:
            # What torch raises when memory is refused, on any device.
            raise no_memory(self.slots, self.ctx) from error
