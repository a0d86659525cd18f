"""The kernels' arrays as torch's tensors, which tests compare and reckon with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.kernels import cpu
from mashbox.engine.worker.kernels.cpu import PackedMatrix


def tensor(array: Any) -> Tensor:
    """Of numpy's array, or one already."""
    return torch.from_numpy(np.asarray(array))


def product(matrix: PackedMatrix, x: Tensor, **options: Any) -> Tensor:
    return tensor(cpu.product(matrix, x.numpy(), **options))


class TensorRunner(FastRunner):
    """The fast runner with logits and traces as tensors."""

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> Any:
        row = super().prefill(slot, ids, logits=logits)
        return None if row is None else tensor(row)

    def decode_runs(self, slots: Sequence[int], runs: Sequence[Sequence[int]]) -> Any:
        return tensor(super().decode_runs(slots, runs))

    def trace(self, slot: int, ids: Sequence[int]) -> Any:
        states, logits = super().trace(slot, ids)
        return tensor(states), tensor(logits)
