"""Hybrids of gated delta nets and attention: Qwen3-Next, Qwen3.5 and later.

llama.cpp keeps most norms with one added, the decay as ``-exp(A_log)``, the convolution's kernel in two
dimensions, and from Qwen3.5 on the value heads in another order: the first of each key head, then the
second of each, where transformers has all of a key head's together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.architectures.qwen import SHARED
from mashbox.engine.worker.load.gguf_config import Fields, decoder, mixture, stateful_layers
from mashbox.engine.worker.load.gguf_names import (
    ATTENTION,
    HEAD,
    MLP,
    Config,
    Places,
    Rule,
    Rules,
    bare,
    experts,
    log_of_negative,
    rename,
    squeezed,
    without_one,
)
from mashbox.gguf_keys import Keys

if TYPE_CHECKING:
    from torch import Tensor


OFFSET_NORMS = rename(
    {
        ".norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    },
    values=without_one,
)
PLAIN = rename({"linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out"})


def _fields(keys: Keys) -> Fields:
    value_heads = keys.whole("ssm.time_step_rank")
    return decoder(keys) | {
        "layer_types": stateful_layers(keys, "linear_attention"),
        "attention_bias": keys.has("blk.#.attn_q.bias"),
        "linear_conv_kernel_dim": keys.whole("ssm.conv_kernel"),
        "linear_key_head_dim": keys.whole("ssm.state_size"),
        "linear_num_key_heads": keys.whole("ssm.group_count"),
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": keys.whole("ssm.inner_size") // value_heads,
    }


def _mixture(keys: Keys) -> Fields:
    shared = keys.whole("expert_shared_feed_forward_length")
    return mixture(keys) | {"shared_expert_intermediate_size": shared}


def _qwen3_next(keys: Keys) -> tuple[str, Fields]:
    return "qwen3_next", _fields(keys) | _mixture(keys) | {"norm_topk_prob": True}


def _qwen35_fields(keys: Keys) -> Fields:
    fields = _fields(keys)
    # Time, height, width, and a fourth that is always zero; of no effect on text alone.
    sections = keys.wholes("rope.dimension_sections", 4)
    fields["rope_parameters"] |= {"mrope_section": sections[:3], "mrope_interleaved": True}
    return fields


def _qwen35(keys: Keys) -> tuple[str, Fields]:
    return "qwen3_5_text", _qwen35_fields(keys)


def _qwen35_moe(keys: Keys) -> tuple[str, Fields]:
    return "qwen3_5_moe_text", _qwen35_fields(keys) | _mixture(keys)


def _by_key_head(rows: Tensor, config: Config) -> Tensor:
    """Rows of all value heads in llama.cpp's order: [of a key head, key heads, rows of a head, …]."""
    keys = config.linear_num_key_heads
    each = config.linear_num_value_heads // keys
    return rows.view(keys, each, -1, *rows.shape[1:]).transpose(0, 1)


def _value_rows(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    return ((_by_key_head(target, config),),)


def _value_columns(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    keys = config.linear_num_key_heads
    each = config.linear_num_value_heads // keys
    return ((target.view(target.shape[0], keys, each, -1).transpose(1, 2),),)


def _after_keys(inner: Callable[[Tensor], Tensor] = lambda rows: rows) -> Places:
    """Rows of queries and keys as they are, then those of the value heads."""

    def places(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
        rows = inner(target)
        queries_and_keys = 2 * config.linear_num_key_heads * config.linear_key_head_dim
        return ((rows[:queries_and_keys], _by_key_head(rows[queries_and_keys:], config)),)

    return places


def _apart_by_key_head(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    """Qwen3-Next's one projection: q, k, v and z of each key head together; the file has qkv, and z."""
    keys, key_dim = config.linear_num_key_heads, config.linear_key_head_dim
    value_rows = config.linear_num_value_heads // keys * config.linear_value_head_dim
    of_key_head = target.view(keys, -1, target.shape[1])
    import torch

    q, k, v, z = torch.split(of_key_head, [key_dim, key_dim, value_rows, value_rows], dim=1)
    return ((q, k, v), (z,))


def _base(config: Config) -> dict[str, Rule]:
    mixed = {**experts(), **SHARED} if hasattr(config, "num_experts") else {}
    return {**HEAD, **ATTENTION, **MLP, **OFFSET_NORMS, **PLAIN, **mixed}


def _qwen3_next_rules(config: Config) -> Rules:
    return {
        **_base(config),
        **rename({"linear_attn.in_proj_ba": "ssm_ba"}),
        **rename({"linear_attn.conv1d": "ssm_conv1d"}, squeezed),
        **bare({"linear_attn.dt_bias": "ssm_dt.bias"}),
        **bare({"linear_attn.A_log": "ssm_a"}, values=log_of_negative),
        **bare(
            {"linear_attn.in_proj_qkvz.weight": ("attn_qkv.weight", "attn_gate.weight")}, _apart_by_key_head
        ),
    }


def _qwen35_rules(config: Config) -> Rules:
    return {
        **_base(config),
        **rename({"linear_attn.in_proj_qkv": "attn_qkv"}, _after_keys()),
        **rename({"linear_attn.conv1d": "ssm_conv1d"}, _after_keys(lambda kernel: kernel.squeeze(1))),
        **rename(
            {
                "linear_attn.in_proj_z": "attn_gate",
                "linear_attn.in_proj_a": "ssm_alpha",
                "linear_attn.in_proj_b": "ssm_beta",
            },
            _value_rows,
        ),
        **rename({"linear_attn.out_proj": "ssm_out"}, _value_columns),
        **bare({"linear_attn.dt_bias": "ssm_dt.bias"}, _value_rows),
        **bare({"linear_attn.A_log": "ssm_a"}, _value_rows, log_of_negative),
    }


QWEN3_NEXT = Architecture(_qwen3_next, _qwen3_next_rules)
QWEN35 = Architecture(_qwen35, _qwen35_rules)
QWEN35_MOE = Architecture(_qwen35_moe, _qwen35_rules)
