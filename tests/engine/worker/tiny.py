"""Tiny models with random weights, one a model type, whose greedy output wanders.

A default initialisation of 0.02 makes tiny models repeat one token; these weights are drawn wide enough that
the next token depends on position, context and layer, so that a wrong mask, position or state shows.
"""

import math
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, PretrainedConfig

from mashbox.engine.worker.load.model import LoadedModel, build_empty, fill

VOCAB = 128
LAYERS = 4
WINDOW = 16

_BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MOE: dict[str, Any] = {
    "num_experts": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}
_ALTERNATING = ["sliding_attention", "full_attention"] * (LAYERS // 2)
_ROUTED: dict[str, Any] = {
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    **_MOE,
}
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    **_ROUTED,
}
_DELTA: dict[str, Any] = {
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"] * (LAYERS // 2),
}
_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 16,
}

SPECIAL: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": WINDOW, "head_dim": 24},
    "ministral": {"head_dim": 16, "sliding_window": WINDOW, "layer_types": _ALTERNATING},
    "ministral3": {"head_dim": 16},
    "smollm3": {"no_rope_layers": [1, 0, 1, 0], "no_rope_layer_interval": 2},
    "olmo": {},
    "olmo2": {},
    "olmo3": {"sliding_window": WINDOW, "layer_types": _ALTERNATING},
    "glm4": {"head_dim": 16},
    "glm": {"head_dim": 16},
    "phi": {},
    "phi3": {"sliding_window": WINDOW},
    "apertus": {},
    "arcee": {},
    "cohere": {},
    "exaone4": {"sliding_window": WINDOW, "layer_types": _ALTERNATING},
    "nemotron": {},
    "seed_oss": {"head_dim": 16},
    "stablelm": {},
    "starcoder2": {"sliding_window": WINDOW},
    "granite": {"attention_multiplier": 0.2, "logits_scaling": 2.0, "residual_multiplier": 0.5},
    "cohere2": {"sliding_window": WINDOW, "layer_types": _ALTERNATING, "tie_word_embeddings": True},
    "ernie4_5": {"head_dim": 16},
    "hunyuan_v1_dense": {"head_dim": 16},
    "gemma": {"head_dim": 16, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 16, "sliding_window": WINDOW, "layer_types": _ALTERNATING},
    "gemma3_text": {"head_dim": 16, "sliding_window": WINDOW, "layer_types": _ALTERNATING},
    "gemma4_text": {
        "head_dim": 16,
        "global_head_dim": 32,
        "sliding_window": WINDOW,
        "layer_types": _ALTERNATING,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCAB,
        "num_kv_shared_layers": 2,
    },
    "gpt_oss": {"head_dim": 16, "sliding_window": WINDOW, "layer_types": _ALTERNATING, **_MOE},
    "dots1": {"head_dim": 16, **_ROUTED, "sliding_window": WINDOW, "layer_types": _ALTERNATING},
    "ernie4_5_moe": {"head_dim": 16, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 48},
    "granitemoeshared": {"shared_intermediate_size": 48, **_MOE},
    "hunyuan_v1_moe": {"head_dim": 16, **_MOE, "moe_topk": 2, "num_experts": 8},
    "phimoe": {"sliding_window": WINDOW, **_MOE},
    "qwen2_moe": {"shared_expert_intermediate_size": 48, **_MOE},
    "qwen3_moe": {"head_dim": 16, **_MOE},
    "mixtral": _MOE,
    "olmoe": _MOE,
    "glm4_moe": {"head_dim": 16, **_ROUTED},
    "minimax_m2": {"head_dim": 16, "rotary_dim": 8, **_MOE},
    "deepseek_v2": {**_LATENT, "n_group": 1},
    "deepseek_v3": _LATENT,
    "glm4_moe_lite": _LATENT,
    "qwen3_5_text": _DELTA,
    "qwen3_5_moe_text": {**_DELTA, "shared_expert_intermediate_size": 48, **_MOE},
    "qwen3_next": {**_DELTA, "shared_expert_intermediate_size": 48, **_MOE},
    "lfm2": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * (LAYERS // 2), "num_dense_layers": 1, **_MOE},
    "granitemoe": _MOE,
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"] * (LAYERS // 2),
        "shared_intermediate_size": 48,
        **_MAMBA,
        **_MOE,
    },
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 128},
    "bamba": {**_MAMBA, "attn_layer_indices": [1, 3]},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "moe", "attention"],
        "head_dim": 16,
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "chunk_size": 16,
        "n_groups": 2,
        **_ROUTED,
    },
    "olmo_hybrid": {**_DELTA, "linear_num_key_heads": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 16},
    "falcon_mamba": {"state_size": 8},
    "mamba": {"state_size": 8},
}
"""What each model type needs beyond the common sizes."""


def tiny_config(model_type: str, **changes: Any) -> PretrainedConfig:
    """A configuration of a few layers, small enough for hundreds of forward passes a second."""
    return AutoConfig.for_model(model_type, **{**_BASE, **SPECIAL.get(model_type, {}), **changes})


def tiny_model(model_type: str, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """A model of ``model_type`` with random weights drawn from ``seed``."""
    config = tiny_config(model_type)
    module = build_empty(config, dtype)
    weights = random_weights(module, seed)
    weight_bytes = fill(module, weights.items(), dtype)
    return LoadedModel(module, config, model_type, weight_bytes, dtype)


def random_weights(module: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """A value for each tensor of an empty module's state dict, without the second name of tied ones."""
    generator = torch.Generator().manual_seed(seed)
    tied = getattr(module, "all_tied_weights_keys", {})
    weights = {}
    for name, empty in module.state_dict().items():
        if name in tied:
            continue
        noise = torch.randn(empty.shape, generator=generator)
        if name.endswith(("A_log", "dt_bias")):
            value = noise.abs()
        elif empty.ndim == 1 and name.endswith("weight"):
            value = 1 + 0.2 * noise
        elif empty.ndim <= 1:
            value = 0.3 * noise
        elif "embed" in name:
            value = noise
        else:
            value = noise * (2.0 / math.sqrt(empty.shape[-1]))
        weights[name] = value.to(empty.dtype)
    return weights
