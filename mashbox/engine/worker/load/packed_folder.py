"""Loads a folder of safetensors for the fast engine: tensors packed one by one, as they are or rounded.

Never more than one tensor is in memory beside what is packed already.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray
from torch import Tensor

from mashbox.engine.worker.kernels.cpu import Floats, PackedMatrix, pack
from mashbox.engine.worker.kernels.decoder import Decoder
from mashbox.engine.worker.load.assemble import assemble
from mashbox.engine.worker.load.heads import Rows
from mashbox.engine.worker.load.shapes import NotFast, Shape, shape_of
from mashbox.errors import GET_ANEW, BadWeights
from mashbox.packing import QUANTISED

Progress = Callable[[str, int, int], None]

_PLAIN = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_PIECE = 1 << 22
"""Weights that are rounded at a time."""

_NO_WEIGHTS = (".rotary_emb.inv_freq", "lm_head.weight")
"""Tensors of old files that hold nothing of their own: rotary tables, the second name of a tied matrix."""


def load_packed_folder(folder: Path, weights: str, progress: Progress) -> tuple[Decoder, Shape, str]:
    """The packed decoder in ``folder``, its shape, and its model type.

    ``weights`` is ``auto`` (matrices keep the file's precision), ``q8`` or ``q4``. Raises NotFast, and
    BadWeights for damaged files.
    """
    # A folder's configuration leaves out what transformers takes for granted.
    from mashbox.engine.worker.load import safetensors

    config = safetensors.read_config(folder)
    shape = shape_of(str(config.model_type), config.to_dict())
    with ExitStack() as stack:
        tensors = safetensors.open_tensors(folder, stack, progress)
        found = _FolderWeights(folder, tensors, QUANTISED.get(weights))
        decoder = assemble(shape, found)
        left = [
            name
            for name in found.left()
            if not name.endswith(_NO_WEIGHTS) and not safetensors.OTHER_INPUTS.search(name)
        ]
    if left:
        raise NotFast(f"it has the tensor {min(left)!r}")
    return decoder, shape, str(config.model_type)


class _FolderWeights:
    """A folder's tensors; see :class:`~.assemble.Weights`. ``kind``: the type matrices are rounded to."""

    def __init__(self, folder: Path, tensors: dict[str, Any], kind: str | None) -> None:
        self._folder = folder
        self._tensors = tensors
        self._kind = kind
        self._left = set(tensors)

    def has(self, name: str) -> bool:
        return name in self._tensors

    def matrix(self, name: str, shape: tuple[int, int], rows: Rows | None = None) -> PackedMatrix:
        weight = self._take(name, shape)
        if rows is not None:
            weight = weight[torch.from_numpy(rows)]
            weight[torch.from_numpy(rows < 0)] = 0.0
        if self._kind is None:
            return pack(_PLAIN[weight.dtype], _bits(weight), shape[1])
        return pack(self._kind, _rounded(weight, self._kind), shape[1])

    def vector(self, name: str, size: int) -> Floats:
        vector: Floats = self._take(name, (size,)).float().numpy()
        return vector

    def left(self) -> set[str]:
        """Tensors that nothing has asked for."""
        return self._left

    def _take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._tensors:
            raise BadWeights(f"{self._folder}: the tensor {name!r} is missing.", GET_ANEW)
        tensor: Tensor = self._tensors[name][:]
        if tensor.shape != shape:
            raise BadWeights(
                f"{self._folder}: the tensor {name!r} has shape {list(tensor.shape)}, not {list(shape)}.",
                GET_ANEW,
            )
        if tensor.dtype not in _PLAIN:
            raise NotFast(f"the tensor {name!r} has the type {tensor.dtype}")
        self._left.discard(name)
        return tensor


def _bits(weight: Tensor) -> NDArray[Any]:
    """A matrix as numpy has it; BF16 as 16-bit numbers."""
    weight = weight.contiguous()
    return (weight.view(torch.int16) if weight.dtype == torch.bfloat16 else weight).numpy()


def _rounded(weight: Tensor, kind: str) -> NDArray[Any]:
    """A matrix in the blocks of a GGUF file, rounded a piece at a time."""
    step = max(_PIECE // weight.shape[1], 1)
    pieces = [
        quantize(part.float().contiguous().numpy(), GGMLQuantizationType[kind])
        for part in torch.split(weight, step)
    ]
    return np.concatenate(pieces)
