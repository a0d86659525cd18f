"""Unpacks GGUF data into tensors, block by block, on several threads.

The formats and their arithmetic are the ``gguf`` package's (``gguf.quants``); this adds the order of
work: small pieces that stay in the processor's cache, each written straight to where it belongs.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

PIECE = 1 << 19
"""Numbers unpacked at a time: about as many as fit a processor's own cache in float32."""

PLAIN = frozenset({"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"})

Values = Callable[[torch.Tensor], torch.Tensor]


@cache
def can_unpack(kind: str) -> bool:
    """Whether a ggml data type (``Q4_K``) is one that can be unpacked."""
    if kind in PLAIN:
        return True
    block = np.zeros((1, GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]), np.uint8)
    try:
        dequantize(block, GGMLQuantizationType[kind])
    except NotImplementedError:
        return False
    return True


def unpacking_threads() -> ThreadPoolExecutor:
    """A pool for :func:`unpack` with as many threads as torch computes with; each works alone."""
    return ThreadPoolExecutor(torch.get_num_threads(), "unpack", initializer=_work_alone)


def _work_alone() -> None:
    torch.set_num_threads(1)  # holds for the calling thread: pieces are what runs side by side


def unpack(
    data: NDArray[Any], kind: str, views: Sequence[torch.Tensor], pool: Executor, values: Values | None = None
) -> None:
    """Write one GGUF tensor into ``views``, which its rows fill one view after the other.

    ``data`` is what ``GGUFFile.data`` gives. A view is any strided tensor whose elements, in its own
    order, are the numbers of its share of the rows: the layouts that llama.cpp's converter changed are
    undone by the view. ``values``, if given, maps float32 numbers before they are rounded to the view's
    dtype.
    """
    rows = data.reshape(-1, data.shape[-1]) if data.ndim > 1 else data.reshape(1, -1)
    width = sum(view.numel() for view in views) // rows.shape[0]
    jobs = []
    start = 0
    for view in views:
        for piece in _pieces(view, width):
            count = piece.numel() // width
            jobs.append(pool.submit(_fill, rows[start : start + count], kind, piece, values))
            start += count
    for job in jobs:
        job.result()


def _pieces(view: torch.Tensor, width: int) -> Iterator[torch.Tensor]:
    """Cut a view along its first dimensions into pieces of about PIECE numbers, whole rows each."""
    each = view.numel() // max(view.shape[0], 1)
    if each % width or view.numel() <= PIECE:
        yield view
    elif each > PIECE and view.ndim > 2:
        for part in view:
            yield from _pieces(part, width)
    else:
        yield from torch.split(view, max(PIECE // each, 1))


def _fill(rows: NDArray[Any], kind: str, view: torch.Tensor, values: Values | None) -> None:
    numbers = numbers_of(rows, kind)
    if values is not None:
        numbers = values(numbers.float())
    view.copy_(numbers.view(view.shape))


def numbers_of(rows: NDArray[Any], kind: str) -> torch.Tensor:
    """The numbers of some rows of a GGUF tensor, in float32, or as plain types have them."""
    if kind == "BF16":
        return torch.from_numpy(rows.view(np.int16).copy()).view(torch.bfloat16)
    if kind in PLAIN:
        return torch.from_numpy(rows.copy())
    if kind == "Q8_0":
        return torch.from_numpy(_q8_0(rows))
    return torch.from_numpy(dequantize(rows, GGMLQuantizationType[kind]))


def _q8_0(rows: NDArray[Any]) -> NDArray[np.float32]:
    blocks = rows.reshape(-1, 34)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return np.multiply(blocks[:, 2:].view(np.int8), scales, dtype=np.float32)
