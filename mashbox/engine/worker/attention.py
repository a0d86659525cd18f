"""Attention over slots: every row attends to its own tokens only, read in place from the cache.

Registered with transformers under :data:`SLOT_ATTENTION`, so that its modules call
:func:`slot_attention` in place of their own attention, and :func:`slot_mask` in place of building a mask.
Causality and offsets follow from the :class:`Step` that the runner sets around each forward pass; of a mask
only the width of its sliding window is taken over.

What is exact: each row's attention is computed by itself, so it does not depend on the other rows. The
result differs from transformers' own in the last bits only, as sums run in another order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from mashbox.errors import UnsupportedModel

SLOT_ATTENTION = "mashbox_slots"

_BLOCK = 256
"""Queries of a prompt that attend at once: few enough that a block leaves out most of the keys behind it
(or before its window), many enough for the fused kernel. Measured: never slower than all at once."""

_MASK_ELEMENTS = 1 << 22
"""Upper bound of a block's mask, in elements (16 MiB in float32); fewer queries where it would be more."""

_SCORE_ELEMENTS = 1 << 23
"""Upper bound of a block's scores over all heads where they are written out (32 MiB in float32)."""


@dataclass(slots=True)
class Step:
    """One forward pass: ``count`` new tokens for each of ``slots``, row by row.

    ``starts[i]`` is the number of tokens that ``slots[i]`` holds already. ``first`` is the lowest slot:
    keys and values arrive as a view of the slots from there on. ``rows`` and ``at`` are ``slots`` and
    ``starts`` as int64 tensors, made once for all layers. ``writes`` and ``reads`` count the layers that
    put keys into the cache and those whose attention came here.
    """

    slots: list[int]
    starts: list[int]
    count: int
    rows: Tensor
    at: Tensor
    first: int = field(init=False)
    masks: dict[tuple[int, ...], Tensor] = field(default_factory=dict)
    writes: int = 0
    reads: int = 0

    def __post_init__(self) -> None:
        self.first = min(self.slots)

    @property
    def span(self) -> int:
        """Slots from the first to the last one, those between that take no part included."""
        return max(self.slots) - self.first + 1

    @property
    def longest(self) -> int:
        """Tokens of the longest row, the new ones included."""
        return max(self.starts) + self.count


_step: ContextVar[Step] = ContextVar("mashbox_step")


@contextmanager
def running(step: Step) -> Iterator[None]:
    """Make ``step`` the one that attention belongs to."""
    token = _step.set(step)
    try:
        yield
    finally:
        _step.reset(token)


def slot_mask(
    *, mask_function: Callable[..., Any], local_size: int | None = None, use_vmap: bool = False, **_: Any
) -> Tensor | None:
    """Called by transformers' modules for each kind of mask they use: None for a plain causal one.

    For a sliding window of ``local_size`` keys a stand-in [1, 1, 1, local_size] without memory of its own:
    its last dimension carries the width to :func:`slot_attention`. Raises UnsupportedModel for any other
    pattern.
    """
    if use_vmap:
        raise UnsupportedModel("This model overlays its causal mask with another.")
    if local_size is None:
        return None
    if local_size < 1:  # made by a model whose windows are switched off, and used by none of its layers
        return torch.zeros(1, 1, 1, 0)
    at = [torch.tensor(position) for position in (local_size, 0, 1)]
    if bool(mask_function(0, 0, at[0], at[1])) or not bool(mask_function(0, 0, at[0], at[2])):
        raise UnsupportedModel("This model attends within fixed chunks of the context.")
    return torch.zeros(()).expand(1, 1, 1, local_size)


AttentionMaskInterface.register(SLOT_ATTENTION, slot_mask)


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer, called by transformers' modules.

    ``query`` is [rows, heads, count, key_dim], or only the last of the step's tokens where a model has no
    use for the others. ``key`` and ``value`` are [span, kv_heads, longest, dim], the cache's view of all
    slots from the step's first to its last, or [rows, ...] where the cache gathered them.
    ``attention_mask`` is what :func:`slot_mask` returned: as wide as the keys a query sees, itself included.
    ``s_aux`` [heads] are attention sinks, ``softcap`` bounds the scores. Returns
    [rows, count, heads, value_dim] and None for the weights.
    """
    step = _step.get()
    step.reads += 1
    if not getattr(module, "is_causal", True):
        raise UnsupportedModel(f"{type(module).__name__} is not causal.")
    window = None if attention_mask is None else attention_mask.shape[-1]
    if window == 0:
        raise UnsupportedModel(f"{type(module).__name__} has a sliding window of no keys.")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    attend = _Attend(scale, softcap, s_aux)
    one = query.shape[2] == 1
    viewed = key.shape[0] == step.span
    outputs = []
    for row, slot in enumerate(step.slots):
        place = slot - step.first if viewed else row
        held = slice(place, place + 1)
        start = step.starts[row] + step.count - query.shape[2]
        arguments = (query[row : row + 1], key[held], value[held], start, window)
        outputs.append(_one(attend, *arguments) if one else _many(attend, step, *arguments))
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return out.transpose(1, 2), None


AttentionInterface.register(SLOT_ATTENTION, slot_attention)


@dataclass(frozen=True, slots=True)
class _Attend:
    """Softmax attention of one row over the given keys, grouped heads without repeated keys."""

    scale: float
    softcap: float | None
    sinks: Tensor | None

    def explicit_for(self, key: Tensor, value: Tensor) -> bool:
        """Whether the scores must be in memory: the fused kernel can't change them on their way."""
        return self.softcap is not None or self.sinks is not None or key.shape[-1] != value.shape[-1]

    def fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=self.scale, enable_gqa=grouped
        )

    def explicit(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The same with the scores in memory: [1, heads, n, d] over [1, kv_heads, keys, d]."""
        heads, count = query.shape[1:3]
        kv_heads, keys = key.shape[1:3]
        folded = query[0].reshape(kv_heads, heads // kv_heads * count, -1)
        scores = (folded * self.scale) @ key[0].transpose(1, 2)
        scores = scores.view(heads, count, keys)
        if self.softcap is not None:
            scores = scores.div_(self.softcap).tanh_().mul_(self.softcap)
        if mask is not None:
            scores.add_(mask)
        if self.sinks is not None:
            sinks = self.sinks.to(scores.dtype).view(heads, 1, 1).expand(heads, count, 1)
            scores = torch.cat([scores, sinks], dim=-1)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32)[..., :keys].to(value.dtype)
        return (weights.reshape(kv_heads, -1, keys) @ value[0]).view(1, heads, count, -1)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        way = self.explicit if self.explicit_for(key, value) else self.fused
        return way(query, key, value, mask)


def _one(
    attend: _Attend, query: Tensor, key: Tensor, value: Tensor, start: int, window: int | None
) -> Tensor:
    """One new token: it sees everything up to itself, so no mask is needed."""
    end = start + 1
    begin = max(0, end - window) if window else 0
    key, value = key[:, :, begin:end], value[:, :, begin:end]
    if attend.explicit_for(key, value):
        return attend(query, key, value, None)
    # The query heads of one group become the queries of its one key head.
    folded = query.reshape(1, key.shape[1], -1, query.shape[-1])
    return attend(folded, key, value, None).reshape(1, query.shape[1], 1, -1)


def _many(
    attend: _Attend, step: Step, query: Tensor, key: Tensor, value: Tensor, start: int, window: int | None
) -> Tensor:
    """A piece of a prompt: causal from ``start`` on, in blocks of queries that reach only their own keys."""
    count = query.shape[2]
    if window and window >= start + count:
        window = None
    reach = min(start + count, window + _BLOCK) if window else start + count
    limit = _SCORE_ELEMENTS // query.shape[1] if attend.explicit_for(key, value) else _MASK_ELEMENTS
    block = max(1, min(_BLOCK, limit // reach))
    pieces = []
    for first in range(0, count, block):
        last = min(first + block, count)
        begin = max(0, start + first + 1 - window) if window else 0
        keys = slice(begin, start + last)
        mask = _mask(step, query, start + first, start + last, begin, window)
        pieces.append(attend(query[:, :, first:last], key[:, :, keys], value[:, :, keys], mask))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=2)


def _mask(step: Step, like: Tensor, first: int, last: int, begin: int, window: int | None) -> Tensor:
    """0 where a query at positions ``first`` to ``last`` sees a key from ``begin`` on, -inf elsewhere.

    Kept for the step's other layers, as far as there is room for them.
    """
    name = (first, last, begin, window or 0)
    mask = step.masks.get(name)
    if mask is None:
        queries = torch.arange(first, last, device=like.device).unsqueeze(1)
        keys = torch.arange(begin, last, device=like.device)
        hidden = keys > queries
        if window:
            hidden |= keys <= queries - window
        mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
        mask.masked_fill_(hidden, float("-inf"))
        if sum(m.numel() for m in step.masks.values()) + mask.numel() <= 2 * _MASK_ELEMENTS:
            step.masks[name] = mask
    return mask
