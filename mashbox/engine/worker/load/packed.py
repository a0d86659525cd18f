"""Loads a GGUF file for the fast engine: blocks repacked tensor by tensor, never unpacked."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.worker.kernels.cpu import Floats, PackedMatrix, can_pack, pack
from mashbox.engine.worker.kernels.decoder import Decoder
from mashbox.engine.worker.load.architectures import find_architecture
from mashbox.engine.worker.load.assemble import assemble
from mashbox.engine.worker.load.gguf_names import Rule, find_rule
from mashbox.engine.worker.load.heads import Rows
from mashbox.engine.worker.load.shapes import NotFast, Shape, shape_of
from mashbox.errors import GET_ANEW, BadWeights
from mashbox.gguf_file import GGUFFile
from mashbox.gguf_keys import Keys

Progress = Callable[[str, int, int], None]
STAGE = "reading the weights"


def load_packed(path: Path, progress: Progress) -> tuple[Decoder, Shape, str]:
    """The packed decoder in ``path``, its shape, and the file's name of its architecture.

    Raises UsageError where the model is not one for the fast engine, BadWeights for a damaged file.
    """
    file = GGUFFile(path)
    shape, fields = gguf_shape(file)
    weights = GGUFWeights(file, shape, fields, progress)
    decoder = assemble(shape, weights)
    if left := weights.left():
        raise NotFast(f"it has the tensor {left!r}")
    return decoder, shape, file.architecture


def gguf_shape(file: GGUFFile) -> tuple[Shape, dict[str, Any]]:
    """The shape that a file's metadata describe, and the fields of transformers' configuration."""
    try:
        model_type, fields = find_architecture(file).config(Keys(file))
        return shape_of(model_type, fields), fields
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise BadWeights(f"{file.paths[0]}: the metadata describe no usable model ({error}).") from error


class GGUFWeights:
    """A file's tensors under the names of transformers' parameters; see :class:`~.assemble.Weights`."""

    def __init__(self, file: GGUFFile, shape: Shape, fields: dict[str, Any], progress: Progress) -> None:
        self._file = file
        # What rules of names look at.
        self._config = SimpleNamespace(model_type=shape.model_type, **fields)
        self._architecture = find_architecture(file)
        self._rules = self._architecture.rules(self._config)
        self._progress = progress
        self._total = sum(info.nbytes for info in file.tensors.values())
        self._done = 0
        layers = shape.layers
        self._left = {name for name in file.tensors if not self._architecture.leaves_out(name, layers)}

    def has(self, name: str) -> bool:
        rule = find_rule(self._rules, name)
        return rule is not None and rule.for_tensors(self._file.tensors) is not None

    def matrix(self, name: str, shape: tuple[int, int], rows: Rows | None = None) -> PackedMatrix:
        source, rule = self._source(name, shape)
        kind = self._file.tensors[source].type
        if not can_pack(kind):
            raise NotFast(f"the tensor {source!r} has the type {kind}")
        data = self._file.data(source)
        self._count(data.nbytes)
        order = _order(rule, shape[0], self._config)
        if rows is not None:
            order = rows if order is None else np.where(rows < 0, -1, order[rows])
        if order is not None:
            data = data[order]
            data[order < 0] = 0  # zero in every type
        return pack(kind, data, shape[1])

    def vector(self, name: str, size: int) -> Floats:
        source, rule = self._source(name, (size,))
        numbers: Any = _numbers(self._file.data(source), self._file.tensors[source].type)
        if numbers is None:
            raise NotFast(f"the tensor {source!r} has the type {self._file.tensors[source].type}")
        self._count(self._file.tensors[source].nbytes)
        if rule.values:
            numbers = rule.values(numbers)
        target: Any = np.empty(size, np.float32)
        [[view]] = rule.places(target, self._config)
        view[...] = numbers.reshape(view.shape)
        found: Floats = target
        return found

    def left(self) -> str | None:
        """A tensor that nothing has asked for: a part of the model that would be left out."""
        return min(self._left, default=None)

    def _source(self, name: str, shape: tuple[int, ...]) -> tuple[str, Rule]:
        rule = find_rule(self._rules, name)
        found = rule and rule.for_tensors(self._file.tensors)
        if found is None or len(found.sources) != 1:
            wanted = rule.sources[0] if rule else name
            raise BadWeights(f"{self._file.paths[0]}: the tensor {wanted!r} is missing.", GET_ANEW)
        [source] = found.sources
        info = self._file.tensors[source]
        if info.shape != shape:
            raise BadWeights(
                f"{self._file.paths[0]}: the tensor {source!r} has shape {list(info.shape)}, "
                f"not {list(shape)}.",
                GET_ANEW,
            )
        self._left.discard(source)
        return source, found

    def _count(self, nbytes: int) -> None:
        self._done += nbytes
        self._progress(STAGE, self._done, self._total)


def _order(rule: Rule, rows: int, config: Any) -> NDArray[np.intp] | None:
    """Where each row of a parameter lies in the file, if in another order: its rule of places, inverted."""
    target: Any = np.arange(rows)[:, None]
    [[view]] = rule.places(target, config)
    places: NDArray[np.intp] = np.asarray(view).reshape(-1)
    return None if np.array_equal(places, target[:, 0]) else places.argsort()


def _numbers(data: NDArray[Any], kind: str) -> Floats | None:
    """A plain tensor in float32; None for another type."""
    if kind in ("F32", "F16"):
        return data.astype(np.float32)
    if kind == "BF16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    return None
