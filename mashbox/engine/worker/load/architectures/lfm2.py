"""LFM2: short convolutions with attention in between, dense or with experts."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, mixture, stateful_layers
from mashbox.engine.worker.load.gguf_names import Config, Rules, bare, experts, rename, squeezed
from mashbox.gguf_keys import Keys


def _fields(keys: Keys) -> Fields:
    fields = decoder(keys)
    return fields | {
        "norm_eps": fields["rms_norm_eps"],
        "layer_types": stateful_layers(keys, "conv"),
        "conv_L_cache": keys.whole("shortconv.l_cache"),
        "conv_bias": keys.has("blk.#.shortconv.in_proj.bias"),
    }


def _lfm2(keys: Keys) -> tuple[str, Fields]:
    # The file's width is the final one, which the configuration would otherwise scale.
    return "lfm2", _fields(keys) | {"block_auto_adjust_ff_dim": False}


def _lfm2_moe(keys: Keys) -> tuple[str, Fields]:
    return "lfm2_moe", _fields(keys) | mixture(keys) | {
        "num_dense_layers": keys.whole("leading_dense_block_count", 0),
        "use_expert_bias": keys.has("blk.#.exp_probs_b.bias"),
        "norm_topk_prob": True,
        "routed_scaling_factor": keys.number("expert_weights_scale", 1.0),
    }


def _rules(config: Config) -> Rules:
    return {
        **rename({".embed_tokens": "token_embd", ".embedding_norm": "token_embd_norm", "lm_head": "output"}),
        **rename(
            {
                "operator_norm": "attn_norm",
                "ffn_norm": "ffn_norm",
                "self_attn.q_proj": "attn_q",
                "self_attn.k_proj": "attn_k",
                "self_attn.v_proj": "attn_v",
                "self_attn.out_proj": "attn_output",
                "self_attn.q_layernorm": "attn_q_norm",
                "self_attn.k_layernorm": "attn_k_norm",
                "conv.in_proj": "shortconv.in_proj",
                "conv.out_proj": "shortconv.out_proj",
                "feed_forward.w1": "ffn_gate",
                "feed_forward.w3": "ffn_up",
                "feed_forward.w2": "ffn_down",
            }
        ),
        **rename({"conv.conv": "shortconv.conv"}, squeezed),
        **experts("feed_forward", "feed_forward.gate"),
        **bare({"feed_forward.expert_bias": "exp_probs_b.bias"}),
    }


LFM2 = Architecture(_lfm2, _rules)
LFM2_MOE = Architecture(_lfm2_moe, _rules)
