"""GGUF files for the fast runner: what is read, and what is refused with a reason."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mashbox.engine.wire import Start
from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.model import build_empty, fill
from mashbox.engine.worker.load.packed import load_packed
from mashbox.errors import BadWeights, UsageError
from tests.engine.worker.contract import prompt
from tests.engine.worker.load.gguf_writer import ARCHITECTURES, tensors_of, write_gguf, write_tensors
from tests.engine.worker.tiny import random_weights, tiny_config


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
    wanted, found = (each.decode([1], [5]) for each in (exact, runner))
    # Half-precision keys and values; a wrong order of heads or numbers is off by the logits' own size.
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.02 * float(wanted.abs().max()))


def test_progress_counts_the_file(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    load_packed(written(tmp_path / "model.gguf"), lambda *args: told.append(args))
    assert told[-1][1] == told[-1][2] > 0


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ({"quant": "MXFP4"}, {}, "type MXFP4"),
        ({"model_type": "cohere2"}, {}, "cohere2"),
        ({}, {"weights": "f32"}, "--weights auto"),
        ({}, {"format": "safetensors"}, "GGUF"),
    ],
)
def test_what_does_not_apply_is_refused(
    tmp_path: Path, file: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    path = written(tmp_path / "model.gguf", **file)
    with pytest.raises(UsageError, match=why) as caught:
        build_runner(start(path, **changes), lambda *_: None)
    assert "--engine exact" in str(caught.value.remedy)


def test_a_tensor_too_few_is_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", lacking="blk.2.ffn_up.weight")
    with pytest.raises(BadWeights, match=r"blk\.2\.ffn_up"):
        load_packed(path, lambda *_: None)
