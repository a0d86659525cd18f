"""Tables of rotary cosines and sines for every position, as transformers' modules compute them."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from mashbox.engine.worker.kernels.cpu import Floats
from mashbox.engine.worker.kernels.decoder import Rotation
from mashbox.engine.worker.load.heads import heads_of
from mashbox.engine.worker.load.shapes import NotFast, Shape

_FOLLOWS_LENGTH = ("dynamic", "longrope")


def rotary_tables(shape: Shape, ctx: int) -> dict[str, Rotation]:
    """By the names of ``shape.ropes``: cosines and sines, float32 [ctx, turned / 2], filled up with
    zeros to the kernels' places.

    Frequencies that would follow the sequence's length are those of ``ctx``, see
    :mod:`mashbox.engine.worker.rope`.
    """
    return {name: _table(rope, shape, ctx) for name, rope in shape.ropes.items()}


def follows_context(shape: Shape) -> bool:
    """Whether the angles of a position depend on the context that the tables are for."""
    return any(rope.get("rope_type") in _FOLLOWS_LENGTH for rope in shape.ropes.values())


def _table(rope: Mapping[str, Any], shape: Shape, ctx: int) -> Rotation:
    frequencies, scaling = _frequencies(rope, shape, ctx)
    if frequencies.size * 2 != shape.turned:
        raise NotFast(f"{frequencies.size * 2} of {shape.turned} numbers of a head are turned")
    angles = np.arange(ctx, dtype=np.float32)[:, None] * frequencies[None, :]
    places = heads_of(shape).turned_room // 2
    cosines, sines = (np.zeros((ctx, places), np.float32) for _ in range(2))
    cosines[:, : frequencies.size] = np.cos(angles) * np.float32(scaling)
    sines[:, : frequencies.size] = np.sin(angles) * np.float32(scaling)
    return cosines, sines


def _frequencies(rope: Mapping[str, Any], shape: Shape, ctx: int) -> tuple[Floats, float]:
    """Angles by position, float32 [turned / 2], and what cosines and sines are multiplied with."""
    kind = rope.get("rope_type", "default")
    if kind == "default":
        steps = np.arange(0, shape.turned, 2, dtype=np.float32) / np.float32(shape.turned)
        # Rounded after each operation, as transformers' modules do.
        powers = np.power(float(rope.get("rope_theta", 10000.0)), steps.astype(np.float64)).astype(np.float32)
        return np.float32(1) / powers, 1.0
    # The other kinds are transformers' own, imported (and torch) only for the models that have them.
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if kind not in ROPE_INIT_FUNCTIONS:
        raise NotFast(f"its rotary scaling is {kind!r}")
    config = SimpleNamespace(
        rope_parameters=dict(rope),
        head_dim=shape.head_dim,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        max_position_embeddings=shape.max_positions,
        standardize_rope_params=lambda: None,
    )
    length = ctx if kind in _FOLLOWS_LENGTH else None
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    return frequencies.float().numpy(), float(scaling)
