"""Copies of tensors for the prompt cache, in memory that goes back to the system at once."""

import itertools
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

_ALIGN = 64
"""Bytes to whose multiples tensors are aligned."""


class Block:
    """Copies of ``tensors`` one behind the other, in a mapping of its own; ``nbytes`` is what they take.

    Not from malloc: states come and go in all sizes, and a heap keeps the holes between those that stay.
    """

    __slots__ = ("_memory", "nbytes")

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._allocate(tensors)
        for view, tensor in zip(self.views(tensors), tensors, strict=True):
            view.copy_(tensor)

    @classmethod
    def like(cls, tensors: Sequence[Tensor]) -> "Block":
        """One whose views are to be filled; of ``tensors`` shapes and dtypes count."""
        block = cls.__new__(cls)
        block._allocate(tensors)
        return block

    def _allocate(self, tensors: Sequence[Tensor]) -> None:
        self.nbytes = sum(tensor.nbytes for tensor in tensors)
        # An empty mapping can't be made. ACCESS_COPY: private to this process, on every system.
        size = max(sum(map(_aligned, tensors)), 1)
        self._memory = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)

    def views(self, like: Sequence[Tensor]) -> list[Tensor]:
        """The copies, given tensors of the shapes and dtypes of those they were made from."""
        ends = itertools.accumulate(map(_aligned, like))
        return [
            torch.frombuffer(self._memory, dtype=t.dtype, count=t.numel(), offset=end - _aligned(t)).view(
                t.shape
            )
            if t.numel()
            else torch.empty(t.shape, dtype=t.dtype)
            for t, end in zip(like, ends, strict=True)
        ]


def _aligned(tensor: Tensor) -> int:
    return -(-tensor.nbytes // _ALIGN) * _ALIGN
