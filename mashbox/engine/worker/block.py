"""Copies of arrays for the prompt cache, in memory that goes back to the system at once."""

import itertools
import math
import mmap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_ALIGN = 64
"""Bytes to whose multiples arrays are aligned."""


class Like(NamedTuple):
    """An array without memory: numpy's, or torch's where ``dtype`` is one of torch's."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)


class Block:
    """Copies of ``arrays`` one behind the other, in a mapping of its own; ``nbytes`` is what they take.

    Not from malloc: states come and go in all sizes, and a heap keeps the holes between those that stay.
    Arrays are numpy's or torch's, and so are the views.
    """

    __slots__ = ("_memory", "nbytes")

    def __init__(self, arrays: Sequence[Any]) -> None:
        likes = [Like(tuple(array.shape), array.dtype) for array in arrays]
        self._allocate(likes)
        for view, array in zip(self.views(likes), arrays, strict=True):
            view[...] = array

    @classmethod
    def like(cls, likes: Sequence[Like]) -> "Block":
        """One whose views are to be filled."""
        block = cls.__new__(cls)
        block._allocate(likes)
        return block

    def _allocate(self, likes: Sequence[Like]) -> None:
        self.nbytes = sum(like.nbytes for like in likes)
        # An empty mapping can't be made. ACCESS_COPY: private to this process, on every system.
        size = max(sum(map(_aligned, likes)), 1)
        self._memory = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)

    def views(self, likes: Sequence[Like]) -> list[Any]:
        """The copies, given the shapes and dtypes of what they were made from."""
        ends = itertools.accumulate(map(_aligned, likes))
        return [self._view(like, end - _aligned(like)) for like, end in zip(likes, ends, strict=True)]

    def _view(self, like: Like, offset: int) -> Any:
        if isinstance(like.dtype, np.dtype):
            found = np.frombuffer(self._memory, like.dtype, like.size, offset)
            return found.reshape(like.shape)
        import torch

        if not like.size:
            return torch.empty(like.shape, dtype=like.dtype)
        flat = torch.frombuffer(self._memory, dtype=like.dtype, count=like.size, offset=offset)
        return flat.view(like.shape)


def _aligned(like: Like) -> int:
    return -(-like.nbytes // _ALIGN) * _ALIGN
