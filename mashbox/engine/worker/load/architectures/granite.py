"""Granite: Llama with scales; Granite 4 mixes Mamba 2 and attention, with experts beside a shared one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.architectures.llama import PAIRS, llama_fields
from mashbox.engine.worker.load.gguf_config import Fields, stateful_layers
from mashbox.engine.worker.load.gguf_names import (
    DECODER,
    Config,
    Rule,
    Rules,
    bare,
    experts,
    log_of_negative,
    rename,
    squeezed,
    stacked,
)
from mashbox.gguf_keys import Keys

if TYPE_CHECKING:
    from torch import Tensor


def _scaled(keys: Keys) -> Fields:
    fields = llama_fields(keys)
    return fields | {
        "attention_multiplier": keys.number("attention.scale", fields["head_dim"] ** -0.5),
        "embedding_multiplier": keys.number("embedding_scale", 1.0),
        "residual_multiplier": keys.number("residual_scale", 1.0),
        "logits_scaling": keys.number("logit_scale", 1.0),
    }


def _granite(keys: Keys) -> tuple[str, Fields]:
    return "granite", _scaled(keys)


def _granite_moe(keys: Keys) -> tuple[str, Fields]:
    fields = _scaled(keys) | {
        "num_local_experts": keys.whole("expert_count"),
        "num_experts_per_tok": keys.whole("expert_used_count"),
    }
    shared = keys.whole("expert_shared_feed_forward_length", 0)
    if not shared:
        return "granitemoe", fields
    return "granitemoeshared", fields | {"shared_intermediate_size": shared}


def _granite_rules(config: Config) -> Rules:
    return {**DECODER, **PAIRS}


def _hybrid(keys: Keys) -> tuple[str, Fields]:
    fields = _scaled(keys)
    count = keys.whole("expert_count", 0)
    heads, inner = keys.whole("ssm.time_step_rank"), keys.whole("ssm.inner_size")
    shared = keys.whole("expert_shared_feed_forward_length", 0) if count else fields["intermediate_size"]
    return "granitemoehybrid", fields | {
        "layer_types": stateful_layers(keys, "mamba", "attention"),
        "position_embedding_type": "rope" if keys.flag("rope.scaling.finetuned", True) else None,
        "num_local_experts": count,
        "num_experts_per_tok": keys.whole("expert_used_count", 0),
        "shared_intermediate_size": shared,
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_n_groups": keys.whole("ssm.group_count"),
        "mamba_d_state": keys.whole("ssm.state_size"),
        "mamba_d_conv": keys.whole("ssm.conv_kernel"),
        "mamba_expand": inner // fields["hidden_size"],
        "mamba_conv_bias": keys.has("blk.#.ssm_conv1d.bias"),
        "mamba_proj_bias": keys.has("blk.#.ssm_in.bias"),
    }


def _squeezed_kernel(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    return squeezed(target, config) if target.ndim == 3 else ((target,),)


def _mixed_rules(config: Config) -> dict[str, Rule]:
    suffix = "_shexp" if config.num_local_experts else ""
    return {
        **DECODER,
        **PAIRS,
        **experts("block_sparse_moe", "block_sparse_moe.router"),
        **bare(
            {"shared_mlp.input_linear.weight": (f"ffn_gate{suffix}.weight", f"ffn_up{suffix}.weight")},
            stacked,
        ),
        **bare({"shared_mlp.output_linear.weight": f"ffn_down{suffix}.weight"}),
    }


def _hybrid_rules(config: Config) -> Rules:
    return {
        **_mixed_rules(config),
        **rename({"mamba.in_proj": "ssm_in", "mamba.out_proj": "ssm_out", "mamba.norm": "ssm_norm"}),
        **rename({"mamba.conv1d": "ssm_conv1d"}, _squeezed_kernel),
        **bare({"mamba.dt_bias": "ssm_dt.bias", "mamba.D": "ssm_d"}),
        **bare({"mamba.A_log": "ssm_a"}, values=log_of_negative),
    }


GRANITE = Architecture(_granite, _granite_rules)
GRANITE_MOE = Architecture(_granite_moe, _mixed_rules)
GRANITE_HYBRID = Architecture(_hybrid, _hybrid_rules)
