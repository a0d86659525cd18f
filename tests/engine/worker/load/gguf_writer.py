"""Writes transformers modules to GGUF as llama.cpp's converter would, for tests of the way back."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFValueType
from torch import Tensor, nn

from tests.engine.worker.load import gguf_layout as layout

Keys = dict[str, Any]
ARCHITECTURES: dict[str, tuple[str, layout.Change]] = {
    "cohere2": ("cohere2", layout.unchanged),
    "deepseek_v2": ("deepseek2", layout.deepseek),
    "deepseek_v3": ("deepseek2", layout.deepseek),
    "ernie4_5": ("ernie4_5", layout.unchanged),
    "exaone4": ("exaone4", layout.unchanged),
    "gemma": ("gemma", layout.plus_one),
    "gemma2": ("gemma2", layout.plus_one),
    "gemma3_text": ("gemma3", layout.plus_one),
    "gemma4_text": ("gemma4", layout.gemma4),
    "glm4": ("glm4", layout.unchanged),
    "glm4_moe": ("glm4moe", layout.split_experts),
    "gpt_oss": ("gpt-oss", layout.gpt_oss),
    "granite": ("granite", layout.llama),
    "granitemoe": ("granitemoe", layout.granite_hybrid),
    "granitemoeshared": ("granitemoe", layout.granite_hybrid),
    "granitemoehybrid": ("granitehybrid", layout.granite_hybrid),
    "hunyuan_v1_dense": ("hunyuan-dense", layout.unchanged),
    "lfm2": ("lfm2", layout.lfm2),
    "lfm2_moe": ("lfm2moe", layout.lfm2),
    "llama": ("llama", layout.llama),
    "minimax_m2": ("minimax-m2", layout.split_experts),
    "ministral3": ("mistral3", layout.llama),
    "mistral": ("mistral3", layout.llama),
    "mixtral": ("llama", layout.llama),
    "olmo2": ("olmo2", layout.unchanged),
    "olmo3": ("olmo2", layout.unchanged),
    "olmoe": ("olmoe", layout.split_experts),
    "phi3": ("phi3", layout.unchanged),
    "qwen2": ("qwen2", layout.unchanged),
    "qwen2_moe": ("qwen2moe", layout.split_experts),
    "qwen3": ("qwen3", layout.unchanged),
    "qwen3_5_moe_text": ("qwen35moe", layout.qwen35),
    "qwen3_5_text": ("qwen35", layout.qwen35),
    "qwen3_moe": ("qwen3moe", layout.split_experts),
    "qwen3_next": ("qwen3next", layout.qwen3_next),
    "seed_oss": ("seed_oss", layout.unchanged),
    "smollm3": ("smollm3", layout.llama),
}
"""The file's architecture and the layout of its tensors, by transformers' model type."""

_COMMON = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.shared_kv_layers": "num_kv_shared_layers",
    "expert_used_count": "num_experts_per_tok",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    "expert_shared_count": "n_shared_experts",
    "expert_weights_scale": "routed_scaling_factor",
    "expert_weights_norm": "norm_topk_prob",
    "leading_dense_block_count": "first_k_dense_replace",
    "final_logit_softcapping": "final_logit_softcapping",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "shortconv.l_cache": "conv_L_cache",
}
_ROPE = {
    "rope.freq_base": "rope_theta",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}


def write_gguf(path: Path, module: nn.Module, config: Any, quant: str = "F32") -> None:
    """``module`` as a GGUF file: matrices of ``quant`` where their rows are long enough, the rest F32."""
    architecture, change = ARCHITECTURES[config.model_type]
    write_tensors(path, config, tensors_of(module, config, architecture, change), quant=quant)


def write_tensors(
    path: Path,
    config: Any,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, Any] | None = None,
    *,
    quant: str = "F32",
) -> None:
    """The given tensors of the file, under the metadata of ``config`` and those given."""
    architecture, _ = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {**metadata_of(config, architecture), **(metadata or {})}.items():
        if value is not None:
            _add(writer, key, value)
    for name, tensor in tensors.items():
        _add_tensor(writer, name, tensor, quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors_of(module: nn.Module, config: Any, architecture: str, change: layout.Change) -> dict[str, Tensor]:
    """The file's tensors by their names there."""
    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known[architecture], config.num_hidden_layers)
    tied = config.tie_word_embeddings
    tensors: dict[str, Tensor] = {}
    for name, tensor in module.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        for classic, part in change(name, tensor, config):
            new = names.get_name(classic, (".weight", ".bias", ".scale"))
            assert new is not None, f"the gguf package has no name for {classic}"
            tensors[new] = part
    return tensors


def metadata_of(config: Any, architecture: str) -> Keys:
    """The metadata that the converter writes for a configuration."""
    fields = {key: getattr(config, name, None) for key, name in _COMMON.items()}
    rope = config.rope_parameters or {}
    full = rope.get("full_attention", rope)
    fields |= {key: full.get(name) for key, name in _ROPE.items()}
    fields["rope.freq_base_swa"] = rope.get("sliding_attention", {}).get("rope_theta")
    if full.get("rope_type") in ("yarn", "linear"):
        fields["rope.scaling.type"] = full["rope_type"]
    head = getattr(config, "head_dim", None)
    if head:
        fields |= {"attention.key_length": head, "attention.value_length": head}
        fields["rope.dimension_count"] = int(head * full.get("partial_rotary_factor", 1.0))
    counts = ("n_routed_experts", "num_local_experts", "num_experts")
    fields["expert_count"] = next((getattr(config, name) for name in counts if hasattr(config, name)), None)
    if fields["expert_count"]:
        fields["expert_feed_forward_length"] = getattr(
            config, "moe_intermediate_size", config.intermediate_size
        )
        shared = getattr(config, "shared_expert_intermediate_size", None)
        fields["expert_shared_feed_forward_length"] = shared
    special = _SPECIAL.get(config.model_type)
    if special:
        fields |= special(config)
    prefixed = {f"{architecture}.{key}": value for key, value in fields.items() if value is not None}
    return prefixed | {"general.file_type": 0}


def _sliding(config: Any) -> Keys:
    return {"attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types]}


def _wide_experts(config: Any) -> Keys:
    return {"expert_feed_forward_length": config.intermediate_size}


def _gpt_oss(config: Any) -> Keys:
    return _sliding(config) | _wide_experts(config)


def _granite(config: Any) -> Keys:
    return {
        "attention.scale": config.attention_multiplier,
        "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier,
        "logit_scale": config.logits_scaling,
    }


def _hybrid_heads(config: Any) -> list[int]:
    attending = ("attention", "full_attention")
    return [config.num_key_value_heads if kind in attending else 0 for kind in config.layer_types]


def _granite_shared(config: Any) -> Keys:
    return _granite(config) | {"expert_shared_feed_forward_length": config.shared_intermediate_size}


def _granite_hybrid(config: Any) -> Keys:
    return _granite(config) | {
        "attention.head_count_kv": _hybrid_heads(config),
        "expert_shared_feed_forward_length": config.shared_intermediate_size,
        "rope.scaling.finetuned": config.position_embedding_type == "rope",
        "ssm.conv_kernel": config.mamba_d_conv,
        "ssm.state_size": config.mamba_d_state,
        "ssm.group_count": config.mamba_n_groups,
        "ssm.inner_size": config.mamba_n_heads * config.mamba_d_head,
        "ssm.time_step_rank": config.mamba_n_heads,
    }


def _lfm2(config: Any) -> Keys:
    width = config.intermediate_size
    if getattr(config, "block_auto_adjust_ff_dim", False):
        width = -(-int(2 * width / 3) // config.block_multiple_of) * config.block_multiple_of
    return {
        "attention.head_count_kv": _hybrid_heads(config),
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "feed_forward_length": width,
        "leading_dense_block_count": getattr(config, "num_dense_layers", None),
    }


def _delta_net(config: Any) -> Keys:
    return {
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads,
        "ssm.time_step_rank": config.linear_num_value_heads,
        "ssm.inner_size": config.linear_value_head_dim * config.linear_num_value_heads,
        "attention.recurrent_layers": [kind == "linear_attention" for kind in config.layer_types],
        "full_attention_interval": 4,
        "rope.dimension_sections": [1, 1, 1, 0],
    }


def _deepseek(config: Any) -> Keys:
    rank, turned = config.kv_lora_rank, config.qk_rope_head_dim
    return {
        "attention.head_count_kv": 1,
        "attention.key_length": rank + turned,
        "attention.value_length": rank,
        "attention.key_length_mla": config.qk_nope_head_dim + turned,
        "attention.value_length_mla": config.v_head_dim,
        "rope.dimension_count": turned,
        "expert_gating_func": 2 if config.model_type == "deepseek_v3" else 1,
    }


def _gemma4(config: Any) -> Keys:
    full = config.layer_types.index("full_attention")
    whole = config.per_layer_config[full].head_dim
    return _sliding(config) | {
        "attention.key_length": whole,
        "attention.value_length": whole,
        "attention.key_length_swa": config.head_dim,
        "attention.value_length_swa": config.head_dim,
        "rope.dimension_count": whole,
        "rope.dimension_count_swa": config.head_dim,
    }


def _ministral3(config: Any) -> Keys:
    return {
        "attention.temperature_scale": config.rope_parameters["llama_4_scaling_beta"],
        "rope.scaling.yarn_log_multiplier": config.rope_parameters["mscale_all_dim"],
    }


def _cohere2(config: Any) -> Keys:
    return _sliding(config) | {"logit_scale": config.logit_scale}


_SPECIAL: dict[str, Callable[[Any], Keys]] = {
    "cohere2": _cohere2,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gemma2": _sliding,
    "gemma3_text": _sliding,
    "gemma4_text": _gemma4,
    "gpt_oss": _gpt_oss,
    "exaone4": _sliding,
    "granite": _granite,
    "granitemoe": _granite,
    "granitemoeshared": _granite_shared,
    "granitemoehybrid": _granite_hybrid,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "minimax_m2": _wide_experts,
    "ministral3": _ministral3,
    "olmo3": _sliding,
    "qwen3_5_moe_text": _delta_net,
    "qwen3_5_text": _delta_net,
    "qwen3_next": _delta_net,
}


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_key_value(key, value, GGUFValueType.FLOAT32)
    else:
        writer.add_string(key, value)


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: Tensor, quant: str) -> None:
    numbers = tensor.detach().to(torch.float32).contiguous().numpy()
    if quant == "F32" or tensor.ndim < 2 or tensor.shape[-1] % 32:
        writer.add_tensor(name, numbers)
        return
    kind = GGMLQuantizationType[quant]
    writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)


def stored(tensor: Tensor, quant: str) -> Tensor:
    """The numbers that a matrix has after a round through ``quant``."""
    numbers = np.ascontiguousarray(tensor.detach().numpy())
    kind = GGMLQuantizationType[quant]
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(numbers, kind), kind).copy())
