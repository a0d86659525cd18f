"""GGUF files for the fast runner: what is read, and what is refused with a reason."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mashbox.engine.wire import Start
from mashbox.engine.worker import build
from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.kernels.cpu import pack
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.model import build_empty, fill
from mashbox.engine.worker.load.packed import load_packed
from mashbox.engine.worker.load.safetensors import load_safetensors
from mashbox.engine.worker.load.shapes import FAMILIES
from mashbox.errors import BadWeights, UsageError
from mashbox.facts import read_facts
from mashbox.memory import plan_memory
from mashbox.packing import FAST_TYPES, PACKED_BITS, packed_bytes
from tests.engine.worker.contract import prompt
from tests.engine.worker.kernels.packing import random_blocks
from tests.engine.worker.kernels.tensors import tensor
from tests.engine.worker.load.gguf_writer import ARCHITECTURES, tensors_of, write_gguf, write_tensors
from tests.engine.worker.load.test_safetensors import save
from tests.engine.worker.tiny import random_weights, tiny_config, tiny_model


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


def written(
    path: Path, quant: str = "Q8_0", model_type: str = "llama", lacking: str = "", **changes: Any
) -> Path:
    """A tiny model as a file, without the tensor that is ``lacking``."""
    config = tiny_config(model_type, **changes)
    module = build_empty(config, torch.float32)
    fill(module, random_weights(module, 0).items(), torch.float32)
    if lacking:
        architecture, change = ARCHITECTURES[model_type]
        tensors = tensors_of(module, config, architecture, change)
        del tensors[lacking]
        write_tensors(path, config, tensors, quant=quant)
    else:
        write_gguf(path, module, config, quant)
    return path


def start(path: Path, **changes: Any) -> Start:
    fields: dict[str, Any] = {"format": "gguf", "ctx": 96, "slots": 2, "engine": "fast", "threads": 1}
    return Start(model=str(path), **fields | changes)


@pytest.mark.parametrize("quant", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False},
        {"head_dim": 32, "num_key_value_heads": 1, "vocab_size": 125},
        {"num_attention_heads": 2, "head_dim": 80, "num_key_value_heads": 2},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}},
    ],
)
def test_logits_are_those_of_the_exact_runner(tmp_path: Path, quant: str, changes: dict[str, Any]) -> None:
    path = written(tmp_path / "model.gguf", quant, **changes)
    runner, built = build_runner(start(path), lambda *_: None)
    assert built.engine == "fast"
    assert isinstance(runner, FastRunner)
    assert runner.length(0) == 0
    exact = ExactRunner(load_gguf(path, torch.float32, lambda *_: None), slots=2, ctx=96)
    ids = [token % 125 for token in prompt(40)]
    for each in (exact, runner):
        each.prefill(1, ids, logits=False)
    wanted, found = (tensor(each.decode([1], [5])) for each in (exact, runner))
    # Half-precision keys and values; a wrong order of heads or numbers is off by the logits' own size.
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.02 * float(wanted.abs().max()))


def test_the_fast_engine_does_without_torch(tmp_path: Path) -> None:
    """All that a worker imports for it, and all that is done to its slots."""
    path = written(tmp_path / "model.gguf", "Q4_1")
    script = f"""
import sys
import mashbox.engine.worker.main, mashbox.engine.worker.scheduler, mashbox.engine.worker.guide
from mashbox.engine.wire import Start
from mashbox.engine.worker import build
build.check_agreement = lambda *_, **__: ""
start = Start(model={str(path)!r}, format="gguf", ctx=64, slots=2, engine="fast", threads=1)
runner, _ = build.build_runner(start, lambda *_: None)
runner.prefill(0, [5, 6, 7], logits=True)
runner.decode_runs([0], [[8, 9]])
runner.restore(1, [runner.export(0)], 4)
runner.copy(1, 0)
assert runner.length(0) == 4
print([name for name in ("torch", "transformers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


def test_progress_counts_the_file(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    load_packed(written(tmp_path / "model.gguf"), lambda *args: told.append(args))
    assert told[-1][1] == told[-1][2] > 0


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ({"quant": "MXFP4"}, {}, "type MXFP4"),
        ({"model_type": "cohere2"}, {}, "cohere2"),
        ({}, {"weights": "f32"}, "--weights f32"),
    ],
)
def test_what_does_not_apply_is_refused(
    tmp_path: Path, file: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    path = written(tmp_path / "model.gguf", **file)
    with pytest.raises(UsageError, match=why) as caught:
        build_runner(start(path, **changes), lambda *_: None)
    assert "--engine exact" in str(caught.value.remedy)


def test_a_gguf_file_is_not_rounded_again(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf")
    with pytest.raises(UsageError, match="quantised already"):
        build_runner(start(path, weights="q8", engine="auto"), lambda *_: None)


@pytest.mark.parametrize(
    ("model_type", "weights", "quant"),
    [("llama", "q8", "Q8_0"), ("phi3", "q4", "Q4_1"), ("qwen3", "auto", "F32")],
)
def test_safetensors_are_rounded_as_a_file_would_be(
    tmp_path: Path, model_type: str, weights: str, quant: str
) -> None:
    saved = save(tmp_path, model_type)
    path = tmp_path / "model.gguf"
    write_gguf(path, saved.module, saved.config, quant)
    runners = []
    for each in (start(tmp_path, format="safetensors", weights=weights, engine="auto"), start(path)):
        runner, built = build_runner(each, lambda *_: None)
        assert (built.engine, built.why) == ("fast", "")
        runners.append(runner)
    folder, file = (runner.prefill(0, prompt(40), logits=True) for runner in runners)
    assert folder is not None and file is not None
    assert np.array_equal(np.asarray(folder), np.asarray(file))
    assert runners[0].weight_bytes == read_facts(tmp_path, "safetensors").packed[weights]


def test_half_precision_stays_as_it_is(tmp_path: Path) -> None:
    module: Any = tiny_model("gemma3_text", dtype=torch.bfloat16).module
    module.save_pretrained(tmp_path)
    runner, _ = build_runner(start(tmp_path, format="safetensors"), lambda *_: None)
    exact = ExactRunner(load_safetensors(tmp_path, torch.float32, lambda *_: None), slots=1, ctx=96)
    matrices = sum(value.numel() for value in module.state_dict().values() if value.ndim == 2)
    assert 2 * matrices < runner.weight_bytes < 2.1 * matrices
    wanted, found = (tensor(each.prefill(0, prompt(40), logits=True)) for each in (exact, runner))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.02 * float(wanted.abs().max()))


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ({"model_type": "cohere2"}, {}, "cohere2"),
        ({}, {"weights": "bf16"}, "--weights bf16"),
        ({"quant": "MXFP4"}, {}, "MXFP4"),
    ],
)
def test_auto_takes_the_exact_engine_where_it_must_and_says_why(
    tmp_path: Path,
    file: dict[str, Any],
    changes: dict[str, Any],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = written(tmp_path / "model.gguf", **file)
    _, built = build_runner(start(path, engine="auto", **changes), lambda *_: None)
    assert built.engine == "exact"
    assert why in built.why
    assert why in caplog.text


def test_auto_without_kernels_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "library_path", lambda: tmp_path / "none.so")
    path = written(tmp_path / "model.gguf")
    _, built = build_runner(start(path, engine="auto"), lambda *_: None)
    assert (built.engine, "C++ compiler" in built.why) == ("exact", True)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("llama", {"vocab_size": 125}),
        # Heads that are filled up to what vectors take.
        ("llama", {"head_dim": 24}),
        ("glm4", {"head_dim": 24}),
        ("qwen3", {"head_dim": 24}),
        ("phi3", {"num_attention_heads": 8}),
    ],
)
def test_the_plan_knows_what_is_packed(tmp_path: Path, model_type: str, changes: dict[str, Any]) -> None:
    path = written(tmp_path / "model.gguf", "Q5_1", model_type, **changes)
    runner, _ = build_runner(start(path), lambda *_: None)
    facts = read_facts(path, "gguf")
    assert facts.packed == {"auto": runner.weight_bytes}
    assert plan_memory(facts, 96, 2, 2, packed=facts.packed["auto"]).kv == runner.kv_bytes


def test_the_plan_knows_which_models_run() -> None:
    assert FAST_TYPES == FAMILIES


@pytest.mark.parametrize("kind", sorted(PACKED_BITS))
def test_every_type_takes_what_the_plan_says(kind: str) -> None:
    found = pack(kind, random_blocks(13, 512, kind), 512)
    assert found.data.nbytes == packed_bytes([(kind, 13, 512)], 0)


def test_a_tensor_too_few_is_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", lacking="blk.2.ffn_up.weight")
    with pytest.raises(BadWeights, match=r"blk\.2\.ffn_up"):
        load_packed(path, lambda *_: None)
