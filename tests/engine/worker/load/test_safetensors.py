"""Folders of safetensors, as transformers saves them, become the same modules again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Gemma3Config, Gemma3ForConditionalGeneration
from transformers.utils import logging

from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.load.model import LoadedModel
from mashbox.engine.worker.load.safetensors import load_safetensors
from mashbox.errors import BadWeights, UnsupportedModel
from tests.engine.worker.contract import greedy, prompt, same_tokens
from tests.engine.worker.oracle import generate
from tests.engine.worker.tiny import tiny_config, tiny_model
from tests.marks import QUICK, slow_but

SAVED = [
    "llama",  # tied
    "qwen3_moe",  # experts one by one
    "mixtral",  # experts under other names
    "gpt_oss",  # joined experts
    "deepseek_v3",  # latents, a buffer in the file
    "gemma3_text",
    "qwen3_5_text",
    "lfm2_moe",
    "granitemoehybrid",
    "mamba2",
]


def save(folder: Path, model_type: str = "llama", shard: str = "1GB") -> LoadedModel:
    logging.disable_progress_bar()
    saved = tiny_model(model_type)
    module: Any = saved.module
    module.save_pretrained(folder, max_shard_size=shard)
    return saved


def load(folder: Path) -> LoadedModel:
    return load_safetensors(folder, torch.float32, lambda *_: None)


def same_state(found: LoadedModel, wanted: LoadedModel) -> None:
    ours, theirs = found.module.state_dict(), wanted.module.state_dict()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    computed = dict(wanted.module.named_buffers())
    for name, buffer in found.module.named_buffers():
        assert torch.equal(buffer, computed[name]), name


@pytest.mark.parametrize("shard", ["1GB", "200KB"])
@pytest.mark.parametrize("model_type", slow_but(QUICK, SAVED))
def test_what_was_saved_is_what_is_loaded(tmp_path: Path, model_type: str, shard: str) -> None:
    saved = save(tmp_path, model_type, shard)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 or shard == "1GB"
    found = load(tmp_path)
    same_state(found, saved)
    assert found.weight_bytes == saved.weight_bytes
    assert found.architecture == model_type
    assert not any(t.is_meta for t in [*found.module.parameters(), *found.module.buffers()])


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "qwen3_5_text"])
def test_a_loaded_model_answers_like_the_saved_one(tmp_path: Path, model_type: str) -> None:
    saved = save(tmp_path, model_type)
    wanted = generate(saved.module, prompt(20), 12)
    runner = ExactRunner(load(tmp_path), slots=2, ctx=64)
    same_tokens("exact", greedy(runner, [prompt(20)], [1], 12), [wanted])


def test_bfloat16_files_become_float32(tmp_path: Path) -> None:
    saved = tiny_model("qwen3", dtype=torch.bfloat16)
    module: Any = saved.module
    module.save_pretrained(tmp_path)
    found = load(tmp_path)
    assert {p.dtype for p in found.module.parameters()} == {torch.float32}
    assert all(
        torch.equal(ours, theirs.float())
        for ours, theirs in zip(found.module.parameters(), saved.module.parameters(), strict=True)
    )


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    save(tmp_path, "qwen3_moe")
    seen: list[tuple[str, int, int]] = []
    load_safetensors(tmp_path, torch.float32, lambda *report: seen.append(report))
    stages, done, totals = zip(*seen, strict=True)
    assert len(set(stages)) == len(set(totals)) == 1
    assert list(done) == sorted(done)
    # The file's header counts as read with nothing read of it.
    assert 0.9 * totals[0] < done[-1] <= totals[0]


def test_the_text_part_of_a_model_with_images(tmp_path: Path) -> None:
    config = Gemma3Config(
        text_config=tiny_config("gemma3_text").to_dict(),
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 28,
            "patch_size": 14,
        },
        mm_tokens_per_image=4,
    )
    whole: Any = Gemma3ForConditionalGeneration(config)
    whole.save_pretrained(tmp_path)
    found = load(tmp_path)
    assert found.architecture == "gemma3_text"
    ours, theirs = found.module.model.state_dict(), whole.model.language_model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def rewrite(folder: Path, change: dict[str, Tensor | None]) -> None:
    """Change, add or (None) drop tensors of a folder's only file."""
    file = folder / "model.safetensors"
    tensors: dict[str, Tensor | None] = {**load_file(file), **change}
    save_file({k: v for k, v in tensors.items() if v is not None}, file, metadata={"format": "pt"})


NORM = "model.layers.2.input_layernorm.weight"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({NORM: None}, f"lack.*{NORM}"),
        ({NORM: None, "model.norm.weight": None}, "and 1 more"),
        ({NORM: torch.ones(63)}, rf"{NORM}.*\[63\].*\[64\]"),
        ({"model.layers.2.extra.weight": torch.ones(2)}, "no place.*|extra"),
        ({"model.layers.9.input_layernorm.weight": torch.ones(64)}, "layers.9"),
        ({"model.embed_tokens.weight": None}, "lack.*embed_tokens"),
    ],
)
def test_wrong_tensors_are_named(tmp_path: Path, change: dict[str, Tensor | None], words: str) -> None:
    save(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(BadWeights, match=words):
        load(tmp_path)


def test_an_expert_that_is_missing_is_named(tmp_path: Path) -> None:
    save(tmp_path, "qwen3_moe")
    rewrite(tmp_path, {"model.layers.1.mlp.experts.3.up_proj.weight": None})
    with pytest.raises(BadWeights, match=r"layers\.1\.mlp\.experts"):
        load(tmp_path)


@pytest.mark.parametrize("size", [0, 7, 900, -1])
def test_a_truncated_file_is_named(tmp_path: Path, size: int) -> None:
    save(tmp_path)
    file = tmp_path / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:size])
    with pytest.raises(BadWeights, match=r"model\.safetensors"):
        load(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    save(tmp_path, shard="200KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(BadWeights, match=shard.name):
        load(tmp_path)


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}'])
def test_a_damaged_index_is_named(tmp_path: Path, index: str) -> None:
    save(tmp_path, shard="200KB")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(BadWeights, match="index"):
        load(tmp_path)


def test_no_weights_or_no_config(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BadWeights, match=r"neither model\.safetensors"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BadWeights, match=r"config\.json"):
        load(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(BadWeights, match=r"config\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "tomorrows_model"}, "know"),
        ({"model_type": "rwkv"}, "rwkv"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UnsupportedModel, match=words):
        load(tmp_path)
