"""gpt-oss: attention sinks, biases everywhere, experts whose gate and up rows alternate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, sliding_layers
from mashbox.engine.worker.load.gguf_names import ATTENTION, HEAD, Config, Rules, bare, rename
from mashbox.gguf_keys import Keys

if TYPE_CHECKING:
    from torch import Tensor


def _config(keys: Keys) -> tuple[str, Fields]:
    fields = decoder(keys)
    # The bounds of the rotation's ramp are not rounded in these models.
    fields["rope_parameters"] |= (
        {"truncate": False} if fields["rope_parameters"]["rope_type"] == "yarn" else {}
    )
    return "gpt_oss", fields | {
        "num_local_experts": keys.whole("expert_count"),
        "num_experts_per_tok": keys.whole("expert_used_count"),
        "intermediate_size": keys.whole("expert_feed_forward_length"),
        "sliding_window": keys.whole("attention.sliding_window"),
        "layer_types": sliding_layers(keys, 2),
    }


def _transposed(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    return ((target.transpose(1, 2),),)


def _alternating(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    """[experts, inputs, gate and up in turns] from two tensors [experts, outputs, inputs]."""
    outputs = target.transpose(1, 2)
    return ((outputs[:, 0::2],), (outputs[:, 1::2],))


def _alternating_biases(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    return ((target[:, 0::2],), (target[:, 1::2],))


def _rules(config: Config) -> Rules:
    return {
        **HEAD,
        **ATTENTION,
        **rename(
            {
                "input_layernorm": "attn_norm",
                "post_attention_layernorm": "post_attention_norm",
                "mlp.router": "ffn_gate_inp",
            }
        ),
        **bare(
            {
                "self_attn.sinks": "attn_sinks.weight",
                "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
            }
        ),
        **bare({"mlp.experts.down_proj": "ffn_down_exps.weight"}, _transposed),
        **bare({"mlp.experts.gate_up_proj": ("ffn_gate_exps.weight", "ffn_up_exps.weight")}, _alternating),
        **bare(
            {"mlp.experts.gate_up_proj_bias": ("ffn_gate_exps.bias", "ffn_up_exps.bias")}, _alternating_biases
        ),
    }


GPT_OSS = Architecture(_config, _rules)
