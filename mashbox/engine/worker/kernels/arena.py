"""Memory for packed matrices: large mappings that the system may back with large pages.

A decode step reads every weight once. In pages of 4 KiB that is a new page every few hundred bytes of each
stream, and prefetching stops at each; in pages of 2 MiB it goes on. Matrices are mostly smaller than such a
page, so they lie together in mappings of many.
"""

import mmap

import numpy as np
from numpy.typing import NDArray

CHUNK = 64 << 20
"""Bytes of a mapping. What nothing was written to takes no memory."""

_ALIGN = 64


class Arena:
    """Gives out pieces of mappings one behind the other; a mapping goes when all its pieces have gone."""

    def __init__(self) -> None:
        self._chunk: mmap.mmap | None = None
        self._used = 0

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """uint8 [nbytes], aligned to 64 bytes, not initialised to anything that counts."""
        if self._chunk is None or self._used + nbytes > len(self._chunk):
            self._chunk = mmap.mmap(-1, max(nbytes, CHUNK), access=mmap.ACCESS_COPY)
            self._used = 0
            if hasattr(mmap, "MADV_HUGEPAGE"):
                self._chunk.madvise(mmap.MADV_HUGEPAGE)
        piece = np.frombuffer(self._chunk, np.uint8, nbytes, self._used)
        self._used += -(-nbytes // _ALIGN) * _ALIGN
        return piece


shared = Arena()
"""The one for the weights of this process's model."""
