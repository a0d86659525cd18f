"""The comparison with transformers' modules at the first start: what agrees, and what is remembered."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from mashbox.engine.wire import Start
from mashbox.engine.worker import agreement
from mashbox.engine.worker.agreement import BOUND, TOKENS, check_agreement
from mashbox.engine.worker.agreement_check import compare
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.load.packed import load_packed
from mashbox.engine.worker.load.rotary import rotary_tables
from mashbox.engine.worker.load.shapes import NotFast
from tests.engine.worker.kernels.test_packed import start, written
from tests.engine.worker.kernels.test_shapes import CHANGES, RUN


def runner_of(path: Path) -> FastRunner:
    decoder, shape, _ = load_packed(path, lambda *_: None)
    return FastRunner(decoder, rotary_tables(shape, 96), slots=2, ctx=96, threads=1)


def finding(asked: Start, runner: FastRunner) -> Any:
    ids = [(7 + 79 * i) % runner.vocab_size for i in range(TOKENS)]
    return compare(asked, ids, *runner.trace(0, ids))


@pytest.mark.parametrize("model_type", RUN)
def test_every_decoder_agrees_layer_by_layer(tmp_path: Path, model_type: str) -> None:
    path = written(tmp_path / "model.gguf", "Q8_0", model_type, **CHANGES.get(model_type, {}))
    found = finding(start(path), runner_of(path))
    assert found.layers == 4
    assert found.worst < BOUND / 2, found


@pytest.mark.parametrize(
    ("part", "where"),
    [("inner_norm", "layer 2"), ("up", "layer 2"), ("final_norm", "head"), ("embedding", "embedding")],
)
def test_a_difference_is_found_where_it_is(tmp_path: Path, part: str, where: str) -> None:
    path = written(tmp_path / "model.gguf", "F32", "qwen3", tie_word_embeddings=False)
    runner = runner_of(path)
    decoder = runner._engine._kept.objects[0]
    if part == "final_norm":
        decoder.final_norm[::2] *= 1.1
    elif part == "embedding":
        decoder.embeddings.data.view(torch.float32).mul_(1.1)
    elif part == "up":
        decoder.layers[2].projections[part].data.view(torch.float32).mul_(1.1)
    else:
        decoder.layers[2].vectors[part][::2] *= 1.1
    found = finding(start(path), runner)
    assert found.worst > BOUND
    assert where in found.where


def test_what_agreed_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "state_dir", lambda: tmp_path / "state")
    path = written(tmp_path / "model.gguf")
    runner = runner_of(path)
    told: list[str] = []
    check_agreement(start(path), runner, lambda *args: told.append(args[0]), of_context=False)
    assert len(told) == 1
    assert runner.length(0) == 0
    monkeypatch.setattr(agreement, "COMMAND", (sys.executable, "-c", "raise SystemExit(1)"))
    for ctx in (96, 64):
        check_agreement(start(path, ctx=ctx), runner, lambda *args: told.append(args[0]), of_context=False)
    assert len(told) == 1
    # Another context may have other tables; and what can't be compared is not served so.
    with pytest.raises(NotFast, match="could not be compared"):
        check_agreement(start(path, ctx=64), runner, lambda *_: None)


def test_a_model_that_differs_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "state_dir", lambda: tmp_path / "state")
    telling = 'print(\'{"worst": 0.5, "where": "its layer 1", "layers": 4}\')'
    monkeypatch.setattr(agreement, "COMMAND", (sys.executable, "-c", telling))
    path = written(tmp_path / "model.gguf")
    for _ in range(2):
        with pytest.raises(NotFast, match=r"its layer 1 differs .* by 0\.5"):
            check_agreement(start(path), runner_of(path), lambda *_: None)


def test_a_disk_that_can_not_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(agreement, "state_dir", lambda: tmp_path / "file" / "state")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    # Nor does a file beside the model that is none.
    (tmp_path / "other.gguf").symlink_to("nowhere")
    path = written(tmp_path / "model.gguf")
    told: list[str] = []
    check_agreement(start(path), runner_of(path), lambda *args: told.append(args[0]))
    assert len(told) == 1
