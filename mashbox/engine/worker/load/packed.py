"""Loads a GGUF file for the fast runner: blocks repacked tensor by tensor, never unpacked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PretrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from mashbox.engine.worker.kernels.cpu import GROUP, Decoder, DecoderLayer, PackedMatrix, can_pack, pack
from mashbox.engine.worker.load.gguf import STAGE, Progress, gguf_config
from mashbox.engine.worker.rope import fix_frequencies
from mashbox.errors import GET_ANEW, BadWeights, UsageError
from mashbox.gguf_file import GGUFFile

_PROJECTIONS = {
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_NORMS = ("attn_norm", "ffn_norm")


def refusal(why: str) -> UsageError:
    """The error for a model that the fast engine does not run."""
    return UsageError(
        f"The fast engine does not run this model: {why}.", "Use --engine exact, or leave the choice to auto."
    )


def load_packed(path: Path, progress: Progress) -> tuple[Decoder, PretrainedConfig, str]:
    """The packed decoder in ``path``, its configuration, and the file's name of its architecture.

    Raises UsageError where the model is not one for the fast engine, BadWeights for a damaged file.
    """
    file = GGUFFile(path)
    config = gguf_config(file)
    check_shape(config)
    return _Reader(file, config, progress).decoder(), config, file.architecture


def check_shape(config: PretrainedConfig) -> None:
    """UsageError unless the configuration is a dense decoder of Llama's shape in sizes that fit."""
    c: Any = config
    if c.model_type != "llama":
        raise refusal(f"its type is {c.model_type!r}, and only 'llama' is run so far")
    if c.attention_bias or c.mlp_bias or c.hidden_act != "silu":
        raise refusal("its projections have biases, or its activation is not silu")
    if c.head_dim % 16:
        raise refusal(f"its heads have {c.head_dim} numbers, no multiple of 16")
    for size in (c.hidden_size, c.intermediate_size, c.num_attention_heads * c.head_dim):
        if size % GROUP:
            raise refusal(f"a matrix has {size} inputs, no multiple of {GROUP}")
    if c.num_attention_heads % c.num_key_value_heads:
        raise refusal("its heads can't be shared out evenly")


def rotary_tables(config: PretrainedConfig, ctx: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, float32 [ctx, head_dim / 2], as transformers computes them."""
    rotary: Any = LlamaRotaryEmbedding(config)
    fix_frequencies(rotary, ctx)
    with torch.no_grad():
        tables = rotary(torch.zeros(1), torch.arange(ctx).unsqueeze(0))
    head_dim: int = config.head_dim
    if tables[0].shape[-1] != head_dim:
        raise refusal("only a part of each head is turned")
    cosine, sine = (table[0, :, : head_dim // 2].float().contiguous() for table in tables)
    return cosine, sine


class _Reader:
    """Takes a file's tensors one by one; what is left over is an error."""

    def __init__(self, file: GGUFFile, config: Any, progress: Progress) -> None:
        self._file = file
        self._config = config
        self._progress = progress
        self._total = sum(info.nbytes for info in file.tensors.values())
        self._done = 0
        self._left = set(file.tensors) - {"rope_freqs.weight"}

    def decoder(self) -> Decoder:
        c = self._config
        tied = "output.weight" not in self._file.tensors
        embedding = self._matrix("token_embd", c.vocab_size, c.hidden_size)
        decoder = Decoder(
            heads=c.num_attention_heads,
            kv_heads=c.num_key_value_heads,
            head_dim=c.head_dim,
            eps=c.rms_norm_eps,
            layers=[self._layer(layer) for layer in range(c.num_hidden_layers)],
            final_norm=self._norm("output_norm"),
            embedding=embedding,
            head=embedding if tied else self._matrix("output", c.vocab_size, c.hidden_size),
        )
        if self._left:
            raise refusal(f"it has the tensor {min(self._left)!r}")
        return decoder

    def _layer(self, layer: int) -> DecoderLayer:
        c = self._config
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        shapes = {
            "query": (queries, c.hidden_size),
            "key": (keys, c.hidden_size),
            "value": (keys, c.hidden_size),
            "output": (c.hidden_size, queries),
            "gate": (c.intermediate_size, c.hidden_size),
            "up": (c.intermediate_size, c.hidden_size),
            "down": (c.hidden_size, c.intermediate_size),
        }
        projections = {
            name: self._matrix(
                f"blk.{layer}.{_PROJECTIONS[name]}",
                *shape,
                self._halves if name in ("query", "key") else None,
            )
            for name, shape in shapes.items()
        }
        input_norm, output_norm = (self._norm(f"blk.{layer}.{name}") for name in _NORMS)
        return DecoderLayer(input_norm, output_norm, projections)

    def _matrix(
        self,
        name: str,
        rows: int,
        cols: int,
        order: Callable[[int], NDArray[np.intp]] | None = None,
    ) -> PackedMatrix:
        data, kind = self._take(f"{name}.weight", (rows, cols))
        if not can_pack(kind):
            raise refusal(f"the tensor '{name}.weight' has the type {kind}")
        return pack(kind, data if order is None else data[order(rows)], cols)

    def _norm(self, name: str) -> Tensor:
        data, kind = self._take(f"{name}.weight", (self._config.hidden_size,))
        if kind not in ("F32", "F16"):
            raise refusal(f"the tensor '{name}.weight' has the type {kind}")
        return torch.from_numpy(data.astype(np.float32))

    def _take(self, name: str, shape: tuple[int, ...]) -> tuple[NDArray[Any], str]:
        info = self._file.tensors.get(name)
        if info is None or info.shape != shape:
            what = "is missing" if info is None else f"has shape {list(info.shape)}, not {list(shape)}"
            raise BadWeights(f"{self._file.paths[0]}: the tensor {name!r} {what}.", GET_ANEW)
        self._left.discard(name)
        self._done += info.nbytes
        self._progress(STAGE, self._done, self._total)
        return self._file.data(name), info.type

    def _halves(self, rows: int) -> NDArray[np.intp]:
        """Where the rows of a head turned in halves lie in a file that turns neighbours."""
        return np.arange(rows).reshape(-1, self._config.head_dim // 2, 2).swapaxes(1, 2).ravel()
