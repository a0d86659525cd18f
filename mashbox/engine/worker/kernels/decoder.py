"""Whole steps of a dense decoder in the CPU kernels: ``mashbox_model`` of ``cpu/mashbox_cpu.h``."""

import weakref
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, c_float, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mashbox.engine.worker.kernels.cpu import Floats, MatrixStruct, PackedMatrix, best_instructions, library

PROJECTIONS = ("query", "key", "value", "output", "gate", "up", "down")
BIASES = tuple(f"{name}_bias" for name in PROJECTIONS)
BLOCK_NORMS = ("input_norm", "attention_norm", "inner_norm", "outer_norm")
HEAD_NORMS = ("query_norm", "key_norm")
VECTORS = (*BLOCK_NORMS, *HEAD_NORMS, *BIASES)

ACTIVATIONS = ("silu", "gelu_pytorch_tanh")
"""transformers' names; the place is the number that the kernels know it by."""

Rotation = tuple[Floats, Floats]
"""Cosines and sines of every position, float32 [ctx, turned / 2]."""

Pool = tuple[NDArray[np.float16], NDArray[np.float16]]
"""Keys and values of a layer."""

_COUNTS = ("layers", "hidden", "inner", "heads", "kv_heads", "head_dim", "head_size", "vocab", "slots", "ctx")


class _Layer(Structure):
    _fields_ = (
        *((name, MatrixStruct) for name in PROJECTIONS),
        *((name, c_void_p) for name in VECTORS),
        ("cosine", c_void_p),
        ("sine", c_void_p),
        ("window", c_int64),
        ("keys", c_void_p),
        ("values", c_void_p),
    )


class _Model(Structure):
    _fields_ = (
        *((name, c_int64) for name in _COUNTS),
        ("turned", c_int64),
        ("wide_norms", c_int64),
        ("gelu", c_int64),
        ("narrow", c_int64),
        ("eps", c_float),
        ("head_eps", c_float),
        ("scale", c_float),
        ("embedding", c_float),
        ("residual", c_float),
        ("logit", c_float),
        ("score_cap", c_float),
        ("logit_cap", c_float),
        ("layer", POINTER(_Layer)),
        ("final_norm", c_void_p),
        ("embeddings", MatrixStruct),
        ("head", MatrixStruct),
    )


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """``projections`` by their names in the interface, all of them; ``vectors`` (float32) those there are.

    ``rotation`` names the table that turns queries and keys, None: they are not turned. ``window`` is how
    many positions a token sees, 0: all.
    """

    projections: Mapping[str, PackedMatrix]
    vectors: Mapping[str, Floats]
    rotation: str | None = None
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A dense decoder. ``head`` may be the embeddings themselves.

    The first ``turned`` of a head's ``head_dim`` places are turned in halves: number i with number
    i + turned / 2. ``head_size`` of the places hold a number, in values the first ones; the others are zero
    in queries, keys and values.
    """

    heads: int
    kv_heads: int
    head_dim: int
    head_size: int
    turned: int
    eps: float
    layers: Sequence[DecoderLayer]
    final_norm: Floats
    embeddings: PackedMatrix
    head: PackedMatrix
    activation: str = "silu"
    score_scale: float
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    score_cap: float = 0.0
    logit_cap: float = 0.0
    wide_norms: bool = False

    @property
    def head_share(self) -> float:
        """The share of a head's places that hold a number: a mean over the places is so much too small."""
        return self.head_size / self.head_dim

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory, a shared matrix counted once."""
        arrays: list[NDArray[Any]] = [self.final_norm, self.embeddings.data, self.head.data]
        for layer in self.layers:
            arrays += [*layer.vectors.values(), *(matrix.data for matrix in layer.projections.values())]
        return sum({array.ctypes.data: array.nbytes for array in arrays}.values())


@dataclass(slots=True)
class _Kept:
    """What the engine's structs point to."""

    objects: list[Any] = field(default_factory=list)

    def pointer(self, array: NDArray[Any] | None) -> int | None:
        if array is None:
            return None
        if array.dtype not in (np.float32, np.float16) or not array.flags.c_contiguous:
            raise ValueError("The kernels read contiguous arrays in single or half precision.")
        self.objects.append(array)
        return int(array.ctypes.data)


class Engine:
    """Steps of a decoder over slots whose keys and values lie in ``pools``.

    ``pools`` are float16 [slots, kv_heads, ctx, head_dim], keys (in tiles, see
    :class:`~mashbox.engine.worker.kernels.pools.KernelPools`) and values of each layer; ``ctx`` is a multiple
    of 8. Activations are rounded to 16 bits for products, or where ``narrow`` to 8. The engine keeps what it
    points to, and its threads, until it is collected.
    """

    def __init__(
        self,
        decoder: Decoder,
        pools: Sequence[Pool],
        rotations: Mapping[str, Rotation],
        *,
        threads: int,
        narrow: bool = False,
        instructions: int | None = None,
    ) -> None:
        kept = _Kept([decoder])
        self.vocab_size = decoder.head.rows
        self.hidden_size = decoder.embeddings.cols
        layers = (_Layer * len(decoder.layers))(
            *(_layer(layer, pool, rotations, kept) for layer, pool in zip(decoder.layers, pools, strict=True))
        )
        kept.objects.append(layers)
        model = _model(decoder, layers, pools[0][0].shape, narrow, kept)
        self._kept = kept
        self._layers = len(layers)
        chosen = best_instructions() if instructions is None else instructions
        kernels = _kernels()
        self._handle = kernels.mashbox_open(model, threads, chosen)
        if not self._handle:
            raise ValueError(f"This processor has no instruction set {chosen}.")
        weakref.finalize(self, kernels.mashbox_close, self._handle)

    def step(
        self,
        tokens: Sequence[int],
        slots: Sequence[int],
        positions: Sequence[int],
        wanted: Sequence[int],
        *,
        trace: Floats | None = None,
        threads: int = 0,
    ) -> Floats:
        """Read ``tokens[i]`` at ``positions[i]`` of ``slots[i]``; logits float32 [wanted, vocab_size].

        ``wanted`` lists the rows whose logits are computed, each once. ``trace``, if given, is filled with
        the hidden states before each layer and behind the last: float32 [layers + 1, rows, hidden], computed
        with 16 bits.
        ``threads`` of the engine's threads run the step, 0: all; the bits are the same. The caller has
        checked every bound.
        """
        rows = np.array([tokens, slots, positions], np.int64)
        picked = np.array(wanted, np.int64)
        out = np.empty((len(wanted), self.vocab_size), np.float32)
        if trace is not None and trace.shape != (self._layers + 1, len(tokens), self.hidden_size):
            raise ValueError(f"A trace of shape {list(trace.shape)} does not fit the step.")
        _kernels().mashbox_step(
            self._handle,
            len(tokens),
            *(row.ctypes.data for row in rows),
            len(wanted),
            picked.ctypes.data,
            out.ctypes.data,
            None if trace is None else trace.ctypes.data,
            threads,
        )
        return out


def _kernels() -> Any:
    kernels = library()
    if kernels.mashbox_open.argtypes is None:
        kernels.mashbox_open.argtypes = (POINTER(_Model), c_int, c_int)
        kernels.mashbox_open.restype = c_void_p
        kernels.mashbox_close.argtypes = (c_void_p,)
        kernels.mashbox_close.restype = None
        rows = (c_void_p, c_void_p, c_void_p)
        kernels.mashbox_step.argtypes = (c_void_p, c_int64, *rows, c_int64, *(c_void_p,) * 3, c_int)
        kernels.mashbox_step.restype = None
    return kernels


def _layer(layer: DecoderLayer, pools: Pool, rotations: Mapping[str, Rotation], kept: _Kept) -> _Layer:
    turning = (None, None) if layer.rotation is None else rotations[layer.rotation]
    return _Layer(
        *(layer.projections[name].struct() for name in PROJECTIONS),
        *(kept.pointer(layer.vectors.get(name)) for name in VECTORS),
        *(kept.pointer(table) for table in turning),
        layer.window,
        *(kept.pointer(pool) for pool in pools),
    )


def _model(decoder: Decoder, layers: Any, pool: Sequence[int], narrow: bool, kept: _Kept) -> _Model:
    slots, _, ctx, _ = pool
    return _Model(
        layers=len(decoder.layers),
        hidden=decoder.embeddings.cols,
        inner=decoder.layers[0].projections["down"].cols,
        heads=decoder.heads,
        kv_heads=decoder.kv_heads,
        head_dim=decoder.head_dim,
        head_size=decoder.head_size,
        vocab=decoder.head.rows,
        slots=slots,
        ctx=ctx,
        turned=decoder.turned,
        wide_norms=decoder.wide_norms,
        narrow=narrow,
        gelu=ACTIVATIONS.index(decoder.activation),
        eps=decoder.eps,
        head_eps=decoder.eps * decoder.head_share,
        scale=decoder.score_scale,
        embedding=decoder.embedding_scale,
        residual=decoder.residual_scale,
        logit=decoder.logit_scale,
        score_cap=decoder.score_cap,
        logit_cap=decoder.logit_cap,
        layer=layers,
        final_norm=kept.pointer(decoder.final_norm),
        embeddings=decoder.embeddings.struct(),
        head=decoder.head.struct(),
    )
