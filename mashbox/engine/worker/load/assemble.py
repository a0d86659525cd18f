"""From a :class:`Shape` and named weights to the decoder that the kernels run.

The names are those of transformers' modules, whatever the weights lie in.
"""

from typing import Protocol

import numpy as np

from mashbox.engine.worker.kernels.cpu import Floats, PackedMatrix
from mashbox.engine.worker.kernels.decoder import Decoder, DecoderLayer
from mashbox.engine.worker.load.heads import Rows, heads_of
from mashbox.engine.worker.load.shapes import NotFast, Shape

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
_HEAD_NORMS = {"query_norm": "q_norm", "key_norm": "k_norm"}


class Weights(Protocol):
    """Named tensors of a model; what is missing or of another shape raises BadWeights."""

    def has(self, name: str) -> bool: ...

    def matrix(self, name: str, shape: tuple[int, int], rows: Rows | None = None) -> PackedMatrix:
        """The matrix [outputs, inputs] packed; of its outputs only ``rows``, in that order (-1: zeros)."""
        ...

    def vector(self, name: str, size: int) -> Floats:
        """float32 [size]."""
        ...


def assemble(shape: Shape, weights: Weights) -> Decoder:
    """The decoder, its tensors taken one by one in the layers' order."""
    embeddings = weights.matrix("model.embed_tokens.weight", (shape.vocab, shape.hidden))
    layers = [_Layer(shape, weights, number).build() for number in range(shape.layers)]
    head = "lm_head.weight"
    tied = shape.tied or not weights.has(head)
    heads = heads_of(shape)
    return Decoder(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=heads.room,
        head_size=heads.size,
        turned=heads.turned_room,
        eps=shape.eps,
        layers=layers,
        final_norm=weights.vector("model.norm.weight", shape.hidden) + np.float32(shape.norm_offset),
        embeddings=embeddings,
        head=embeddings if tied else weights.matrix(head, (shape.vocab, shape.hidden)),
        activation=shape.activation,
        score_scale=shape.score_scale,
        embedding_scale=shape.embedding_scale,
        residual_scale=shape.residual_scale,
        logit_scale=shape.logit_scale,
        score_cap=shape.score_cap,
        logit_cap=shape.logit_cap,
        wide_norms=shape.wide_norms,
    )


class _Layer:
    """One layer's tensors."""

    def __init__(self, shape: Shape, weights: Weights, number: int) -> None:
        self._shape = shape
        self._heads = heads_of(shape)
        self._weights = weights
        self._number = number
        self._prefix = f"model.layers.{number}."
        self._matrices: dict[str, PackedMatrix] = {}
        self._vectors: dict[str, Floats] = {}

    def build(self) -> DecoderLayer:
        shape = self._shape
        self._attention()
        queries = shape.heads * shape.head_dim
        self._linear("output", "self_attn.o_proj", shape.hidden, queries)
        self._feed_forward()
        for ours, theirs in shape.norms.items():
            self._norm(ours, theirs, shape.hidden)
        for ours, theirs in _HEAD_NORMS.items():
            if self._weights.has(f"{self._prefix}self_attn.{theirs}.weight"):
                self._head_norm(ours, f"self_attn.{theirs}")
        return DecoderLayer(
            self._matrices, self._vectors, shape.rotations[self._number], shape.windows[self._number]
        )

    def _norm(self, ours: str, theirs: str, size: int) -> None:
        found = self._weights.vector(f"{self._prefix}{theirs}.weight", size)
        self._vectors[ours] = found + np.float32(self._shape.norm_offset)

    def _head_norm(self, ours: str, theirs: str) -> None:
        """A norm of queries or keys: over the numbers of all heads together, or of one."""
        shape, heads = self._shape, 1
        if shape.wide_norms:
            heads = shape.heads if ours == "query_norm" else shape.kv_heads
        self._norm(ours, theirs, shape.head_dim * heads)
        places = self._heads.turning(heads)
        if places is not None:
            if shape.neighbours:
                raise NotFast("it turns neighbouring numbers of heads that have norms")
            # The kernels' mean is over all places: it is so much smaller, see Decoder.head_share.
            share = self._heads.size / self._heads.room
            self._vectors[ours] = _picked(self._vectors[ours], places) * np.float32(share**0.5)

    def _attention(self) -> None:
        shape = self._shape
        counts = {"query": shape.heads, "key": shape.kv_heads, "value": shape.kv_heads}
        total = sum(counts.values()) * shape.head_dim
        first = 0
        for name, count in counts.items():
            rows = count * shape.head_dim
            places = self._heads.still(count) if name == "value" else self._heads.turning(count)
            if shape.fused_attention:
                part = np.arange(rows) if places is None else places
                part = np.where(part < 0, -1, part + first)
                self._linear(name, "self_attn.qkv_proj", total, shape.hidden, part)
                first += rows
            else:
                self._linear(name, f"self_attn.{_ATTENTION[name]}", rows, shape.hidden, places)

    def _feed_forward(self) -> None:
        shape = self._shape
        for name, first in (("gate", 0), ("up", shape.inner)):
            if shape.fused_gate:
                part = np.arange(first, first + shape.inner)
                self._linear(name, "mlp.gate_up_proj", 2 * shape.inner, shape.hidden, part)
            else:
                self._linear(name, f"mlp.{name}_proj", shape.inner, shape.hidden)
        self._linear("down", "mlp.down_proj", shape.hidden, shape.inner)

    def _linear(self, ours: str, theirs: str, outputs: int, inputs: int, rows: Rows | None = None) -> None:
        """A projection, with its bias if it has one."""
        name = f"{self._prefix}{theirs}"
        self._matrices[ours] = self._weights.matrix(f"{name}.weight", (outputs, inputs), rows)
        if self._weights.has(f"{name}.bias"):
            bias = self._weights.vector(f"{name}.bias", outputs)
            self._vectors[f"{ours}_bias"] = bias if rows is None else _picked(bias, rows)


def _picked(vector: Floats, rows: Rows) -> Floats:
    found = vector[rows]
    found[rows < 0] = 0.0
    return found
