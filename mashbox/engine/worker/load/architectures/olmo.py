"""OLMo 2 and 3: norms behind each block, over all heads of queries and keys; OLMoE before each; EXAONE 4."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, llama3_rope, sliding_layers
from mashbox.engine.worker.load.gguf_names import (
    ATTENTION,
    DECODER,
    HEAD,
    MLP,
    QK_NORM,
    Config,
    Rules,
    experts,
    rename,
)
from mashbox.gguf_keys import Keys


def _config(keys: Keys) -> tuple[str, Fields]:
    fields = decoder(keys)
    if not keys.whole("attention.sliding_window", 0):
        return "olmo2", fields
    rope = fields["rope_parameters"]
    local = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
    return "olmo3", fields | {
        "rope_parameters": {"full_attention": rope, "sliding_attention": local},
        "sliding_window": keys.whole("attention.sliding_window"),
        "layer_types": sliding_layers(keys, 4),
    }


def _olmoe(keys: Keys) -> tuple[str, Fields]:
    fields = decoder(keys)
    return "olmoe", fields | {
        "num_experts": keys.whole("expert_count"),
        "num_experts_per_tok": keys.whole("expert_used_count"),
        "norm_topk_prob": False,
    }


def _exaone4(keys: Keys) -> tuple[str, Fields]:
    fields = decoder(keys)
    if keys.has("rope_freqs.weight"):
        fields["rope_parameters"] = llama3_rope(keys, keys.file.data("rope_freqs.weight").tolist())
    window = keys.whole("attention.sliding_window", 0)
    return "exaone4", fields | {
        "sliding_window": window or None,
        "layer_types": sliding_layers(keys, 4) if window else ["full_attention"] * keys.layers,
    }


def _olmoe_rules(config: Config) -> Rules:
    return {**DECODER, **QK_NORM, **experts()}


def _rules(config: Config) -> Rules:
    behind = {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    return {**HEAD, **ATTENTION, **MLP, **QK_NORM, **rename(behind)}


EXAONE4 = Architecture(_exaone4, _rules)
OLMOE = Architecture(_olmoe, _olmoe_rules)
OLMO2 = Architecture(_config, _rules)
