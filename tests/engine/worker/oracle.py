"""What transformers answers by itself: the reference of every greedy comparison."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


def generate(module: nn.Module, ids: Sequence[int], count: int) -> list[int]:
    """``count`` greedy tokens behind ``ids`` by the module's own attention and cache; nothing ends them."""
    model: Any = module
    model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    tokens = torch.tensor([list(ids)])
    output = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    return output[0, len(ids) :].tolist()
