"""Rotary frequencies that would follow the sequence's length are fixed for the context instead.

Two kinds do so in transformers: ``longrope`` has one set up to the length of pretraining and another beyond,
``dynamic`` stretches with the longest sequence seen. Either is chosen by the longest row of a forward pass,
so that one request would change another's, and a prompt read in pieces would be turned by both sets. Here the
set for the whole context is used from the first token on, as llama.cpp and vLLM do. Within the length of
pretraining that is the set that ``generate()`` uses; a longer context takes the long set for short
sequences too.
"""

from typing import Any

import torch
from torch import nn

_FOLLOWS_LENGTH = ("dynamic", "longrope")
_FIXED = "fixed"


@torch.inference_mode()
def fix_frequencies(module: nn.Module, ctx: int) -> None:
    """Choose the frequencies for ``ctx`` tokens in every rotary embedding of ``module``, once and for all."""
    for child in module.modules():
        kinds = getattr(child, "rope_type", None)
        if isinstance(kinds, str):
            if kinds in _FOLLOWS_LENGTH:
                _choose(child, ctx)
                child.rope_type = _FIXED  # type: ignore[assignment]
        elif isinstance(kinds, dict):
            for layer_type in [key for key, kind in kinds.items() if kind in _FOLLOWS_LENGTH]:
                _choose(child, ctx, layer_type)
                kinds[layer_type] = _FIXED


def _choose(rotary: Any, ctx: int, *layer_type: str) -> None:
    device = rotary.inv_freq.device if hasattr(rotary, "inv_freq") else torch.device("cpu")
    rotary(torch.zeros(1, device=device), torch.tensor([[ctx - 1]], device=device), *layer_type)
