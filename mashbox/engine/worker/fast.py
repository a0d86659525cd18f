"""The fast runner: own kernels over packed weights, for dense decoders.

What is exact: a row's logits are the same bits alone, in any batch, read whole or in pieces, and with any
number of threads. What is not: activations are rounded to 16 bits in groups of 32, or as chosen to 8, and
keys and values kept in half precision, so that logits differ a little from the exact runner's.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from mashbox.engine.worker.kernels.cpu import Floats
from mashbox.engine.worker.kernels.decoder import Decoder, Engine, Rotation
from mashbox.engine.worker.kernels.pools import KernelPools
from mashbox.engine.worker.kernels.threads import Threads
from mashbox.engine.worker.slot_runner import SlotRunner

BLOCK = 64
"""Rows of a prompt in one step: enough that weights are read rarely, few enough for the caches."""


class FastRunner(SlotRunner):
    """A :class:`~mashbox.engine.worker.runner.Runner` over packed weights.

    ``rotations`` are the tables that the decoder's layers name, for ``ctx`` positions. ``narrow`` rounds
    activations to 8 bits: faster, and further from exact. ``instructions`` asks for another set than the
    processor's best, for tests.
    """

    takes_runs = True

    def __init__(
        self,
        decoder: Decoder,
        rotations: Mapping[str, Rotation],
        *,
        slots: int,
        ctx: int,
        threads: int,
        narrow: bool = False,
        instructions: int | None = None,
    ) -> None:
        if slots < 1 or ctx < 1 or threads < 1:
            raise ValueError(f"slots, ctx and threads must be at least 1, not {slots}, {ctx} and {threads}.")
        if any(table.shape[0] < ctx for tables in rotations.values() for table in tables):
            raise ValueError(f"The rotary tables are for fewer than {ctx} positions.")
        self.slots = slots
        self.ctx = ctx
        self.vocab_size = decoder.head.rows
        self.weight_bytes = decoder.weight_bytes
        self._cache = KernelPools(
            slots, ctx, layers=len(decoder.layers), heads=decoder.kv_heads, dim=decoder.head_dim
        )
        self.kv_bytes = self._cache.nbytes
        self._engine = Engine(
            decoder, self._cache.layers, rotations, threads=threads, narrow=narrow, instructions=instructions
        )
        self._threads = Threads(threads)
        self._trace_shape = (len(decoder.layers) + 1, decoder.embeddings.cols)

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> Floats | None:
        self._check_prefill(slot, ids)
        for first in range(0, len(ids), BLOCK):
            piece = ids[first : first + BLOCK]
            count = len(piece)
            start = self._cache.lengths[slot]
            wanted = [count - 1] if logits and first + count == len(ids) else []
            found = self._step(piece, [slot] * count, range(start, start + count), wanted)
            self._cache.lengths[slot] = start + count
        return found[0] if logits else None

    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> Floats:
        return self.decode_runs(slots, [[token] for token in ids])

    def decode_runs(self, slots: Sequence[int], runs: Sequence[Sequence[int]]) -> Floats:
        self._check_runs(slots, runs)
        lengths = self._cache.lengths
        tokens = [token for ids in runs for token in ids]
        owners = [slot for slot, ids in zip(slots, runs, strict=True) for _ in ids]
        positions = [
            lengths[slot] + offset
            for slot, ids in zip(slots, runs, strict=True)
            for offset in range(len(ids))
        ]
        found = self._step(tokens, owners, positions, range(len(tokens)))
        for slot, ids in zip(slots, runs, strict=True):
            lengths[slot] += len(ids)
        return found

    def _step(
        self, tokens: Sequence[int], slots: Sequence[int], positions: Sequence[int], wanted: Sequence[int]
    ) -> Floats:
        """One step, on as many threads as are of use now."""
        count = len(tokens)
        began = time.perf_counter()
        found = self._engine.step(tokens, slots, positions, wanted, threads=self._threads.of(count))
        self._threads.note(count, time.perf_counter() - began)
        return found

    def trace(self, slot: int, ids: Sequence[int]) -> tuple[Floats, Floats]:
        """Read up to BLOCK ids into an empty slot, and tell what was computed on the way.

        Returns hidden states float32 [layers + 1, ids, hidden] before each layer and behind the last, and the
        last id's logits [vocab_size]. The slot is empty afterwards.
        """
        self._check_prefill(slot, ids)
        count = len(ids)
        if self._cache.lengths[slot] or count > BLOCK:
            raise ValueError(f"A trace takes up to {BLOCK} ids and an empty slot.")
        layers, hidden = self._trace_shape
        states = np.empty((layers, count, hidden), np.float32)
        logits = self._engine.step(ids, [slot] * count, range(count), [count - 1], trace=states)
        return states, logits[0]
