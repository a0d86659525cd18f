"""Blocks: copies of their own, of any dtypes and shapes, and memory that goes back."""

import gc
from pathlib import Path

import pytest
import torch

from mashbox.engine.worker.block import Block


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
    for view, tensor in zip(block.views(tensors), wanted, strict=True):
        assert view.dtype == tensor.dtype
        assert torch.equal(view, tensor)


def test_a_block_of_nothing() -> None:
    assert Block([]).nbytes == 0
    assert Block([]).views([]) == []


def test_a_view_outlives_its_block() -> None:
    tensor = torch.arange(5000.0)
    (view,) = Block([tensor]).views([tensor])
    gc.collect()
    assert torch.equal(view, tensor)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system lists no mappings")
def test_memory_goes_back_with_its_block() -> None:
    mebibyte = torch.ones(1 << 18)
    before = _mapped()
    blocks = [Block([mebibyte]) for _ in range(32)]
    assert _mapped() - before >= 32 << 20
    # Every other one: a heap would keep the holes.
    del blocks[::2]
    assert _mapped() - before < 17 << 20


def _mapped() -> int:
    """Bytes of all mappings without a file."""
    spans = (line.split() for line in Path("/proc/self/maps").read_text().splitlines())
    bounds = (span[0].split("-") for span in spans if len(span) == 5)
    return sum(int(end, 16) - int(start, 16) for start, end in bounds)
