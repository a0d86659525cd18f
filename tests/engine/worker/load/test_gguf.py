"""GGUF files of every architecture become the module that they were written from."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mashbox.engine.worker.load.architectures import ARCHITECTURES
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.model import build_empty, fill
from mashbox.errors import BadWeights, ModelError, UnsupportedModel
from mashbox.gguf_file import GGUFFile
from tests.engine.worker.load import gguf_writer
from tests.engine.worker.load.gguf_writer import write_gguf
from tests.engine.worker.tiny import random_weights, tiny_config
from tests.marks import QUICK, slow_but

# What a file can't say, or what llama.cpp takes for granted, differs from the tiny models' defaults.
CHANGES: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 16, "tie_word_embeddings": True},
    "exaone4": {"sliding_window_pattern": 2},
    "gemma3_text": {"query_pre_attn_scalar": 16},
    "gemma4_text": {"allow_global_per_layer_attribute_access": True},
    "lfm2_moe": {"tie_word_embeddings": True},
    "mistral": {"sliding_window": None},
    "qwen2": {"use_sliding_window": False},
    "qwen3_moe": {"norm_topk_prob": True},
    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    (
        "gpt_oss",
        {
            "max_position_embeddings": 131072,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
        },
    ),
    (
        "gemma3_text",
        {
            "query_pre_attn_scalar": 16,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    ("granitemoehybrid", {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 96}),
    (
        "gemma4_text",
        {
            "hidden_size_per_layer_input": 0,
            "num_kv_shared_layers": 0,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "attention_k_eq_v": True,
            "final_logit_softcapping": 30.0,
        },
    ),
    ("deepseek_v3", {"q_lora_rank": None, "n_shared_experts": 2, "routed_scaling_factor": 2.5}),
    ("qwen2", {"use_sliding_window": False, "tie_word_embeddings": True}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24, "tie_word_embeddings": False}),
]


def nothing(stage: str, done: int, total: int) -> None:
    """No progress is shown."""


def original(model_type: str, **changes: Any) -> tuple[nn.Module, Any]:
    config = tiny_config(model_type, **{**CHANGES.get(model_type, {}), **changes})
    module = build_empty(config, torch.float32)
    fill(module, random_weights(module, seed=1).items(), torch.float32)
    return module, config


def logits(module: nn.Module) -> Tensor:
    ids = torch.randint(0, 128, (1, 40), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        result: Tensor = module(input_ids=ids, use_cache=False).logits
    return result


def assert_same(loaded: nn.Module, expected: nn.Module) -> None:
    ours, theirs = loaded.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(
            ours[name], tensor, rtol=0, atol=2e-6, msg=lambda m, name=name: f"{name}: {m}"
        )
    torch.testing.assert_close(logits(loaded), logits(expected), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model_type", slow_but(QUICK, sorted(gguf_writer.ARCHITECTURES)))
def test_every_architecture_comes_back(model_type: str, tmp_path: Path) -> None:
    module, config = original(model_type)
    write_gguf(tmp_path / "model.gguf", module, config)
    loaded = load_gguf(tmp_path / "model.gguf", torch.float32, nothing)
    assert loaded.architecture == gguf_writer.ARCHITECTURES[model_type][0]
    assert loaded.config.model_type == model_type
    assert_same(loaded.module, module)


@pytest.mark.parametrize(("model_type", "changes"), VARIANTS)
def test_variants_come_back(model_type: str, changes: dict[str, Any], tmp_path: Path) -> None:
    module, config = original(model_type, **changes)
    write_gguf(tmp_path / "model.gguf", module, config)
    assert_same(load_gguf(tmp_path / "model.gguf", torch.float32, nothing).module, module)


def test_every_known_architecture_is_tested() -> None:
    written = {architecture for architecture, _ in gguf_writer.ARCHITECTURES.values()}
    assert set(ARCHITECTURES) == written | set(TEXT_PARTS)


TEXT_PARTS = {"qwen2vl": "qwen2", "qwen3vl": "qwen3", "qwen3vlmoe": "qwen3_moe"}


@pytest.mark.parametrize("architecture", TEXT_PARTS)
def test_the_text_part_of_a_model_that_reads_images(architecture: str, tmp_path: Path) -> None:
    module, config = original(TEXT_PARTS[architecture])
    plain, change = gguf_writer.ARCHITECTURES[config.model_type]
    tensors = gguf_writer.tensors_of(module, config, plain, change)
    metadata = gguf_writer.metadata_of(config, architecture) | {
        f"{architecture}.rope.dimension_sections": [2, 3, 3, 0],
        "general.architecture": architecture,
    }
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors, metadata)
    assert_same(load_gguf(tmp_path / "model.gguf", torch.float32, nothing).module, module)


@pytest.mark.parametrize(
    ("model_type", "quant"),
    [
        ("llama", "Q8_0"),
        ("llama", "Q4_1"),
        ("qwen3_5_text", "Q4_0"),
        ("gpt_oss", "MXFP4"),
        ("qwen3_moe", "Q5_0"),
    ],
)
def test_quantised_matrices_are_unpacked_into_place(model_type: str, quant: str, tmp_path: Path) -> None:
    module, config = original(model_type, **({"intermediate_size": 64} if model_type == "gpt_oss" else {}))
    path = tmp_path / "model.gguf"
    write_gguf(path, module, config, quant)
    packed = [info.type for info in GGUFFile(path).tensors.values()].count(quant)
    # The same numbers, rounded before they are written, must give the same module.
    architecture, change = gguf_writer.ARCHITECTURES[model_type]
    plain = tmp_path / "plain.gguf"
    rounded = {
        name: gguf_writer.stored(tensor.contiguous(), quant)
        if tensor.ndim > 1 and tensor.shape[-1] % 32 == 0
        else tensor
        for name, tensor in gguf_writer.tensors_of(module, config, architecture, change).items()
    }
    gguf_writer.write_tensors(plain, config, rounded)
    loaded = load_gguf(path, torch.float32, nothing)
    expected = load_gguf(plain, torch.float32, nothing)
    assert packed > 8
    for name, tensor in expected.module.state_dict().items():
        assert torch.equal(loaded.module.state_dict()[name], tensor), name


def test_bfloat16_parameters_are_rounded_once(tmp_path: Path) -> None:
    module, config = original("gemma3_text")
    write_gguf(tmp_path / "model.gguf", module, config)
    loaded = load_gguf(tmp_path / "model.gguf", torch.bfloat16, nothing)
    for name, tensor in module.state_dict().items():
        ours = loaded.module.state_dict()[name]
        assert ours.dtype == torch.bfloat16
        assert torch.allclose(ours.float(), tensor.bfloat16().float(), rtol=2**-7, atol=1e-5), name
    assert loaded.weight_bytes < 2.2 * sum(tensor.numel() for tensor in module.state_dict().values())


@pytest.mark.parametrize("original_length", [8192, 4096])
def test_llama_3_scaling_is_read_from_its_table_of_factors(original_length: int, tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original_length,
    }
    module, config = original("llama", hidden_size=256, max_position_embeddings=65536, rope_parameters=rope)
    plain = 1 / 500000 ** (torch.arange(0, 64, 2) / 64)
    scaled = dict(module.named_buffers())["model.rotary_emb.inv_freq"]
    factors = (plain / scaled).float()
    assert factors.max() == 8
    tensors = gguf_writer.tensors_of(module, config, *gguf_writer.ARCHITECTURES["llama"]) | {
        "rope_freqs.weight": factors
    }
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors)
    loaded = load_gguf(tmp_path / "model.gguf", torch.float32, nothing)
    kind = "llama3" if original_length == 8192 else "longrope"
    assert loaded.config.rope_parameters["rope_type"] == kind
    assert_same(loaded.module, module)


def test_phi_3_has_two_tables_of_rotary_factors(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "long_factor": [1.0, 2.0, 3.0, 4.0],
        "short_factor": [1.0, 1.25, 1.5, 1.75],
        "original_max_position_embeddings": 16,
    }
    module, config = original("phi3", original_max_position_embeddings=16, rope_parameters=rope)
    tensors = gguf_writer.tensors_of(module, config, *gguf_writer.ARCHITECTURES["phi3"])
    for name in ("long", "short"):
        tensors[f"rope_factors_{name}.weight"] = torch.tensor(rope[f"{name}_factor"])
    extra = {"phi3.rope.dimension_count": 8}
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors, extra)
    assert_same(load_gguf(tmp_path / "model.gguf", torch.float32, nothing).module, module)


def test_a_block_that_predicts_ahead_is_left_out(tmp_path: Path) -> None:
    module, config = original("qwen3_5_text")
    tensors = gguf_writer.tensors_of(module, config, *gguf_writer.ARCHITECTURES["qwen3_5_text"])
    tensors |= {"blk.4.nextn.eh_proj.weight": torch.ones(64, 128), "blk.4.attn_norm.weight": torch.ones(64)}
    extra = {"qwen35.nextn_predict_layers": 1, "qwen35.block_count": 5}
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors, extra)
    assert_same(load_gguf(tmp_path / "model.gguf", torch.float32, nothing).module, module)


def test_layers_without_attention_may_be_told_by_an_interval(tmp_path: Path) -> None:
    module, config = original("qwen3_next")
    write_gguf(tmp_path / "listed.gguf", module, config)
    content = (tmp_path / "listed.gguf").read_bytes()
    (tmp_path / "model.gguf").write_bytes(content.replace(b"recurrent_layers", b"recurrent_lawyer"))
    with pytest.raises(BadWeights, match="is missing"):  # an interval of 4 marks only the last layer
        load_gguf(tmp_path / "model.gguf", torch.float32, nothing)
    tensors = gguf_writer.tensors_of(module, config, *gguf_writer.ARCHITECTURES["qwen3_next"])
    extra = {"qwen3next.attention.recurrent_layers": None, "qwen3next.full_attention_interval": 2}
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors, extra)
    assert_same(load_gguf(tmp_path / "model.gguf", torch.float32, nothing).module, module)


def test_gemma_4_turns_the_share_of_a_head_that_its_table_says(tmp_path: Path) -> None:
    rope = {
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.5,
            "rope_theta": 1000000.0,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    module, config = original("gemma4_text", rope_parameters=rope)
    tensors = gguf_writer.tensors_of(module, config, *gguf_writer.ARCHITECTURES["gemma4_text"])
    tensors["rope_freqs.weight"] = torch.tensor([1.0] * 8 + [1e30] * 8)
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors)
    assert_same(load_gguf(tmp_path / "model.gguf", torch.float32, nothing).module, module)


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama.attention.head_count": 0},
        {"llama.attention.head_count": 3},
        {"llama.embedding_length": 0},
        {"llama.block_count": 100_000},
        {"llama.rope.freq_base": "much"},
        {"llama.rope.scaling.type": "spiral"},
    ],
)
def test_metadata_that_make_no_sense_are_refused(metadata: dict[str, Any], tmp_path: Path) -> None:
    module, config = original("llama")
    tensors = gguf_writer.tensors_of(module, config, *gguf_writer.ARCHITECTURES["llama"])
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors, metadata)
    with pytest.raises(ModelError, match=r"model\.gguf"):
        load_gguf(tmp_path / "model.gguf", torch.float32, nothing)


def test_fused_experts_are_read_too(tmp_path: Path) -> None:
    module, config = original("qwen3_moe")
    tensors = gguf_writer.tensors_of(module, config, *gguf_writer.ARCHITECTURES["qwen3_moe"])
    for layer in range(config.num_hidden_layers):
        gate, up = (tensors.pop(f"blk.{layer}.ffn_{name}_exps.weight") for name in ("gate", "up"))
        tensors[f"blk.{layer}.ffn_gate_up_exps.weight"] = torch.cat([gate, up], dim=1)
    gguf_writer.write_tensors(tmp_path / "model.gguf", config, tensors)
    assert_same(load_gguf(tmp_path / "model.gguf", torch.float32, nothing).module, module)


def test_progress_reaches_the_whole(tmp_path: Path) -> None:
    module, config = original("llama")
    write_gguf(tmp_path / "model.gguf", module, config)
    calls: list[tuple[str, int, int]] = []
    load_gguf(tmp_path / "model.gguf", torch.float32, lambda *call: calls.append(call))
    done = [call[1] for call in calls]
    assert done == sorted(done)
    assert calls[0][1] == 0
    assert calls[-1][1] == calls[-1][2] > 10000


def test_an_unknown_architecture_is_named_with_those_that_work(tmp_path: Path) -> None:
    module, config = original("llama")
    path = tmp_path / "model.gguf"
    write_gguf(path, module, config)
    path.write_bytes(path.read_bytes().replace(b"llama", b"zebra"))
    with pytest.raises(UnsupportedModel, match=r"'zebra'.*These can: .*llama.*qwen3") as caught:
        load_gguf(path, torch.float32, nothing)
    assert "model.gguf" in caught.value.message


def changed_file(tmp_path: Path, change: dict[str, Tensor | None]) -> Path:
    module, config = original("llama")
    architecture, layout = gguf_writer.ARCHITECTURES["llama"]
    tensors = {**gguf_writer.tensors_of(module, config, architecture, layout), **change}
    path = tmp_path / "model.gguf"
    gguf_writer.write_tensors(path, config, {name: t for name, t in tensors.items() if t is not None})
    return path


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    path = changed_file(tmp_path, {"blk.2.ffn_up.weight": None})
    with pytest.raises(BadWeights, match=r"model\.gguf: the tensor 'blk\.2\.ffn_up\.weight' is missing"):
        load_gguf(path, torch.float32, nothing)


def test_a_tensor_left_over_is_refused(tmp_path: Path) -> None:
    path = changed_file(tmp_path, {"blk.1.attn_q_norm.weight": torch.ones(16)})
    with pytest.raises(UnsupportedModel, match=r"the tensor 'blk\.1\.attn_q_norm\.weight' can't be served"):
        load_gguf(path, torch.float32, nothing)


def test_a_tensor_of_a_wrong_shape_is_named(tmp_path: Path) -> None:
    path = changed_file(tmp_path, {"blk.1.attn_q.weight": torch.ones(32, 64)})
    with pytest.raises(BadWeights, match=r"'blk\.1\.attn_q\.weight' has shape \[32, 64\].*\[64, 64\]"):
        load_gguf(path, torch.float32, nothing)
