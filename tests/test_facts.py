"""A model's facts, from GGUF and from safetensors."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from mashbox.errors import BadWeights
from mashbox.facts import ModelFacts, read_facts
from tests.gguf_bytes import floats, gguf_bytes

LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


def gguf_facts(folder: Path, metadata: dict[str, Any]) -> ModelFacts:
    (folder / "model.gguf").write_bytes(gguf_bytes(metadata, {"token_embd.weight": floats(100, 64)}))
    return read_facts(folder / "model.gguf", "gguf")


def renamed(architecture: str, **more: Any) -> dict[str, Any]:
    """The metadata of LLAMA under another architecture; double underscores in names are dots."""
    own = {key.replace("llama", architecture): value for key, value in LLAMA.items()}
    extra = {f"{architecture}.{key.replace('__', '.')}": value for key, value in more.items()}
    return own | {"general.architecture": architecture} | extra


def test_a_decoder_in_gguf(tmp_path: Path) -> None:
    facts = gguf_facts(tmp_path, LLAMA)
    assert facts == ModelFacts(
        architecture="llama",
        context_length=2048,
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        value_head_dim=16,
        vocab=100,
        parameters=6400,
        weight_file_bytes=(tmp_path / "model.gguf").stat().st_size,
        bpw=32.0,
        quant="F32",
        kv_numbers=2 * 2 * (16 + 16),
        # A panel holds eight rows.
        packed={"auto": 104 * 64 * 4},
        head_room=16,
    )
    assert facts.kv_bytes_per_token(4) == 512
    assert facts.kv_bytes_per_token(2) == 256
    assert facts.state_bytes_per_slot() == 0


def test_a_dense_model_of_a_family_with_mixtures_is_packed(tmp_path: Path) -> None:
    """Granite 4's dense files say how many experts they have: none."""
    facts = gguf_facts(tmp_path, renamed("granite", expert_count=0, expert_used_count=0))
    assert facts.packed == {"auto": 104 * 64 * 4}
    assert gguf_facts(tmp_path, renamed("granite", expert_count=8)).packed == {}


def test_short_convolutions_keep_a_state_instead(tmp_path: Path) -> None:
    facts = gguf_facts(tmp_path, renamed("lfm2", attention__head_count_kv=[0, 2], shortconv__l_cache=3))
    assert facts.kv_numbers == 2 * (16 + 16)
    assert facts.state_numbers == 64 * 3
    assert facts.kv_heads == 2


DELTA = {
    "full_attention_interval": 2,
    "ssm__conv_kernel": 4,
    "ssm__state_size": 8,
    "ssm__group_count": 2,
    "ssm__inner_size": 32,
}


def test_a_gated_delta_net(tmp_path: Path) -> None:
    facts = gguf_facts(
        tmp_path, renamed("qwen35", attention__key_length=32, attention__value_length=24, **DELTA)
    )
    assert facts.kv_numbers == 2 * (32 + 24)
    assert facts.state_numbers == (32 + 2 * 2 * 8) * 4 + 32 * 8
    assert facts.state_bytes_per_slot() == 4 * facts.state_numbers


def test_a_block_that_predicts_ahead_is_no_layer(tmp_path: Path) -> None:
    facts = gguf_facts(tmp_path, renamed("qwen35", block_count=3, nextn_predict_layers=1, **DELTA))
    assert facts.layers == 2
    assert facts.kv_numbers == 2 * 32


def test_latent_attention_caches_the_latent(tmp_path: Path) -> None:
    metadata = renamed(
        "deepseek2",
        attention__head_count_kv=1,
        attention__key_length=40,
        attention__value_length=32,
        attention__key_length_mla=24,
        attention__value_length_mla=12,
        attention__kv_lora_rank=32,
        rope__dimension_count=8,
    )
    facts = gguf_facts(tmp_path, metadata)
    assert (facts.kv_heads, facts.head_dim, facts.value_head_dim) == (4, 24, 12)
    assert facts.kv_numbers == 2 * (32 + 8)


def test_heads_of_two_sizes(tmp_path: Path) -> None:
    metadata = renamed(
        "gemma4",
        attention__sliding_window=512,
        attention__sliding_window_pattern=[True, False],
        attention__head_count_kv=[2, 1],
        attention__key_length=32,
        attention__value_length=32,
        attention__key_length_swa=16,
        attention__value_length_swa=16,
    )
    facts = gguf_facts(tmp_path, metadata)
    assert facts.kv_numbers == 2 * (16 + 16) + 1 * (32 + 32)
    assert facts.sliding_window == 512
    shared = gguf_facts(tmp_path, metadata | {"gemma4.attention.shared_kv_layers": 1})
    assert shared.kv_numbers == 2 * (16 + 16)


CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


def safetensors(path: Path, tensors: dict[str, tuple[str, list[int], int]], *, cut: int = 0) -> None:
    """A file with tensors of zeros: data type, shape, bytes."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, nbytes) in tensors.items():
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + nbytes]}
        end += nbytes
    head = json.dumps(table).encode()
    path.write_bytes((struct.pack("<Q", len(head)) + head + b"\0" * end)[: -cut or None])


def folder_of(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    safetensors(folder / "model.safetensors", {"a": ("BF16", [10, 10], 200), "b": ("F32", [4], 16)})
    return folder


def test_a_folder_of_safetensors(tmp_path: Path) -> None:
    facts = read_facts(folder_of(tmp_path, CONFIG), "safetensors")
    assert facts.architecture == "llama"
    assert (facts.parameters, facts.quant) == (104, "BF16")
    assert facts.bpw == pytest.approx(8 * 216 / 104)
    assert facts.weight_file_bytes == (tmp_path / "model.safetensors").stat().st_size
    assert facts.kv_numbers == 2 * 2 * 32
    assert (facts.layers, facts.context_length, facts.vocab, facts.head_dim) == (2, 2048, 100, 16)


def test_shards_are_counted_together(tmp_path: Path) -> None:
    folder_of(tmp_path, CONFIG)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    safetensors(tmp_path / "model-00002-of-00002.safetensors", {"c": ("BF16", [6], 12)})
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_facts(tmp_path, "safetensors").parameters == 110
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(BadWeights, match=r"shards are missing: model-00002-of-00002\.safetensors"):
        read_facts(tmp_path, "safetensors")


def test_a_shard_outside_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    folder_of(folder, CONFIG)
    safetensors(tmp_path / "other.safetensors", {"c": ("BF16", [6], 12)})
    index = {"weight_map": {"a": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadWeights, match="shards are missing"):
        read_facts(folder, "safetensors")


def test_text_models_inside_others_and_hybrids(tmp_path: Path) -> None:
    text = CONFIG | {
        "model_type": "qwen3_5_text",
        "layer_types": ["linear_attention", "full_attention"],
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
    }
    facts = read_facts(folder_of(tmp_path, {"model_type": "qwen3_5", "text_config": text}), "safetensors")
    assert facts.architecture == "qwen3_5_text"
    assert facts.kv_numbers == 2 * 64
    assert facts.state_numbers == (2 * 16 + 32) * 4 + 32 * 8


def test_latent_attention_in_a_config(tmp_path: Path) -> None:
    latent = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12}
    facts = read_facts(folder_of(tmp_path, CONFIG | latent), "safetensors")
    assert facts.kv_numbers == 2 * (32 + 8)
    assert (facts.kv_heads, facts.head_dim, facts.value_head_dim) == (4, 24, 12)


def test_heads_of_two_sizes_in_a_config(tmp_path: Path) -> None:
    text = CONFIG | {
        "head_dim": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 99,
    }
    facts = read_facts(folder_of(tmp_path, text | {"global_head_dim": 32}), "safetensors")
    assert facts.kv_numbers == 2 * 2 * (8 + 32)
    assert facts.sliding_window == 99
    own = {"per_layer_config": {"1": {"head_dim": 32, "num_key_value_heads": 1}}}
    assert read_facts(folder_of(tmp_path, text | own), "safetensors").kv_numbers == 2 * (2 * 8 + 32)
    shared = read_facts(folder_of(tmp_path, text | {"num_kv_shared_layers": 1}), "safetensors")
    assert shared.kv_numbers == 2 * 2 * 8


def test_broken_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=r"config\.json: No such file"):
        read_facts(tmp_path, "safetensors")
    folder_of(tmp_path, {key: value for key, value in CONFIG.items() if key != "hidden_size"})
    with pytest.raises(BadWeights, match=r"config\.json.*'hidden_size'"):
        read_facts(tmp_path, "safetensors")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadWeights, match="no valid JSON"):
        read_facts(tmp_path, "safetensors")


def test_weights_cut_short_are_noticed(tmp_path: Path) -> None:
    folder_of(tmp_path, CONFIG)
    safetensors(tmp_path / "model.safetensors", {"a": ("F32", [100], 400)}, cut=1)
    with pytest.raises(BadWeights, match=r"model\.safetensors: \d+ bytes long by its header"):
        read_facts(tmp_path, "safetensors")
    (tmp_path / "model.safetensors").write_bytes(b"<html>" * 20)
    with pytest.raises(BadWeights, match="not a safetensors file"):
        read_facts(tmp_path, "safetensors")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BadWeights, match=r"no model\.safetensors"):
        read_facts(tmp_path, "safetensors")


@pytest.mark.real
def test_the_starter(starter_gguf: Path) -> None:
    facts = read_facts(starter_gguf, "gguf")
    assert (facts.layers, facts.hidden, facts.heads, facts.kv_heads, facts.head_dim) == (30, 576, 9, 3, 64)
    assert (facts.vocab, facts.context_length, facts.quant) == (49152, 8192, "Q4_1")
    assert (facts.parameters, facts.weight_file_bytes) == (134_515_008, 98_362_432)
    assert facts.kv_bytes_per_token(2) == 23_040
