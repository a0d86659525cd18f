"""Several rows of logits at once, as a step has them."""

from collections.abc import Sequence

import torch

from mashbox.engine.worker.sampler import RowSampler


def sample(logits: torch.Tensor, rows: Sequence[RowSampler]) -> list[int | None]:
    """The next token of each row of ``logits`` (float32 [rows, vocab_size])."""
    return [row.token(line) for row, line in zip(rows, logits.numpy(), strict=True)]
