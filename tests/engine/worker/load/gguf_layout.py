"""What llama.cpp's converter does to a checkpoint's tensors and metadata, written for these tests.

Names come from the ``gguf`` package's own map. Each function gives the tensors that a parameter becomes,
under the names of the classic checkpoints; the metadata are those that the converter writes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Named = Iterator[tuple[str, Tensor]]
Change = Callable[[str, Tensor, Any], Named]


def unchanged(name: str, tensor: Tensor, config: Any) -> Named:
    yield name, tensor


def split_experts(name: str, tensor: Tensor, config: Any) -> Named:
    """transformers keeps the experts' gate above their up projection."""
    if name.endswith("experts.gate_up_proj"):
        gate, up = tensor.chunk(2, dim=1)
        stem = name.removesuffix("gate_up_proj")
        yield f"{stem}gate_proj.weight", gate
        yield f"{stem}up_proj.weight", up
    elif name.endswith("experts.down_proj"):
        yield f"{name}.weight", tensor
    elif name.endswith("e_score_correction_bias"):
        yield name.removesuffix("_bias") + ".bias", tensor
    else:
        yield name, tensor


def interleave_halves(tensor: Tensor, heads: int) -> Tensor:
    """The rows of each head so that those turned together are neighbours: 0, n/2, 1, n/2 + 1, …"""
    rows = tensor.shape[0] // heads
    order = [
        head * rows + i + half for head in range(heads) for i in range(rows // 2) for half in (0, rows // 2)
    ]
    return tensor[order]


def llama(name: str, tensor: Tensor, config: Any) -> Named:
    if ".q_proj." in name:
        yield name, interleave_halves(tensor, config.num_attention_heads)
    elif ".k_proj." in name:
        yield name, interleave_halves(tensor, config.num_key_value_heads)
    else:
        yield from split_experts(name.replace(".mlp.gate.", ".block_sparse_moe.gate."), tensor, config)


def plus_one(name: str, tensor: Tensor, config: Any) -> Named:
    yield name, tensor + 1 if name.endswith("norm.weight") else tensor


def gpt_oss(name: str, tensor: Tensor, config: Any) -> Named:
    stem = name.partition("experts.")[0] + "experts."
    if name.endswith("gate_up_proj"):
        yield f"{stem}gate_proj.weight", tensor[:, :, 0::2].transpose(1, 2)
        yield f"{stem}up_proj.weight", tensor[:, :, 1::2].transpose(1, 2)
    elif name.endswith("gate_up_proj_bias"):
        yield f"{stem}gate_proj.bias", tensor[:, 0::2]
        yield f"{stem}up_proj.bias", tensor[:, 1::2]
    elif name.endswith("experts.down_proj"):
        yield f"{name}.weight", tensor.transpose(1, 2)
    elif name.endswith("down_proj_bias"):
        yield f"{stem}down_proj.bias", tensor
    elif name.endswith("sinks"):
        yield f"{name}.weight", tensor
    else:
        yield name, tensor


def _delta_common(name: str, tensor: Tensor, config: Any) -> Named:
    if name.endswith("A_log"):
        yield name, -torch.exp(tensor)
    elif name.endswith("dt_bias"):
        yield name.replace("dt_bias", "dt_proj.bias"), tensor
    elif name.endswith("conv1d.weight"):
        yield name, tensor[:, 0]
    elif name.endswith("norm.weight") and "linear_attn.norm" not in name:
        yield name, tensor + 1
    elif name.endswith("shared_expert_gate.weight"):
        yield name, tensor[0]
    else:
        yield from split_experts(name, tensor, config)


def qwen3_next(name: str, tensor: Tensor, config: Any) -> Named:
    if not name.endswith("in_proj_qkvz.weight"):
        yield from _delta_common(name, tensor, config)
        return
    keys, size = config.linear_num_key_heads, config.linear_key_head_dim
    values = config.linear_num_value_heads // keys * config.linear_value_head_dim
    parts: dict[str, list[Tensor]] = {"q": [], "k": [], "v": [], "z": []}
    for head in tensor.chunk(keys):
        for part, rows in zip(parts, head.split([size, size, values, values]), strict=True):
            parts[part].append(rows)
    yield name.replace("in_proj_qkvz", "in_proj_qkv"), torch.cat(parts["q"] + parts["k"] + parts["v"])
    yield name.replace("in_proj_qkvz", "in_proj_z"), torch.cat(parts["z"])


def qwen35(name: str, tensor: Tensor, config: Any) -> Named:
    """Value heads go from one key head's after the other's to the first of each, the second of each, …"""
    keys, size = config.linear_num_key_heads, config.linear_value_head_dim
    each = config.linear_num_value_heads // keys
    heads = [key * each + i for i in range(each) for key in range(keys)]
    rows = [head * size + i for head in heads for i in range(size)]
    before = 2 * keys * config.linear_key_head_dim
    behind = [*range(before), *(before + row for row in rows)]
    for new, changed in _delta_common(name, tensor, config):
        if "in_proj_qkv" in name or "conv1d" in name:
            yield new, changed[behind]
        elif "in_proj_z" in name:
            yield new, changed[rows]
        elif "linear_attn.out_proj" in name:
            yield new, changed[:, rows]
        elif any(part in name for part in ("in_proj_a", "in_proj_b", "A_log", "dt_bias")):
            yield new, changed[heads]
        else:
            yield new, changed


def lfm2(name: str, tensor: Tensor, config: Any) -> Named:
    if name.endswith("conv.conv.weight"):
        yield name, tensor[:, 0]
    elif name.endswith("expert_bias"):
        yield f"{name}.bias", tensor
    elif "experts" in name:
        # Its checkpoints call the projections w1, w3 and w2.
        short = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
        for new, part in split_experts(name, tensor, config):
            stem, _, kind = new.removesuffix(".weight").rpartition(".")
            yield f"{stem.removeprefix('model.')}.{short[kind]}.weight", part
    else:
        yield name, tensor


def granite_hybrid(name: str, tensor: Tensor, config: Any) -> Named:
    layer = name.partition(".mamba.")[0]
    if name.endswith(("A_log", "mamba.D")):
        yield name, (-torch.exp(tensor) if name.endswith("A_log") else tensor)[:, None]
    elif name.endswith("dt_bias"):
        yield f"{layer}.mamba.dt_proj.bias", tensor
    elif name.endswith("conv1d.weight"):
        yield name, tensor[:, 0]
    elif name.endswith("mamba.norm.weight"):
        yield name, tensor.reshape(config.mamba_n_groups, -1)
    elif "shared_mlp.input_linear" in name:
        expert = "shared_expert." if config.num_local_experts else ""
        gate, up = tensor.chunk(2)
        stem = name.partition("shared_mlp")[0]
        yield f"{stem}mlp.{expert}gate_proj.weight", gate
        yield f"{stem}mlp.{expert}up_proj.weight", up
    elif "shared_mlp.output_linear" in name:
        expert = "shared_expert." if config.num_local_experts else ""
        yield f"{name.partition('shared_mlp')[0]}mlp.{expert}down_proj.weight", tensor
    elif "experts" in name:
        stem = name.partition("block_sparse_moe")[0]
        for new, part in split_experts(name, tensor, config):
            yield f"{stem}mlp{new.partition('block_sparse_moe')[2]}", part
    elif "router" in name:
        yield name.replace("router", "router.layer"), tensor
    else:
        yield from llama(name, tensor, config)


def deepseek(name: str, tensor: Tensor, config: Any) -> Named:
    if not name.endswith("kv_b_proj.weight"):
        yield from split_experts(name, tensor, config)
        return
    heads = tensor.chunk(config.num_attention_heads)
    keys = [head[: config.qk_nope_head_dim].T for head in heads]
    values = [head[config.qk_nope_head_dim :] for head in heads]
    yield name.replace("kv_b_proj", "k_b_proj"), torch.stack(keys)
    yield name.replace("kv_b_proj", "v_b_proj"), torch.stack(values)


def gemma4(name: str, tensor: Tensor, config: Any) -> Named:
    if name.endswith("layer_scalar") or "experts." in name:
        yield f"{name}.weight", tensor
    elif name.endswith("router.scale"):
        yield name.replace("router.scale", "router.proj.scale"), tensor
    elif name.endswith("per_expert_scale"):
        yield name.replace("router.per_expert_scale", "experts.down_proj.scale"), tensor
    else:
        yield name, tensor
