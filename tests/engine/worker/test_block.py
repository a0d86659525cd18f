"""Blocks: copies of their own, of any dtypes and shapes, numpy's or torch's, and memory that goes back."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mashbox.engine.worker.block import Block, Like


def likes(arrays: list[Any]) -> list[Like]:
    return [Like(tuple(array.shape), array.dtype) for array in arrays]


def test_copies_of_numpys_arrays() -> None:
    arrays: list[Any] = [
        np.arange(24, dtype=np.float16).reshape(2, 3, 4)[:, :2],
        np.empty((2, 0, 4), np.float32),
        np.array(7, np.int64),
    ]
    wanted = [array.copy() for array in arrays]
    block = Block(arrays)
    assert block.nbytes == 16 * 2 + 0 + 8
    for array in arrays:
        array[...] = 0
    for view, array in zip(block.views(likes(arrays)), wanted, strict=True):
        assert view.dtype == array.dtype and np.array_equal(view, array)
    empty = Block.like(likes(arrays))
    empty.views(likes(arrays))[0][...] = wanted[0]
    assert np.array_equal(empty.views(likes(arrays))[0], wanted[0])


def test_copies_are_their_own_whatever_the_dtype() -> None:
    tensors = [
        torch.arange(24, dtype=torch.float32).view(2, 3, 4)[:, :2],
        torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16),
        torch.empty(2, 0, 4),
        torch.tensor(7, dtype=torch.int64),
    ]
    wanted = [tensor.clone() for tensor in tensors]
    block = Block(tensors)
    assert block.nbytes == 16 * 4 + 3 * 2 + 0 + 8
    for tensor in tensors:
        tensor.zero_()
    for view, tensor in zip(block.views(likes(tensors)), wanted, strict=True):
        assert view.dtype == tensor.dtype
        assert torch.equal(view, tensor)


def test_a_block_of_nothing() -> None:
    assert Block([]).nbytes == 0
    assert Block([]).views([]) == []


def test_a_view_outlives_its_block() -> None:
    tensor = torch.arange(5000.0)
    (view,) = Block([tensor]).views(likes([tensor]))
    gc.collect()
    assert torch.equal(view, tensor)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system lists no mappings")
def test_memory_goes_back_with_its_block() -> None:
    # Large enough that what else this process gives back meanwhile is little beside them.
    eight = np.ones(2 << 20, np.float32)
    gc.collect()
    before = _mapped()
    blocks = [Block([eight]) for _ in range(32)]
    assert _mapped() - before > 240 << 20
    # Every other one: a heap would keep the holes.
    del blocks[::2]
    assert _mapped() - before < 144 << 20


def _mapped() -> int:
    """Bytes of all mappings without a file."""
    spans = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    bounds = (span[0].split("-") for span in spans if len(span) == 5)
    return sum(int(end, 16) - int(start, 16) for start, end in bounds)
