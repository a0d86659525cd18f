"""The memory that the plan names is what the exact runner takes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.facts import read_facts
from mashbox.memory import plan_memory
from tests.engine.worker.load import gguf_writer
from tests.engine.worker.load.gguf_writer import write_gguf
from tests.engine.worker.load.test_gguf import nothing, original
from tests.engine.worker.tiny import tiny_model
from tests.marks import QUICK, slow_but

MODELS = sorted(gguf_writer.ARCHITECTURES)


@pytest.mark.parametrize("model_type", slow_but(QUICK, MODELS))
def test_cache_and_weights_take_what_was_planned(model_type: str, tmp_path: Path) -> None:
    module, config = original(model_type)
    path = tmp_path / "model.gguf"
    write_gguf(path, module, config)
    plan = plan_memory(read_facts(path, "gguf"), 48, 2, 4)
    loaded = load_gguf(path, torch.float32, nothing)
    runner = ExactRunner(loaded, slots=2, ctx=48)
    assert plan.kv == pytest.approx(runner.kv_bytes, rel=0.01)
    # Rotary frequencies are computed, not read: a small matter even in a tiny model.
    assert plan.weights == pytest.approx(runner.weight_bytes, rel=0.01)


@pytest.mark.parametrize("model_type", slow_but(QUICK, [*MODELS, "glm4_moe_lite"]))
def test_a_folder_of_safetensors_is_planned_alike(model_type: str, tmp_path: Path) -> None:
    model = tiny_model(model_type)
    model.config.to_json_file(tmp_path / "config.json")
    tied = getattr(model.module, "all_tied_weights_keys", {})
    tensors = {name: tensor for name, tensor in model.module.state_dict().items() if name not in tied}
    save_file(tensors, tmp_path / "model.safetensors")
    plan = plan_memory(read_facts(tmp_path, "safetensors"), 48, 2, 4)
    runner = ExactRunner(model, slots=2, ctx=48)
    assert plan.kv == pytest.approx(runner.kv_bytes, rel=0.01)
    assert plan.weights == pytest.approx(runner.weight_bytes, rel=0.01)
