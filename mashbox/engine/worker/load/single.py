"""Single tensors of a model, under the names of transformers' parameters, in float32, as they are asked."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from torch import Tensor
from transformers import PretrainedConfig

from mashbox.engine.worker.load.architectures import find_architecture
from mashbox.engine.worker.load.dequant import numbers_of, unpack, unpacking_threads
from mashbox.engine.worker.load.gguf import gguf_config
from mashbox.engine.worker.load.gguf_names import Rule, find_rule
from mashbox.engine.worker.load.safetensors import open_tensors, read_config
from mashbox.gguf_file import GGUFFile
from mashbox.packing import QUANTISED


class Single(Protocol):
    """A model's configuration, and its tensors one at a time."""

    config: PretrainedConfig

    def has(self, name: str) -> bool: ...

    def tensor(self, name: str, shape: Sequence[int]) -> Tensor:
        """float32 of ``shape``."""
        ...

    def rows(self, name: str, numbers: list[int]) -> Tensor:
        """Rows of a matrix, float32 [numbers, inputs]."""
        ...


def open_single(path: Path, format: str, weights: str) -> Single:
    """The model in ``path``. ``weights`` may say that matrices are rounded, as ``--weights`` does."""
    return _File(path) if format == "gguf" else _Folder(path, QUANTISED.get(weights))


class _File:
    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)
        self.config = gguf_config(self._file)
        self._rules = find_architecture(self._file).rules(self.config)

    def has(self, name: str) -> bool:
        return self._rule(name) is not None

    def tensor(self, name: str, shape: Sequence[int]) -> Tensor:
        rule = self._rule(name)
        if rule is None:
            raise KeyError(name)
        target = torch.empty(tuple(shape))
        with unpacking_threads() as pool:
            for source, views in zip(rule.sources, rule.places(target, self.config), strict=True):
                kind = self._file.tensors[source].type
                unpack(self._file.data(source), kind, views, pool, rule.values)
        return target

    def rows(self, name: str, numbers: list[int]) -> Tensor:
        rule = self._rule(name)
        if rule is None:
            raise KeyError(name)
        [source] = rule.sources
        found = numbers_of(self._file.data(source)[numbers], self._file.tensors[source].type)
        return found.float().view(len(numbers), -1)

    def _rule(self, name: str) -> Rule | None:
        rule = find_rule(self._rules, name)
        return rule and rule.for_tensors(self._file.tensors)


class _Folder:
    def __init__(self, path: Path, kind: str | None) -> None:
        self.config = read_config(path)
        self._kind = kind
        self._tensors: dict[str, Any] = open_tensors(path, ExitStack(), lambda *_: None)

    def has(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str, shape: Sequence[int]) -> Tensor:
        found: Tensor = self._tensors[name][:]
        return self._rounded(found.float())

    def rows(self, name: str, numbers: list[int]) -> Tensor:
        # Row by row: the whole matrix may be a gigabyte.
        found = torch.cat([self._tensors[name][number : number + 1] for number in numbers])
        return self._rounded(found.float())

    def _rounded(self, tensor: Tensor) -> Tensor:
        if self._kind is None or tensor.ndim != 2:
            return tensor
        kind = GGMLQuantizationType[self._kind]
        return torch.from_numpy(dequantize(quantize(tensor.contiguous().numpy(), kind), kind))
