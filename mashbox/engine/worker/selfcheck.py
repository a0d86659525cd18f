"""A model of an unproven type is compared with its own plain forward pass before it serves anyone."""

from typing import Any

import torch
from torch import nn

from mashbox.engine.worker.runner import Runner
from mashbox.errors import UnsupportedModel

_TOKENS = 48
"""Tokens compared at most; what shows only beyond them (a wider window, say) stays unproven."""

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}
"""Largest difference of logits allowed, as a share of the largest logit."""


@torch.inference_mode()
def check_against_plain(module: nn.Module, plain_attention: str, runner: Runner, dtype: torch.dtype) -> None:
    """Hold ``runner`` (over ``module``, empty slots) to the module's forward pass without a cache.

    Raises UnsupportedModel when the logits differ. The runner's own attention is in place again afterwards.
    """
    ids = _spread(min(_TOKENS, runner.ctx), runner.vocab_size)
    if len(ids) < 3:
        return
    half = len(ids) // 2
    runner.prefill(0, ids[:half], logits=False)
    read = runner.prefill(0, ids[half:-1], logits=True)
    found = [read, runner.decode([0], ids[-1:])[0]]
    runner.reset(0)
    model: Any = module
    device = next(module.parameters()).device
    own = model.config._attn_implementation
    model.set_attn_implementation(plain_attention)
    wanted = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0, -2:].float()
    model.set_attn_implementation(own)
    for row, logits in zip(wanted, found, strict=True):
        allowed = _TOLERANCE.get(dtype, 1e-3) * float(row.abs().max())
        # Written so that NaN is a difference.
        if logits is None or not float((row - logits).abs().max()) <= allowed:
            name = model.config.model_type
            raise UnsupportedModel(
                f"Models of type {name!r} give other results over slots than by themselves."
            )


def _spread(count: int, vocab_size: int) -> list[int]:
    """Token ids all over the vocabulary, the same every time."""
    return [(7 + 7919 * i) % vocab_size for i in range(count)]
