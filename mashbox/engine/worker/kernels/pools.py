"""Keys and values of all slots as the CPU kernels hold them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.worker.kernels.cpu import library
from mashbox.engine.worker.slot_pools import SlotPools, no_memory

TILE = 8
"""Positions whose keys lie together (``kTile`` of ``cpu/ops.h``)."""

Halves = NDArray[np.float16]


class KernelPools(SlotPools):
    """Half-precision pools [slots, kv_heads, room, dim], ``room`` being ``ctx`` rounded up to whole tiles.

    A head's keys are not in this order but in tiles [room / 8, dim, 8], so that a vector takes one number of
    eight positions. What is exported is in the order of all pools, and of the very size of its tokens.
    """

    def __init__(self, slots: int, ctx: int, *, layers: int, heads: int, dim: int) -> None:
        super().__init__(slots, ctx)
        self._heads, self._room, self._dim = heads, -(-ctx // TILE) * TILE, dim
        for layer in range(layers):
            self._keys[layer] = self._pool()
            self._values[layer] = self._pool()
        self._lay_out()

    @property
    def layers(self) -> list[tuple[Halves, Halves]]:
        """Keys and values of each layer."""
        return list(zip(self._keys.values(), self._values.values(), strict=True))

    def tiles(self, layer: int) -> Halves:
        """A layer's keys as they lie: a view [slots, kv_heads, room / 8, dim, 8]."""
        keys: Halves = self._keys[layer].reshape(self.slots, self._heads, -1, self._dim, TILE)
        return keys

    def _pool(self) -> Halves:
        try:
            # Not written to yet: the system gives memory as slots fill.
            return np.zeros((self.slots, self._heads, self._room, self._dim), np.float16)
        except MemoryError as error:
            raise no_memory(self.slots, self.ctx) from error

    def _read_tokens(self, slot: int, start: int, out: Sequence[Halves]) -> None:
        count = len(self._keys)
        for keys, rows in zip(self._keys.values(), out[:count], strict=True):
            self._move(library().mashbox_keys_out, keys, slot, start, rows)
        for values, rows in zip(self._values.values(), out[count:], strict=True):
            rows[...] = values[slot, :, start : start + rows.shape[1]]

    def _write_tokens(self, slot: int, start: int, held: Sequence[Halves]) -> None:
        count = len(self._keys)
        for keys, rows in zip(self._keys.values(), held[:count], strict=True):
            self._move(library().mashbox_keys_in, keys, slot, start, np.ascontiguousarray(rows))
        for values, rows in zip(self._values.values(), held[count:], strict=True):
            values[slot, :, start : start + rows.shape[1]] = rows

    def _copy_tokens(self, source: int, target: int, length: int) -> None:
        # Whole tiles: what lies behind a slot's tokens is never read.
        end = -(-length // TILE) * TILE
        for layer, values in self._values.items():
            keys = self.tiles(layer)
            keys[target, :, : end // TILE] = keys[source, :, : end // TILE]
            values[target, :, :length] = values[source, :, :length]

    def _move(self, way: object, keys: Halves, slot: int, start: int, rows: Halves) -> None:
        heads, count, dim = rows.shape
        way(keys[slot].ctypes.data, heads, self._room, dim, start, count, rows.ctypes.data)  # type: ignore[operator]
