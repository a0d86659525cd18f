"""Decoders whose files need little more than names: Cohere 2, ERNIE 4.5, HunYuan, MiniMax M2, Seed-OSS."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, sliding_layers
from mashbox.engine.worker.load.gguf_names import DECODER, QK_NORM, Config, Rules, bare, experts, rename
from mashbox.gguf_keys import Keys


def _cohere2(keys: Keys) -> tuple[str, Fields]:
    return "cohere2", decoder(keys) | {
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon"),
        "logit_scale": keys.number("logit_scale"),
        "sliding_window": keys.whole("attention.sliding_window"),
        "layer_types": sliding_layers(keys, 4),
    }


def _ernie(keys: Keys) -> tuple[str, Fields]:
    return "ernie4_5", decoder(keys) | {"use_bias": keys.has("blk.#.attn_q.bias")}


def _hunyuan(keys: Keys) -> tuple[str, Fields]:
    # The base that the file has is the one its scaling gives at the full context.
    return "hunyuan_v1_dense", decoder(keys) | {"attention_bias": keys.has("blk.#.attn_q.bias")}


def _minimax(keys: Keys) -> tuple[str, Fields]:
    return "minimax_m2", decoder(keys) | {
        "num_local_experts": keys.whole("expert_count"),
        "num_experts_per_tok": keys.whole("expert_used_count"),
        "intermediate_size": keys.whole("expert_feed_forward_length"),
    }


def _seed_oss(keys: Keys) -> tuple[str, Fields]:
    bias = keys.has("blk.#.attn_q.bias")
    return "seed_oss", decoder(keys) | {"attention_bias": bias, "attention_out_bias": False}


def _decoder_rules(config: Config) -> Rules:
    return DECODER


def _hunyuan_rules(config: Config) -> Rules:
    norms = {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"}
    return {**DECODER, **rename(norms)}


def _minimax_rules(config: Config) -> Rules:
    bias = bare({"mlp.e_score_correction_bias": "exp_probs_b.bias"})
    return {**DECODER, **QK_NORM, **experts(), **bias}


def _seed_oss_rules(config: Config) -> Rules:
    return {**DECODER, **rename({"post_attention_layernorm": "post_attention_norm"})}


COHERE2 = Architecture(_cohere2, _decoder_rules)
ERNIE4_5 = Architecture(_ernie, _decoder_rules)
HUNYUAN_DENSE = Architecture(_hunyuan, _hunyuan_rules)
MINIMAX_M2 = Architecture(_minimax, _minimax_rules)
SEED_OSS = Architecture(_seed_oss, _seed_oss_rules)
