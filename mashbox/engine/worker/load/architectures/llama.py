"""Llama and what shares its module: Mistral, SmolLM2, Mixtral."""

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


def _config(keys: Keys) -> tuple[str, Fields]:
    fields = decoder(keys)
    if keys.has("rope_freqs.weight"):
        fields["rope_parameters"] = llama3_rope(keys, keys.file.data("rope_freqs.weight").tolist())
    if keys.raw("expert_count"):
        fields |= {
            "num_local_experts": keys.whole("expert_count"),
            "num_experts_per_tok": keys.whole("expert_used_count"),
        }
        return "mixtral", fields
    fields |= {"attention_bias": keys.has("blk.#.attn_q.bias"), "mlp_bias": keys.has("blk.#.ffn_up.bias")}
    return "llama", fields


def _rules(config: Config) -> Rules:
    mixture = experts() if config.model_type == "mixtral" else {}
    return {**DECODER, **PAIRS, **mixture}


LLAMA = Architecture(_config, _rules)
