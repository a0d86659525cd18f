"""DeepSeek 2 and 3: latent attention, experts with shared ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, mixture, rope
from mashbox.engine.worker.load.gguf_names import (
    DECODER,
    Config,
    Rule,
    Rules,
    bare,
    experts,
    rename,
    shared_expert,
)
from mashbox.gguf_keys import Keys

if TYPE_CHECKING:
    from torch import Tensor


_SIGMOID = 2
"""llama.cpp's number of the router's function; DeepSeek 3 is the one with it."""


def _config(keys: Keys) -> tuple[str, Fields]:
    turned = keys.whole("rope.dimension_count")
    heads = keys.whole("attention.head_count")
    key_length = keys.whole("attention.key_length_mla", keys.whole("attention.key_length", 0))
    angles = rope(keys, turned)
    if "rope.scaling.yarn_log_multiplier" in keys:
        # The file has a tenth of the exponent, for old reasons.
        mscale = round(keys.number("rope.scaling.yarn_log_multiplier") * 10, 6)
        angles |= {"mscale": mscale, "mscale_all_dim": mscale}
    fields = (
        decoder(keys)
        | mixture(keys, "n_routed_experts")
        | {
            "num_key_value_heads": heads,
            "rope_parameters": angles,
            "kv_lora_rank": keys.whole("attention.kv_lora_rank"),
            "q_lora_rank": keys.whole("attention.q_lora_rank", 0) or None,
            "qk_rope_head_dim": turned,
            "qk_nope_head_dim": key_length - turned,
            "v_head_dim": keys.whole("attention.value_length_mla", keys.whole("attention.value_length", 0)),
            "n_shared_experts": keys.whole("expert_shared_count"),
            "first_k_dense_replace": keys.whole("leading_dense_block_count", 0),
            "routed_scaling_factor": keys.number("expert_weights_scale", 1.0),
            "norm_topk_prob": keys.flag("expert_weights_norm", False),
            "n_group": keys.whole("expert_group_count", 1),
            "topk_group": keys.whole("expert_group_used_count", 1),
        }
    )
    del fields["head_dim"]
    return _model_type(keys, fields)


def _model_type(keys: Keys, fields: Fields) -> tuple[str, Fields]:
    if keys.whole("expert_gating_func", 0) == _SIGMOID or keys.has("blk.#.exp_probs_b.bias"):
        return "deepseek_v3", fields
    grouped = fields["n_group"] > 1
    return "deepseek_v2", fields | {"topk_method": "group_limited_greedy" if grouped else "greedy"}


def _keys_and_values(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    """Each head's keys, transposed in the file, and its values, from two tensors."""
    rows = target.view(config.num_attention_heads, -1, target.shape[1])
    import torch

    keys, values = torch.split(rows, [config.qk_nope_head_dim, config.v_head_dim], dim=1)
    return ((keys.transpose(1, 2),), (values,))


def _rules(config: Config) -> Rules:
    together = Rule(("blk.#.attn_kv_b.weight",))
    apart = Rule(("blk.#.attn_k_b.weight", "blk.#.attn_v_b.weight"), _keys_and_values, other=together)
    return {
        **DECODER,
        **rename(
            {
                "self_attn.q_a_proj": "attn_q_a",
                "self_attn.q_a_layernorm": "attn_q_a_norm",
                "self_attn.q_b_proj": "attn_q_b",
                "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
                "self_attn.kv_a_layernorm": "attn_kv_a_norm",
            }
        ),
        "model.layers.#.self_attn.kv_b_proj.weight": apart,
        **experts(),
        **shared_expert("mlp.shared_experts"),
        **bare({"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}),
    }


DEEPSEEK2 = Architecture(_config, _rules)
