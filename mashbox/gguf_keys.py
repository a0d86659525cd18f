"""Typed access to a GGUF file's metadata, without torch.

Keys of the model itself start with its architecture's name (``llama.block_count``); they are named here
without it.
"""

from typing import Any, NoReturn

import numpy as np

from mashbox.errors import GET_ANEW, BadWeights
from mashbox.gguf_file import GGUFFile

_MAX_LAYERS = 4096


class Keys:
    """The metadata of one file, read as numbers; a wrong or missing one raises BadWeights."""

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        self.architecture = file.architecture

    def __contains__(self, key: str) -> bool:
        return self._name(key) in self.file.metadata

    def _name(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def raw(self, key: str) -> Any:
        """The value as the file has it; None if it has none."""
        return self.file.metadata.get(self._name(key))

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number; of a list with one number for each layer the largest."""
        value = self.raw(key)
        if isinstance(value, list) and value:
            value = max(value)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self._bad(key, value, "a whole number")
        return int(value)

    def wholes(self, key: str, layers: int, default: int | None = None) -> list[int]:
        """A whole number for each of the ``layers``; one that holds for all of them is repeated."""
        value = self.raw(key)
        if isinstance(value, list):
            if len(value) < layers or not all(isinstance(item, int) for item in value):
                self._bad(key, value, f"{layers} whole numbers")
            return [int(item) for item in value[:layers]]
        return [self.whole(key, default)] * layers

    def number(self, key: str, default: float | None = None) -> float:
        """A number. The format has 32 bits for it: the shortest decimal that means them is returned."""
        value = self.raw(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._bad(key, value, "a number")
        return float(str(np.float32(value))) if isinstance(value, float) else float(value)

    def flag(self, key: str, default: bool) -> bool:
        """A truth value."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._bad(key, value, "true or false")
        return bool(value)

    def text(self, key: str, default: str = "") -> str:
        """A text."""
        value = self.raw(key)
        return value if isinstance(value, str) else default

    def token(self, name: str) -> int | None:
        """A special token's id (``eos``, ``bos``, ``padding``)."""
        value = self.file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        return value if isinstance(value, int) else None

    def has(self, tensor: str) -> bool:
        """Whether the file holds a tensor; ``#`` in the name stands for any layer's number."""
        if "#" not in tensor:
            return tensor in self.file.tensors
        head, tail = tensor.split("#", 1)
        return any(name.startswith(head) and name.endswith(tail) for name in self.file.tensors)

    @property
    def layers(self) -> int:
        """Decoder layers, less those that only predict tokens ahead."""
        layers = self.whole("block_count") - self.whole("nextn_predict_layers", 0)
        if not 0 < layers <= _MAX_LAYERS:
            self._bad("block_count", layers, "a number of layers")
        return layers

    def attending_layers(self) -> list[int]:
        """Numbers of the layers with keys and values; the others keep a state of fixed size."""
        marked = self.raw("attention.recurrent_layers")
        if isinstance(marked, list):
            return [layer for layer, recurrent in enumerate(marked[: self.layers]) if not recurrent]
        if "full_attention_interval" in self:
            interval = max(self.whole("full_attention_interval"), 1)
            return [layer for layer in range(self.layers) if (layer + 1) % interval == 0]
        kv_heads = self.wholes("attention.head_count_kv", self.layers, self.whole("attention.head_count"))
        return [layer for layer, heads in enumerate(kv_heads) if heads]

    @property
    def vocab(self) -> int:
        """Rows of the embedding."""
        info = self.file.tensors.get("token_embd.weight")
        if info is None or len(info.shape) != 2:
            raise BadWeights(f"{self.file.paths[0]}: no embedding (token_embd.weight).", GET_ANEW)
        return info.shape[0]

    def _bad(self, key: str, value: Any, wanted: str) -> NoReturn:
        shown = "is missing" if value is None else f"is {str(value)[:40]!r} instead of {wanted}"
        raise BadWeights(f"{self.file.paths[0]}: {self._name(key)} {shown}.", GET_ANEW)
