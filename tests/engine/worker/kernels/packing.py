"""Weights in GGUF's blocks, made with the ``gguf`` package, and decoders packed from a module's weights."""

from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from torch import Tensor, nn

from mashbox.engine.worker.kernels.cpu import PackedMatrix, pack
from mashbox.engine.worker.kernels.decoder import Decoder
from mashbox.engine.worker.load.assemble import assemble
from mashbox.engine.worker.load.model import LoadedModel
from mashbox.engine.worker.load.shapes import Shape, shape_of


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


def random_blocks(rows: int, cols: int, kind: str, seed: int = 0, code: int | None = None) -> NDArray[Any]:
    """A matrix in a file's form: any bits, or ``code`` in all bytes, and scales of both signs."""
    random = np.random.default_rng(seed)
    if kind in ("F32", "F16"):
        return random.standard_normal((rows, cols)).astype("float32" if kind == "F32" else "float16")
    if kind == "BF16":
        return random.standard_normal((rows, cols)).astype(np.float32).view(np.uint16)[:, 1::2].copy()
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = random.integers(0, 256, (rows, cols // block, size), np.uint8)
    if code is not None:
        blocks[:] = code
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


class _Module:
    """A module's weights, rounded to 8 bits."""

    def __init__(self, module: nn.Module) -> None:
        self._weights: dict[str, Tensor] = module.state_dict()

    def has(self, name: str) -> bool:
        return name in self._weights

    def matrix(self, name: str, shape: tuple[int, int], rows: NDArray[np.intp] | None = None) -> PackedMatrix:
        weight = self._weights[name]
        assert weight.shape == shape
        if rows is not None:
            weight = weight[rows]
            weight[rows < 0] = 0.0
        return packed(weight)[0]

    def vector(self, name: str, size: int) -> NDArray[np.float32]:
        assert self._weights[name].shape == (size,)
        vector: NDArray[np.float32] = self._weights[name].float().numpy()
        return vector


def decoder_of(loaded: LoadedModel) -> tuple[Decoder, Shape]:
    """A module's weights rounded to 8 bits, and the shape that its configuration describes."""
    shape = shape_of(loaded.config.model_type, loaded.config.to_dict())
    return assemble(shape, _Module(loaded.module)), shape


def rounded(loaded: LoadedModel) -> dict[str, Tensor]:
    """The module's weights, the matrices rounded to 8 bits and unpacked again."""
    return {
        name: packed(value)[1].float() if value.ndim == 2 else value
        for name, value in loaded.module.state_dict().items()
    }


def half_bits(*numbers: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Numbers in half precision given by their bits, as bytes."""
    return np.array(numbers, np.uint16).view(np.uint8)
