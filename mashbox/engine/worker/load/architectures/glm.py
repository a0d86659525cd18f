"""GLM 4: norms around each block in the dense one, sigmoid-gated experts in GLM 4.5."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, mixture
from mashbox.engine.worker.load.gguf_names import (
    DECODER,
    QK_NORM,
    Config,
    Rules,
    bare,
    experts,
    rename,
    shared_expert,
)
from mashbox.errors import UnsupportedModel
from mashbox.gguf_keys import Keys


def _glm4(keys: Keys) -> tuple[str, Fields]:
    if "rope.dimension_sections" in keys:
        raise UnsupportedModel(f"{keys.file.paths[0]}: GLM 4 models that read images can't be served.")
    return "glm4", decoder(keys) | {"attention_bias": keys.has("blk.#.attn_q.bias")}


def _glm4_rules(config: Config) -> Rules:
    around = {
        "mlp.gate_up_proj": "ffn_up",
        "post_self_attn_layernorm": "post_attention_norm",
        "post_mlp_layernorm": "post_ffw_norm",
    }
    return {**DECODER, **rename(around)}


def _glm4_moe(keys: Keys) -> tuple[str, Fields]:
    return "glm4_moe", decoder(keys) | mixture(keys, "n_routed_experts") | {
        "attention_bias": keys.has("blk.#.attn_q.bias"),
        "use_qk_norm": keys.has("blk.#.attn_q_norm.weight"),
        "n_shared_experts": keys.whole("expert_shared_count", 1),
        "first_k_dense_replace": keys.whole("leading_dense_block_count", 0),
        "routed_scaling_factor": keys.number("expert_weights_scale", 1.0),
        "norm_topk_prob": keys.flag("expert_weights_norm", True),
        "n_group": keys.whole("expert_group_count", 1),
        "topk_group": keys.whole("expert_group_used_count", 1),
    }


def _glm4_moe_rules(config: Config) -> Rules:
    return {
        **DECODER,
        **QK_NORM,
        **rename({"post_attention_layernorm": "post_attention_norm"}),
        **experts(),
        **shared_expert("mlp.shared_experts"),
        **bare({"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}),
    }


GLM4 = Architecture(_glm4, _glm4_rules)
GLM4_MOE = Architecture(_glm4_moe, _glm4_moe_rules)
