"""Qwen 2, 2.5 and 3, dense and mixtures of experts."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, mixture
from mashbox.engine.worker.load.gguf_names import (
    DECODER,
    QK_NORM,
    Config,
    Rules,
    experts,
    rename,
    shared_expert,
)
from mashbox.gguf_keys import Keys

SHARED = shared_expert("mlp.shared_expert") | rename({"mlp.shared_expert_gate": "ffn_gate_inp_shexp"})


def _qwen2(keys: Keys) -> tuple[str, Fields]:
    return "qwen2", decoder(keys)


def _qwen3(keys: Keys) -> tuple[str, Fields]:
    return "qwen3", decoder(keys) | {"attention_bias": keys.has("blk.#.attn_q.bias")}


def _qwen2_moe(keys: Keys) -> tuple[str, Fields]:
    return "qwen2_moe", decoder(keys) | mixture(keys) | {
        "shared_expert_intermediate_size": keys.whole("expert_shared_feed_forward_length"),
        "qkv_bias": keys.has("blk.#.attn_q.bias"),
        "norm_topk_prob": False,
    }


def _qwen3_moe(keys: Keys) -> tuple[str, Fields]:
    # The weights of the chosen experts add up to one in every model of this architecture.
    return "qwen3_moe", decoder(keys) | mixture(keys) | {"norm_topk_prob": True}


def _dense(config: Config) -> Rules:
    return {**DECODER, **QK_NORM}


def _sparse(config: Config) -> Rules:
    return {**DECODER, **QK_NORM, **experts(), **SHARED}


QWEN2 = Architecture(_qwen2, _dense)
QWEN3 = Architecture(_qwen3, _dense)
QWEN2_MOE = Architecture(_qwen2_moe, _sparse)
QWEN3_MOE = Architecture(_qwen3_moe, _sparse)
