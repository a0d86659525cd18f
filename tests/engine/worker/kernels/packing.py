"""Weights in GGUF's blocks, made with the ``gguf`` package, and decoders packed from a module's weights."""

from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from torch import Tensor

from mashbox.engine.worker.kernels.cpu import Decoder, DecoderLayer, PackedMatrix, pack
from mashbox.engine.worker.load.model import LoadedModel


def packed(weight: Tensor, kind: str = "Q8_0") -> tuple[PackedMatrix, Tensor]:
    """A matrix [outputs, inputs] rounded to ``kind``: packed, and its numbers in float64."""
    rounding = GGMLQuantizationType[kind]
    blocks = quantize(weight.numpy(), rounding)
    return pack(kind, blocks, weight.shape[1]), torch.from_numpy(dequantize(blocks, rounding)).double()


KINDS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"]
_HALVES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where a block keeps numbers in half precision, if not at its beginning alone."""


def inputs_of(kind: str) -> int:
    """The inputs of a block."""
    return max(GGML_QUANT_SIZES[GGMLQuantizationType[kind]][0], 32)


def random_blocks(rows: int, cols: int, kind: str, seed: int = 0) -> NDArray[Any]:
    """A matrix in a file's form: any bits, scales of both signs."""
    random = np.random.default_rng(seed)
    if kind in ("F32", "F16"):
        return random.standard_normal((rows, cols)).astype("float32" if kind == "F32" else "float16")
    if kind == "BF16":
        return random.standard_normal((rows, cols)).astype(np.float32).view(np.uint16)[:, 1::2].copy()
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = random.integers(0, 256, (rows, cols // block, size), np.uint8)
    for at in _HALVES.get(kind, (0,)):
        numbers = random.standard_normal((rows, cols // block)).astype(np.float16) / np.float16(64)
        blocks[:, :, at : at + 2] = numbers[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def numbers_of(blocks: NDArray[Any], kind: str) -> Tensor:
    """The numbers of a file's rows by the ``gguf`` package, float32."""
    return torch.from_numpy(dequantize(blocks.view(np.uint8), GGMLQuantizationType[kind]).astype(np.float32))


def random_matrix(rows: int, cols: int, kind: str, seed: int = 0) -> tuple[PackedMatrix, Tensor]:
    """A random matrix, packed, and its numbers in float64."""
    blocks = random_blocks(rows, cols, kind, seed)
    return pack(kind, blocks, cols), numbers_of(blocks, kind).double()


def decoder_of(loaded: LoadedModel) -> Decoder:
    """A Llama module's weights rounded to 8 bits."""
    module: Any = loaded.module
    config = module.config
    weights: dict[str, Tensor] = module.state_dict()
    places = {
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "output": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }
    layers = []
    for number in range(config.num_hidden_layers):
        prefix = f"model.layers.{number}."
        layers.append(
            DecoderLayer(
                weights[f"{prefix}input_layernorm.weight"],
                weights[f"{prefix}post_attention_layernorm.weight"],
                {key: packed(weights[f"{prefix}{place}.weight"])[0] for key, place in places.items()},
            )
        )
    embedding = packed(weights["model.embed_tokens.weight"])[0]
    head = embedding if config.tie_word_embeddings else packed(weights["lm_head.weight"])[0]
    return Decoder(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        eps=config.rms_norm_eps,
        layers=layers,
        final_norm=weights["model.norm.weight"],
        embedding=embedding,
        head=head,
    )


def rounded(loaded: LoadedModel) -> dict[str, Tensor]:
    """The module's weights, the matrices rounded to 8 bits and unpacked again."""
    return {
        name: packed(value)[1].float() if value.ndim == 2 else value
        for name, value in loaded.module.state_dict().items()
    }


def half_bits(*numbers: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Numbers in half precision given by their bits, as bytes."""
    return np.array(numbers, np.uint16).view(np.uint8)
