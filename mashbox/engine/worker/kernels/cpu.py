"""Python's side of the CPU kernels (``cpu/mashbox_cpu.h``): packed matrices and their products.

What the kernels promise: a row's result is the same bits alone and among others, with any number of threads
and any cut of a prompt into pieces. Activations are rounded to 16 bits, or as chosen to 8, with one scale for
each group of 32.
"""

import ctypes
import functools
from ctypes import POINTER, Structure, c_double, c_float, c_int, c_int64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from mashbox.engine.worker.kernels import arena
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


Floats = NDArray[np.float32]


class MatrixStruct(Structure):
    """``mashbox_matrix`` of the interface."""

    _fields_ = (("kind", c_int64), ("rows", c_int64), ("cols", c_int64), ("data", c_void_p))


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix of ``rows`` outputs and ``cols`` inputs as the kernels read it, of ggml's type ``kind``."""

    kind: str
    rows: int
    cols: int
    data: NDArray[np.uint8]

    def struct(self) -> MatrixStruct:
        return MatrixStruct(_KINDS[self.kind], self.rows, self.cols, self.data.ctypes.data)

    def row(self, number: int) -> Floats:
        """One output's weights, float32 [cols]."""
        if not 0 <= number < self.rows:
            raise IndexError(f"The matrix has {self.rows} rows, none of number {number}.")
        out = np.empty(self.cols, np.float32)
        library().mashbox_unpack(self.struct(), number, out.ctypes.data)
        return out


@functools.cache
def library() -> Any:
    """The compiled library; UsageError if the install left it out."""
    path = library_path()
    if not path.exists():
        raise UsageError(
            "The fast engine's kernels are not built in this install.",
            "Install a C++ compiler (g++), then install mashbox again; or use --engine exact.",
        )
    loaded = ctypes.CDLL(str(path))
    loaded.mashbox_packed_bytes.argtypes = (c_int64, c_int64, c_int64)
    loaded.mashbox_packed_bytes.restype = c_int64
    loaded.mashbox_pack.argtypes = (c_int64, c_void_p, c_int64, c_int64, c_void_p)
    loaded.mashbox_pack.restype = None
    loaded.mashbox_unpack.argtypes = (POINTER(MatrixStruct), c_int64, c_void_p)
    loaded.mashbox_unpack.restype = None
    for move in (loaded.mashbox_keys_in, loaded.mashbox_keys_out):
        move.argtypes = (c_void_p, *[c_int64] * 5, c_void_p)
        move.restype = None
    cuts = (c_float, c_int64, c_double, c_double)
    loaded.mashbox_draw.argtypes = (c_void_p, c_int64, *cuts, c_double, c_int)
    loaded.mashbox_draw.restype = c_int64
    loaded.mashbox_has.argtypes = (c_int,)
    loaded.mashbox_product.argtypes = (POINTER(MatrixStruct), c_void_p, c_int64, *[c_int] * 3, c_void_p)
    return loaded


class Instructions(IntEnum):
    """Instruction sets that have kernels, as ``mashbox_cpu.h`` numbers them; the later, the faster."""

    PLAIN = 0
    AVX2 = 1
    AVX_VNNI = 2
    AVX512 = 3


def instructions_here() -> list[Instructions]:
    """What this processor has of them, and the library was compiled with; plain C++ at least."""
    return [one for one in Instructions if library().mashbox_has(one)]


def best_instructions() -> Instructions:
    """The fastest of ``instructions_here()``."""
    return instructions_here()[-1]


def can_pack(kind: str) -> bool:
    """Whether a ggml data type (``Q4_1``) is one that the kernels multiply with."""
    return kind in _KINDS


def pack(kind: str, rows: NDArray[Any], cols: int) -> PackedMatrix:
    """Pack a matrix of ``cols`` inputs from its ``rows`` [outputs, …] as ``GGUFFile.data`` gives them."""
    source = np.ascontiguousarray(rows).view(np.uint8)
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    if cols % block or cols % GROUP or source.shape[1] != cols // block * block_bytes:
        raise ValueError(f"Rows of {source.shape[1]} bytes do not hold {cols} weights of type {kind}.")
    number = _KINDS[kind]
    data = arena.shared.take(library().mashbox_packed_bytes(number, source.shape[0], cols))
    library().mashbox_pack(number, source.ctypes.data, source.shape[0], cols, data.ctypes.data)
    return PackedMatrix(kind, source.shape[0], cols, data)


def product(
    matrix: PackedMatrix,
    x: Floats,
    *,
    narrow: bool = False,
    threads: int = 1,
    instructions: int | None = None,
) -> Floats:
    """float32 [rows, outputs] = ``x`` (float32 [rows, inputs]) times the transposed matrix.

    ``x`` is rounded to 16 bits, or where ``narrow`` to 8.
    """
    if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] != matrix.cols or threads < 1:
        raise ValueError(f"The matrix takes float32 rows of {matrix.cols} numbers.")
    x = np.ascontiguousarray(x)
    out = np.empty((x.shape[0], matrix.rows), np.float32)
    chosen = best_instructions() if instructions is None else instructions
    pointers = (x.ctypes.data, x.shape[0], narrow, threads, chosen, out.ctypes.data)
    if library().mashbox_product(matrix.struct(), *pointers):
        raise ValueError(f"This processor has no instruction set {chosen}.")
    return out
