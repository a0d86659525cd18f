"""From a GGUF file's metadata to the fields of a transformers configuration."""

import math
from collections.abc import Mapping
from typing import Any

from mashbox.errors import UnsupportedModel
from mashbox.gguf_keys import Keys

Fields = dict[str, Any]


def decoder(keys: Keys) -> Fields:
    """The fields that nearly every decoder has."""
    hidden, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
    fields = {
        "vocab_size": keys.vocab,
        "hidden_size": hidden,
        "num_hidden_layers": keys.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys.whole("attention.head_count_kv", heads),
        "head_dim": head_size(keys),
        "max_position_embeddings": keys.whole("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon", 1e-6),
        "tie_word_embeddings": not keys.has("output.weight"),
        "rope_parameters": rope(keys),
        "bos_token_id": keys.token("bos"),
        "eos_token_id": keys.token("eos"),
        "pad_token_id": keys.token("padding"),
    }
    if "feed_forward_length" in keys:
        fields["intermediate_size"] = keys.whole("feed_forward_length")
    return fields


def head_size(keys: Keys) -> int:
    """Numbers in one head's key."""
    return keys.whole(
        "attention.key_length", keys.whole("embedding_length") // keys.whole("attention.head_count")
    )


def rope(keys: Keys, head_dim: int = 0) -> Fields:
    """Rotary parameters: base, scaling (linear, yarn), and the share of a head that is turned."""
    fields: Fields = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base", 10000.0)}
    head_dim = head_dim or head_size(keys)
    turned = keys.whole("rope.dimension_count", head_dim)
    if turned < head_dim:
        fields["partial_rotary_factor"] = turned / head_dim
    kind = keys.text("rope.scaling.type", "none")
    if kind in ("linear", "yarn"):
        fields |= {"rope_type": kind, "factor": keys.number("rope.scaling.factor")}
    elif kind not in ("none", "longrope"):
        raise UnsupportedModel(f"{keys.file.paths[0]}: rotary scaling of the unknown type {kind!r}.")
    if kind == "yarn":
        fields |= _yarn(keys)
    return fields


_YARN = {
    "attention_factor": "rope.scaling.attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}


def _yarn(keys: Keys) -> Fields:
    optional = {name: keys.number(key) for name, key in _YARN.items() if key in keys}
    return optional | {"original_max_position_embeddings": keys.whole("rope.scaling.original_context_length")}


def sliding_layers(keys: Keys, period: int) -> list[str]:
    """transformers' names of the layers' attention: each ``period``-th is full, unless the file says."""
    pattern = keys.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return ["sliding_attention" if sliding else "full_attention" for sliding in pattern[: keys.layers]]
    if isinstance(pattern, int):
        period = pattern
    return [
        "full_attention" if (layer + 1) % period == 0 else "sliding_attention" for layer in range(keys.layers)
    ]


def stateful_layers(keys: Keys, name: str, attention: str = "full_attention") -> list[str]:
    """transformers' names of the layers of a hybrid: ``name`` where there are no keys and values."""
    attending = keys.attending_layers()
    return [attention if layer in attending else name for layer in range(keys.layers)]


def mixture(keys: Keys, experts: str = "num_experts", width: str = "moe_intermediate_size") -> Fields:
    """The fields of a mixture of experts, under the names that the architecture has for them."""
    return {
        experts: keys.whole("expert_count"),
        "num_experts_per_tok": keys.whole("expert_used_count"),
        width: keys.whole("expert_feed_forward_length"),
    }


def llama3_rope(keys: Keys, factors: list[float]) -> Fields:
    """Rotary parameters for the factors of ``rope_freqs.weight``, one for each frequency.

    Llama 3's scaling if some setting of it gives these factors, else a table of factors ("longrope" with
    the same table at every length and no scaling of the attention).
    """
    fields = rope(keys)
    factor = max(factors)
    for original in (8192, keys.whole("context_length")):
        guess = {
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": original,
        }
        if _alike(_llama3_factors(fields["rope_theta"], len(factors), guess), factors):
            return fields | guess | {"rope_type": "llama3"}
    return fields | {
        "rope_type": "longrope",
        "short_factor": factors,
        "long_factor": factors,
        "factor": 1.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": keys.whole("context_length"),
    }


def _alike(some: list[float], others: list[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(some, others, strict=True))


def _llama3_factors(theta: float, count: int, settings: Mapping[str, float]) -> list[float]:
    """What Llama 3's scaling divides each of ``count`` rotary frequencies by (arXiv 2407.21783)."""
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    original, factor = settings["original_max_position_embeddings"], settings["factor"]
    factors = []
    for i in range(count):
        turns = original / (2 * math.pi * theta ** (i / count))
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / (share + (1 - share) / factor))
    return factors
