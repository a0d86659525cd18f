"""Gemma 4: two sizes of heads, shared keys and values, inputs for each layer, experts beside the MLP."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, sliding_layers
from mashbox.engine.worker.load.gguf_names import (
    ATTENTION,
    HEAD,
    MLP,
    QK_NORM,
    Config,
    Rule,
    Rules,
    bare,
    rename,
    stacked,
)
from mashbox.gguf_keys import Keys

PER_LAYER = "per_layer_token_embd.weight"
TURNED = "rope_freqs.weight"


def _config(keys: Keys) -> tuple[str, Fields]:
    kinds = sliding_layers(keys, 6)
    widths = keys.wholes("feed_forward_length", keys.layers)
    kv_heads = dict(zip(kinds, keys.wholes("attention.head_count_kv", keys.layers), strict=True))
    whole = [layer for layer, kind in enumerate(kinds) if kind == "full_attention"]
    fields = decoder(keys) | {
        "head_dim": keys.whole("attention.key_length_swa"),
        "global_head_dim": keys.whole("attention.key_length"),
        "num_key_value_heads": kv_heads.get("sliding_attention", kv_heads["full_attention"]),
        "num_global_key_value_heads": kv_heads["full_attention"],
        "attention_k_eq_v": not keys.has(f"blk.{whole[0]}.attn_v.weight"),
        "intermediate_size": min(widths),
        "use_double_wide_mlp": len(set(widths)) > 1,
        "layer_types": kinds,
        "sliding_window": keys.whole("attention.sliding_window"),
        "rope_parameters": _rope(keys),
        "num_kv_shared_layers": keys.whole("attention.shared_kv_layers", 0),
        "hidden_size_per_layer_input": keys.whole("embedding_length_per_layer_input", 0),
    }
    if keys.has(PER_LAYER):
        fields["vocab_size_per_layer_input"] = keys.file.tensors[PER_LAYER].shape[0]
    if "final_logit_softcapping" in keys:
        fields["final_logit_softcapping"] = keys.number("final_logit_softcapping")
    return "gemma4_text", fields | _experts(keys)


def _rope(keys: Keys) -> Fields:
    """Full attention turns a share of each head: the file marks the rest by enormous factors."""
    turned = 0.25
    if keys.has(TURNED):
        factors = keys.file.data(TURNED)
        turned = float((factors < 2).sum()) / len(factors)
    return {
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": turned,
            "rope_theta": keys.number("rope.freq_base"),
        },
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": keys.number("rope.freq_base_swa", 10000.0),
        },
    }


def _experts(keys: Keys) -> Fields:
    if not keys.whole("expert_count", 0):
        return {}
    return {
        "enable_moe_block": True,
        "num_experts": keys.whole("expert_count"),
        "top_k_experts": keys.whole("expert_used_count"),
        "moe_intermediate_size": keys.whole("expert_feed_forward_length"),
    }


NAMES = rename(
    {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
        "post_feedforward_layernorm": "post_ffw_norm",
        "post_feedforward_layernorm_1": "post_ffw_norm_1",
        "post_feedforward_layernorm_2": "post_ffw_norm_2",
        "per_layer_input_gate": "inp_gate",
        "per_layer_projection": "proj",
        "post_per_layer_input_norm": "post_norm",
        "router.proj": "ffn_gate_inp",
        ".embed_tokens_per_layer": "per_layer_token_embd",
        ".per_layer_model_projection": "per_layer_model_proj",
        ".per_layer_projection_norm": "per_layer_proj_norm",
    }
)
BARE = bare(
    {
        "layer_scalar": "layer_output_scale.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "experts.down_proj": "ffn_down_exps.weight",
    }
)
_APART = Rule(("blk.#.ffn_gate_exps.weight", "blk.#.ffn_up_exps.weight"), stacked)


def _rules(config: Config) -> Rules:
    gate_up = Rule(("blk.#.ffn_gate_up_exps.weight",), other=_APART)
    fused = {"model.layers.#.experts.gate_up_proj": gate_up}
    return {**HEAD, **ATTENTION, **MLP, **QK_NORM, **NAMES, **BARE, **fused}


GEMMA4 = Architecture(_config, _rules)
