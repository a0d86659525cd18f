"""The fast runner: own kernels over packed weights, for dense decoders of Llama's shape.

What is exact: a row's logits are the same bits alone, in any batch, read whole or in pieces, and with any
number of threads. What is not: activations are rounded to 16 bits in groups of 32, and keys and values kept
in half precision, so that logits differ a little from the exact runner's.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mashbox.engine.worker.cache import SlotCache
from mashbox.engine.worker.kernels.cpu import Decoder, Engine
from mashbox.engine.worker.slot_runner import SlotRunner

BLOCK = 64
"""Rows of a prompt in one step: enough that weights are read rarely, few enough for the caches."""


class FastRunner(SlotRunner):
    """A :class:`~mashbox.engine.worker.runner.Runner` over packed weights.

    ``cosine`` and ``sine`` are float32 [ctx, head_dim / 2]. ``instructions`` asks for another set than the
    processor's best, for tests.
    """

    def __init__(
        self,
        decoder: Decoder,
        cosine: Tensor,
        sine: Tensor,
        *,
        slots: int,
        threads: int,
        instructions: int | None = None,
    ) -> None:
        ctx = cosine.shape[0]
        if slots < 1 or ctx < 1 or threads < 1:
            raise ValueError(f"slots, ctx and threads must be at least 1, not {slots}, {ctx} and {threads}.")
        self.slots = slots
        self.ctx = ctx
        self.vocab_size = decoder.head.rows
        self.weight_bytes = decoder.weight_bytes
        self._cache = SlotCache(slots, ctx)
        pools = self._cache.allocate(len(decoder.layers), decoder.kv_heads, decoder.head_dim, torch.float16)
        self.kv_bytes = self._cache.nbytes
        self._engine = Engine(decoder, pools, cosine, sine, threads=threads, instructions=instructions)

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> Tensor | None:
        self._check_prefill(slot, ids)
        for first in range(0, len(ids), BLOCK):
            piece = ids[first : first + BLOCK]
            count = len(piece)
            start = self._cache.lengths[slot]
            wanted = [count - 1] if logits and first + count == len(ids) else []
            found = self._engine.step(piece, [slot] * count, range(start, start + count), wanted)
            self._cache.lengths[slot] = start + count
        return found[0] if logits else None

    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        self._check_decode(slots, ids)
        starts = [self._cache.lengths[slot] for slot in slots]
        found = self._engine.step(ids, slots, starts, range(len(ids)))
        for slot, start in zip(slots, starts, strict=True):
            self._cache.lengths[slot] = start + 1
        return found
