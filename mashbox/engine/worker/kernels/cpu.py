"""Python's side of the CPU kernels (``cpu/mashbox_cpu.h``): packed matrices, products, and whole steps.

What the kernels promise: a row's result is the same bits alone and among others, with any number of threads
and any cut of a prompt into pieces. Activations are rounded to 16 bits, one scale for each group of 32.
"""

import ctypes
import functools
import weakref
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray
from torch import Tensor

from mashbox.engine.worker.kernels.compile import library_path
from mashbox.errors import UsageError

GROUP = 32
"""Numbers of a row that share a scale: the inputs of every matrix come in multiples of this."""

_KINDS = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "BF16": 30,
}
"""ggml's numbers of the types that the kernels multiply with."""


class _Matrix(Structure):
    _fields_ = (("kind", c_int64), ("rows", c_int64), ("cols", c_int64), ("data", c_void_p))


_PROJECTIONS = ("query", "key", "value", "output", "gate", "up", "down")


class _Layer(Structure):
    _fields_ = (
        ("input_norm", c_void_p),
        ("output_norm", c_void_p),
        *((name, _Matrix) for name in _PROJECTIONS),
        ("keys", c_void_p),
        ("values", c_void_p),
    )


_COUNTS = ("layers", "hidden", "inner", "heads", "kv_heads", "head_dim", "vocab", "slots", "ctx")


class _Model(Structure):
    _fields_ = (
        *((name, c_int64) for name in _COUNTS),
        ("eps", c_float),
        ("scale", c_float),
        ("layer", POINTER(_Layer)),
        ("final_norm", c_void_p),
        ("embedding", _Matrix),
        ("head", _Matrix),
        ("cosine", c_void_p),
        ("sine", c_void_p),
    )


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix of ``rows`` outputs and ``cols`` inputs as the kernels read it, of ggml's type ``kind``."""

    kind: str
    rows: int
    cols: int
    data: Tensor

    def struct(self) -> _Matrix:
        return _Matrix(_KINDS[self.kind], self.rows, self.cols, self.data.data_ptr())

    def row(self, number: int) -> Tensor:
        """One output's weights, float32 [cols]."""
        if not 0 <= number < self.rows:
            raise IndexError(f"The matrix has {self.rows} rows, none of number {number}.")
        out = torch.empty(self.cols)
        _library().mashbox_unpack(self.struct(), number, out.data_ptr())
        return out


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Norms float32 [hidden]; ``projections`` by their names in the interface."""

    input_norm: Tensor
    output_norm: Tensor
    projections: dict[str, PackedMatrix]


@dataclass(frozen=True, slots=True)
class Decoder:
    """A dense decoder of Llama's shape. ``head`` may be the embedding itself.

    Heads are turned in halves: number i of a head with number i + head_dim / 2.
    """

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    layers: Sequence[DecoderLayer]
    final_norm: Tensor
    embedding: PackedMatrix
    head: PackedMatrix

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory, a shared matrix counted once."""
        tensors = [self.final_norm, self.embedding.data, self.head.data]
        for layer in self.layers:
            tensors += [layer.input_norm, layer.output_norm]
            tensors += [matrix.data for matrix in layer.projections.values()]
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


@functools.cache
def _library() -> Any:
    """The compiled library; UsageError if the install left it out."""
    path = library_path()
    if not path.exists():
        raise UsageError(
            "The fast engine's kernels are not built in this install.",
            "Install a C++ compiler (g++), then install mashbox again; or use --engine exact.",
        )
    library = ctypes.CDLL(str(path))
    library.mashbox_packed_bytes.argtypes = (c_int64, c_int64, c_int64)
    library.mashbox_packed_bytes.restype = c_int64
    library.mashbox_pack.argtypes = (c_int64, c_void_p, c_int64, c_int64, c_void_p)
    library.mashbox_pack.restype = None
    library.mashbox_unpack.argtypes = (POINTER(_Matrix), c_int64, c_void_p)
    library.mashbox_unpack.restype = None
    library.mashbox_open.argtypes = (POINTER(_Model), c_int, c_int)
    library.mashbox_open.restype = c_void_p
    library.mashbox_close.argtypes = (c_void_p,)
    library.mashbox_close.restype = None
    library.mashbox_step.argtypes = (
        c_void_p,
        c_int64,
        c_void_p,
        c_void_p,
        c_void_p,
        c_int64,
        c_void_p,
        c_void_p,
    )
    library.mashbox_step.restype = None
    library.mashbox_product.argtypes = (POINTER(_Matrix), c_void_p, c_int64, c_int, c_int, c_void_p)
    return library


def best_instructions() -> int:
    """The best instruction set of this processor: 0 plain C++, 1 AVX2, 2 AVX-512 with VNNI."""
    return int(_library().mashbox_best())


def can_pack(kind: str) -> bool:
    """Whether a ggml data type (``Q4_1``) is one that the kernels multiply with."""
    return kind in _KINDS


def pack(kind: str, rows: NDArray[Any], cols: int) -> PackedMatrix:
    """Pack a matrix of ``cols`` inputs from its ``rows`` [outputs, …] as ``GGUFFile.data`` gives them."""
    source = np.ascontiguousarray(rows).view(np.uint8)
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    if cols % block or cols % GROUP or source.shape[1] != cols // block * block_bytes:
        raise ValueError(f"Rows of {source.shape[1]} bytes do not hold {cols} weights of type {kind}.")
    number, library = _KINDS[kind], _library()
    data = torch.empty(library.mashbox_packed_bytes(number, source.shape[0], cols), dtype=torch.uint8)
    library.mashbox_pack(number, source.ctypes.data, source.shape[0], cols, data.data_ptr())
    return PackedMatrix(kind, source.shape[0], cols, data)


def product(matrix: PackedMatrix, x: Tensor, *, threads: int = 1, instructions: int | None = None) -> Tensor:
    """float32 [rows, outputs] = ``x`` (float32 [rows, inputs]) times the transposed matrix."""
    if x.dtype != torch.float32 or x.ndim != 2 or x.shape[1] != matrix.cols or threads < 1:
        raise ValueError(f"The matrix takes float32 rows of {matrix.cols} numbers.")
    x = x.contiguous()
    out = torch.empty(x.shape[0], matrix.rows)
    chosen = best_instructions() if instructions is None else instructions
    if _library().mashbox_product(matrix.struct(), x.data_ptr(), x.shape[0], threads, chosen, out.data_ptr()):
        raise ValueError(f"This processor has no instruction set {chosen}.")
    return out


class Engine:
    """Steps of a decoder over slots whose keys and values lie in ``pools``.

    ``pools`` are float16 [slots, kv_heads, ctx, head_dim], keys and values of each layer; ``cosine`` and
    ``sine`` float32 [ctx, head_dim / 2]. The engine keeps what it points to, and its threads, until it is
    collected.
    """

    def __init__(
        self,
        decoder: Decoder,
        pools: Sequence[tuple[Tensor, Tensor]],
        cosine: Tensor,
        sine: Tensor,
        *,
        threads: int,
        instructions: int | None = None,
    ) -> None:
        self._kept = (decoder, pools, cosine, sine)
        self.vocab_size = decoder.head.rows
        layers = (_Layer * len(decoder.layers))(*map(_layer, decoder.layers, pools))
        slots, _, ctx, _ = pools[0][0].shape
        model = _Model(
            layers=len(decoder.layers),
            hidden=decoder.embedding.cols,
            inner=decoder.layers[0].projections["down"].cols,
            heads=decoder.heads,
            kv_heads=decoder.kv_heads,
            head_dim=decoder.head_dim,
            vocab=self.vocab_size,
            slots=slots,
            ctx=ctx,
            eps=decoder.eps,
            scale=decoder.head_dim**-0.5,
            layer=layers,
            final_norm=decoder.final_norm.data_ptr(),
            embedding=decoder.embedding.struct(),
            head=decoder.head.struct(),
            cosine=cosine.data_ptr(),
            sine=sine.data_ptr(),
        )
        self._layers = layers
        chosen = best_instructions() if instructions is None else instructions
        self._handle = _library().mashbox_open(model, threads, chosen)
        if not self._handle:
            raise ValueError(f"This processor has no instruction set {chosen}.")
        weakref.finalize(self, _library().mashbox_close, self._handle)

    def step(
        self, tokens: Sequence[int], slots: Sequence[int], positions: Sequence[int], wanted: Sequence[int]
    ) -> Tensor:
        """Read ``tokens[i]`` at ``positions[i]`` of ``slots[i]``; logits float32 [wanted, vocab_size].

        ``wanted`` lists the rows whose logits are computed. The caller has checked every bound.
        """
        rows = np.array([tokens, slots, positions], np.int64)
        picked = np.array(wanted, np.int64)
        out = torch.empty(len(wanted), self.vocab_size)
        _library().mashbox_step(
            self._handle,
            len(tokens),
            *(row.ctypes.data for row in rows),
            len(wanted),
            picked.ctypes.data,
            out.data_ptr(),
        )
        return out


def _layer(layer: DecoderLayer, pools: tuple[Tensor, Tensor]) -> _Layer:
    return _Layer(
        layer.input_norm.data_ptr(),
        layer.output_norm.data_ptr(),
        *(layer.projections[name].struct() for name in _PROJECTIONS),
        *(pool.data_ptr() for pool in pools),
    )
