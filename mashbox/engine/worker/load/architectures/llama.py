"""Llama and what shares its way of keeping rotary heads: Mistral, Mixtral, Ministral, SmolLM2, SmolLM3."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, llama3_rope
from mashbox.engine.worker.load.gguf_names import (
    DECODER,
    Config,
    Rules,
    experts,
    key_heads,
    query_heads,
    rename,
    rotary_pairs,
)
from mashbox.gguf_keys import Keys

PAIRS = rename({"self_attn.q_proj": "attn_q"}, rotary_pairs(query_heads)) | rename(
    {"self_attn.k_proj": "attn_k"}, rotary_pairs(key_heads)
)
"""llama.cpp turns neighbouring numbers of these models' heads; transformers the two halves."""


def llama_fields(keys: Keys) -> Fields:
    """The fields of Llama's configuration."""
    fields = decoder(keys)
    if keys.has("rope_freqs.weight"):
        fields["rope_parameters"] = llama3_rope(keys, keys.file.data("rope_freqs.weight").tolist())
    fields |= {"attention_bias": keys.has("blk.#.attn_q.bias"), "mlp_bias": keys.has("blk.#.ffn_up.bias")}
    return fields


def _llama(keys: Keys) -> tuple[str, Fields]:
    fields = llama_fields(keys)
    if not keys.whole("expert_count", 0):
        return "llama", fields
    fields |= {
        "num_local_experts": keys.whole("expert_count"),
        "num_experts_per_tok": keys.whole("expert_used_count"),
        "sliding_window": None,
    }
    return "mixtral", fields


def _llama_rules(config: Config) -> Rules:
    return {**DECODER, **PAIRS, **(experts() if config.model_type == "mixtral" else {})}


def _smollm3(keys: Keys) -> tuple[str, Fields]:
    # Every fourth layer has no rotation; no file of the format says otherwise.
    return "smollm3", llama_fields(keys) | {"no_rope_layer_interval": 4}


def _mistral3(keys: Keys) -> tuple[str, Fields]:
    fields = llama_fields(keys)
    if "attention.temperature_scale" not in keys:
        return "mistral", fields | {"sliding_window": None}
    mscale = keys.number("rope.scaling.yarn_log_multiplier", 1.0)
    fields["rope_parameters"] |= {
        "llama_4_scaling_beta": keys.number("attention.temperature_scale"),
        "mscale": mscale,
        "mscale_all_dim": mscale,
    }
    return "ministral3", fields | {"sliding_window": None}


def _dense_rules(config: Config) -> Rules:
    return {**DECODER, **PAIRS}


LLAMA = Architecture(_llama, _llama_rules)
SMOLLM3 = Architecture(_smollm3, _dense_rules)
MISTRAL3 = Architecture(_mistral3, _dense_rules)
