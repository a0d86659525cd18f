"""What a dense decoder computes, read from its configuration: the fast engine's description of a model.

A :class:`Shape` is told by transformers' model type and the fields of its configuration, as a GGUF file's
metadata or a ``config.json`` give them. What the types do differently is data in ``_FAMILIES``; the facts are
those of transformers' modules, which every type is held to by the tests and, once, on each machine
(:mod:`mashbox.engine.worker.agreement`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mashbox.errors import UsageError

Fields = Mapping[str, Any]

_PLAIN = {"input_norm": "input_layernorm", "inner_norm": "post_attention_layernorm"}
_AROUND = {
    "input_norm": "input_layernorm",
    "attention_norm": "post_attention_layernorm",
    "inner_norm": "pre_feedforward_layernorm",
    "outer_norm": "post_feedforward_layernorm",
}
_BEHIND = {"attention_norm": "post_attention_layernorm", "outer_norm": "post_feedforward_layernorm"}
_GLM = {
    "input_norm": "input_layernorm",
    "attention_norm": "post_self_attn_layernorm",
    "inner_norm": "post_attention_layernorm",
    "outer_norm": "post_mlp_layernorm",
}


@dataclass(frozen=True, slots=True)
class _Family:
    """What one model type does differently from Llama.

    ``norms`` are the names of a layer's norms in transformers' module. ``always_windowed``: where there is a
    window and no list of layers, every layer has it.
    """

    norms: Mapping[str, str]
    activation: str = "silu"
    gemma: bool = False
    fused_attention: bool = False
    fused_gate: bool = False
    neighbours: bool = False
    always_windowed: bool = False
    turned_where_windowed: bool = False
    wide_norms: bool = False


_LLAMA = _Family(_PLAIN)
_GEMMA = _Family(_AROUND, "gelu_pytorch_tanh", gemma=True)
_FAMILIES = {
    "ernie4_5": _Family(_PLAIN, neighbours=True),
    "exaone4": _Family(_BEHIND, turned_where_windowed=True),
    "gemma": _Family(_PLAIN, "gelu_pytorch_tanh", gemma=True),
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "glm4": _Family(_GLM, fused_gate=True, neighbours=True),
    "granite": _LLAMA,
    "llama": _LLAMA,
    "mistral": _Family(_PLAIN, always_windowed=True),
    "olmo2": _Family(_BEHIND, wide_norms=True),
    "olmo3": _Family(_BEHIND, wide_norms=True),
    "phi3": _Family(_PLAIN, fused_attention=True, fused_gate=True, always_windowed=True),
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "seed_oss": _LLAMA,
    "smollm3": _LLAMA,
}

FAMILIES = frozenset(_FAMILIES)
"""transformers' model types that are known here."""


class NotFast(UsageError):
    """The fast engine does not run a model; ``why`` says the reason in words that follow a colon.

    ``mend`` is a sentence on what would let it, where anything would.
    """

    def __init__(self, why: str, mend: str = "") -> None:
        super().__init__(
            f"The fast engine does not run this model: {why}.",
            f"{mend} Or use --engine exact." if mend else "Use --engine exact, or leave the choice to auto.",
        )
        self.why = why
        self.mend = mend


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense decoder. Names are transformers' of the modules below ``model.layers.N``.

    ``windows`` and ``rotations`` are by layer: positions that a token sees (0: all), the name in ``ropes``
    of the parameters that its heads are turned by (None: they are not). ``norm_offset`` is added to every
    norm's weight. ``neighbours``: the module turns neighbouring numbers, not two halves. ``wide_norms``:
    norms of queries and keys are over all heads together.
    """

    model_type: str
    vocab: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    turned: int
    max_positions: int
    eps: float
    tied: bool
    windows: tuple[int, ...]
    rotations: tuple[str | None, ...]
    ropes: Mapping[str, Fields]
    norms: Mapping[str, str]
    norm_offset: float
    activation: str
    fused_attention: bool
    fused_gate: bool
    neighbours: bool
    wide_norms: bool
    score_scale: float
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    score_cap: float
    logit_cap: float

    @property
    def layers(self) -> int:
        return len(self.windows)


def shape_of(model_type: str, fields: Fields) -> Shape:
    """The decoder that a configuration describes; UsageError, with the reason, if the engine runs none."""
    family = _FAMILIES.get(model_type)
    if family is None:
        raise NotFast(f"its type is {model_type!r}")
    _check_fields(fields, family)
    heads = fields["num_attention_heads"]
    head_dim = fields.get("head_dim") or fields["hidden_size"] // heads
    windows, rotations = _windows(fields, family), _rotations(fields, family)
    ropes = _ropes(fields)
    parts = {rope.get("partial_rotary_factor", 1.0) for rope in ropes.values()}
    if len(parts) > 1:
        raise NotFast("its layers turn different parts of a head")
    shape = Shape(
        model_type=model_type,
        vocab=fields["vocab_size"],
        hidden=fields["hidden_size"],
        inner=fields["intermediate_size"],
        heads=heads,
        kv_heads=fields.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        turned=int(head_dim * parts.pop()),
        max_positions=fields["max_position_embeddings"],
        eps=fields.get("rms_norm_eps", 1e-6),
        tied=bool(fields.get("tie_word_embeddings", family.gemma)),
        windows=windows,
        rotations=rotations,
        ropes=ropes,
        norms=family.norms,
        norm_offset=1.0 if family.gemma else 0.0,
        activation=family.activation,
        fused_attention=family.fused_attention,
        fused_gate=family.fused_gate,
        neighbours=family.neighbours,
        wide_norms=family.wide_norms,
        **_scales(model_type, fields, family, head_dim),
    )
    check_sizes(shape)
    return shape


def check_sizes(shape: Shape) -> None:
    """UsageError for sizes that the kernels don't take."""
    if shape.turned % 2:
        raise NotFast(f"{shape.turned} numbers of its heads are turned, an odd number")
    for size in (shape.hidden, shape.inner, shape.heads * shape.head_dim):
        if size % 32:
            raise NotFast(f"a matrix has {size} inputs, no multiple of 32")
    if shape.heads % shape.kv_heads:
        raise NotFast("its heads can't be shared out evenly")


def _check_fields(fields: Fields, family: _Family) -> None:
    activation = fields.get("hidden_activation") or fields.get("hidden_act") or family.activation
    if activation not in (family.activation, "swish" if family.activation == "silu" else ""):
        raise NotFast(f"its activation is {activation!r}")
    if fields.get("use_bidirectional_attention"):
        raise NotFast("its tokens see later ones")


def _scales(model_type: str, fields: Fields, family: _Family, head_dim: int) -> dict[str, float]:
    scores = head_dim**-0.5
    if family.gemma and model_type != "gemma":
        scores = fields.get("query_pre_attn_scalar", 256) ** -0.5
    return {
        "score_scale": fields.get("attention_multiplier") or scores,
        "embedding_scale": fields["hidden_size"] ** 0.5
        if family.gemma
        else fields.get("embedding_multiplier") or 1.0,
        "residual_scale": fields.get("residual_multiplier") or 1.0,
        "logit_scale": 1.0 / (fields.get("logits_scaling") or 1.0),
        "score_cap": fields.get("attn_logit_softcapping") or 0.0,
        "logit_cap": fields.get("final_logit_softcapping") or 0.0,
    }


def _windows(fields: Fields, family: _Family) -> tuple[int, ...]:
    window = fields.get("sliding_window") or 0
    kinds = _kinds(fields, family)
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise NotFast(f"it has layers of {kind!r}")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _kinds(fields: Fields, family: _Family) -> list[str]:
    """transformers' names of the layers' attention."""
    windowed = family.always_windowed and fields.get("sliding_window")
    kinds = fields.get("layer_types")
    if kinds and not windowed:
        return list(kinds)
    return ["sliding_attention" if windowed else "full_attention"] * fields["num_hidden_layers"]


def _rotations(fields: Fields, family: _Family) -> tuple[str | None, ...]:
    kinds = _kinds(fields, family)
    names: list[str | None] = [kind if kind in _ropes(fields) else "all" for kind in kinds]
    turned = [True] * len(names)
    if family.turned_where_windowed and fields.get("sliding_window"):
        turned = [kind == "sliding_attention" for kind in kinds]
    interval = fields.get("no_rope_layer_interval")
    if fields.get("no_rope_layers"):
        turned = [bool(flag) for flag in fields["no_rope_layers"]]
    elif interval:
        turned = [(layer + 1) % interval != 0 for layer in range(len(names))]
    return tuple(name if flag else None for name, flag in zip(names, turned, strict=True))


def _ropes(fields: Fields) -> dict[str, Fields]:
    """Rotary parameters by the kind of layer, or of all."""
    rope = fields.get("rope_parameters") or {}
    if all(isinstance(value, dict) for value in rope.values()) and rope:
        return dict(rope)
    return {"all": rope}
