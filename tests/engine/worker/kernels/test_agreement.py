"""The comparison with transformers' modules at the first start: what agrees, and what is remembered."""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
import torch

from mashbox.engine.wire import Start
from mashbox.engine.worker import agreement, build
from mashbox.engine.worker.agreement import BOUND, TOKENS, check_agreement
from mashbox.engine.worker.agreement_check import compare
from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.load.packed import load_packed
from mashbox.engine.worker.load.rotary import rotary_tables
from mashbox.engine.worker.load.shapes import NotFast
from mashbox.errors import UsageError
from mashbox.facts import read_facts
from mashbox.memory import comparison_bytes, plan_memory
from tests.engine.worker.kernels.test_packed import start, written
from tests.engine.worker.kernels.test_shapes import CHANGES, RUN
from tests.engine.worker.load.test_safetensors import save
from tests.patience import PATIENCE


def runner_of(path: Path) -> FastRunner:
    decoder, shape, _ = load_packed(path, lambda *_: None)
    return FastRunner(decoder, rotary_tables(shape, 96), slots=2, ctx=96, threads=1)


def finding(asked: Start, runner: FastRunner) -> Any:
    ids = [(7 + 79 * i) % runner.vocab_size for i in range(TOKENS)]
    return compare(asked, ids, *map(torch.from_numpy, runner.trace(0, ids)))


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
        decoder.embeddings.data.view(np.float32)[:] *= np.float32(1.1)
    elif part == "up":
        decoder.layers[2].projections[part].data.view(np.float32)[:] *= np.float32(1.1)
    else:
        decoder.layers[2].vectors[part][::2] *= 1.1
    found = finding(start(path), runner)
    assert found.worst > BOUND
    assert where in found.where


@pytest.mark.slow
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
    with pytest.raises(NotFast, match=r"comparison .* ended \(exit status 1\)"):
        check_agreement(start(path, ctx=64), runner, lambda *_: None)


def test_a_model_that_differs_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "state_dir", lambda: tmp_path / "state")
    telling = 'print(\'{"worst": 0.5, "where": "its layer 1", "layers": 4}\')'
    monkeypatch.setattr(agreement, "COMMAND", (sys.executable, "-c", telling))
    path = written(tmp_path / "model.gguf")
    differs = r"its layer 1 differs .* by 0\.5"
    with pytest.raises(NotFast, match=differs):
        check_agreement(start(path), runner_of(path), lambda *_: None, of_context=False)
    # Nor is it compared again at the next start, or so much as loaded.
    monkeypatch.setattr(agreement, "COMMAND", KILLED)
    with pytest.raises(NotFast, match=differs):
        check_agreement(start(path), runner_of(path), lambda *_: None, of_context=False)
    monkeypatch.setattr(build, "load_packed", lambda *_: pytest.fail("it was loaded"))
    for ctx in (96, 64):
        _, built = build_runner(start(path, engine="auto", ctx=ctx), lambda *_: None)
        assert built.engine == "exact" and "its layer 1 differs" in built.why
    with pytest.raises(NotFast, match=differs):
        build_runner(start(path), lambda *_: None)
    # Other files are another model.
    path.touch()
    agreement.check_known(start(path))


KILLED = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")


def test_a_comparison_that_was_killed_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "state_dir", lambda: tmp_path / "state")
    monkeypatch.setattr(agreement, "COMMAND", KILLED)
    monkeypatch.setattr(build, "check_agreement", check_agreement)
    path = written(tmp_path / "model.gguf")
    save(tmp_path / "folder", "llama")
    rounded = start(tmp_path / "folder", format="safetensors", weights="q8", engine="auto")
    for asked, remedy in (
        (start(path), "Start again when more memory is free. Or use --engine exact."),
        (
            rounded,
            "Start again when more memory is free. Leave --weights q8 out: only the fast engine has it",
        ),
    ):
        with pytest.raises(UsageError, match=r"was killed \(SIGKILL\), most often because memory") as caught:
            build_runner(asked, lambda *_: None)
        assert str(caught.value.remedy).startswith(remedy)
        assert "--engine exact" not in remedy or asked.weights == "auto"


@pytest.mark.slow
def test_the_cache_is_planned_anew_where_the_exact_engine_runs_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "model.gguf")
    plan = plan_memory(read_facts(path, "gguf"), 96, 2, 4)
    left = 400 << 20
    monkeypatch.setattr(
        build, "available_memory", lambda: plan.total + left - psutil.Process().memory_full_info().uss
    )

    def differs(*_: Any, **__: Any) -> str:
        raise NotFast("its layer 1 differs")

    monkeypatch.setattr(build, "check_agreement", differs)
    for auto, asked, cap in (
        (True, 900 << 20, left // 4),
        (False, 900 << 20, left),
        (False, 9 << 20, 9 << 20),
    ):
        caplog.clear()
        wanted = start(path, engine="auto", cache_bytes=asked, cache_auto=auto)
        runner, built = build_runner(wanted, lambda *_: None)
        assert (built.engine, built.why) == ("exact", "its layer 1 differs")
        assert built.cache_bytes == pytest.approx(cap, abs=8 << 20)
        assert built.cache_bytes <= asked and ("prompt cache is cut" in caplog.text) == (asked > cap)
        assert runner.weight_bytes
    # The worker's next start does not try the fast engine again.
    monkeypatch.setattr(build, "_build_fast", lambda *_: pytest.fail("it was tried"))
    _, built = build_runner(start(path, engine="auto", refused="its layer 1 differs"), lambda *_: None)
    assert (built.engine, built.why) == ("exact", "its layer 1 differs")


def test_without_room_for_the_comparison_the_model_is_served_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agreement, "state_dir", lambda: tmp_path / "state")
    path = written(tmp_path / "model.gguf")
    runner, need = runner_of(path), comparison_bytes(read_facts(path, "gguf"))
    monkeypatch.setattr(agreement, "available_memory", lambda: need - 1)
    with monkeypatch.context() as patch:
        patch.setattr(agreement, "COMMAND", KILLED)
        check_agreement(start(path), runner, lambda *_: None)
    assert f"takes {need // 10**6} MB" in caplog.text
    # It was not found to agree: the next start compares, where there is room.
    monkeypatch.setattr(agreement, "available_memory", lambda: need)
    monkeypatch.setattr(agreement, "COMMAND", KILLED)
    with pytest.raises(NotFast):
        check_agreement(start(path), runner, lambda *_: None)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is not of a file")
def test_the_comparison_takes_no_more_than_is_asked_for(starter_gguf: Path) -> None:
    """On the starter, of which the process holds no file's pages: those the system takes back."""
    code = (
        "import threading, sys; from mashbox.engine.worker import agreement_check as check\n"
        "import pathlib; status = pathlib.Path('/proc/self/status')\n"
        "def peak(stop, seen=[0]):\n"
        "    while not stop.wait(0.002):\n"
        "        seen[0] = max(seen[0], int(status.read_text().split('RssAnon:')[1].split()[0]))\n"
        "    print(seen[0] * 1024, file=sys.stderr)\n"
        "stop = threading.Event(); watch = threading.Thread(target=peak, args=(stop,)); watch.start()\n"
        "check.main(); stop.set(); watch.join()"
    )
    runner = runner_of(starter_gguf)
    states, logits = runner.trace(0, [1, 2, 3])
    traced = io.BytesIO()
    np.savez(traced, ids=np.array([1, 2, 3]), states=states, logits=logits)
    done = subprocess.run(
        [sys.executable, "-c", code, str(os.getpid())],
        input=msgspec.json.encode(start(starter_gguf)) + b"\n" + traced.getvalue(),
        capture_output=True,
        check=True,
    )
    assert 0 < int(done.stderr.split()[-1]) < comparison_bytes(read_facts(starter_gguf, "gguf"))


@pytest.mark.slow
def test_the_comparison_ends_with_the_worker_that_asked_for_it() -> None:
    code = (
        "import subprocess, sys; from mashbox.engine.worker.agreement import COMMAND; import os\n"
        "child = subprocess.Popen([*COMMAND, str(os.getpid())], stdin=sys.stdin)\n"
        "print(child.pid, flush=True); child.wait()"
    )
    read, write = os.pipe()
    with subprocess.Popen([sys.executable, "-c", code], stdin=read, stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        child = psutil.Process(int(worker.stdout.readline()))
        worker.kill()
    # Its own standard input is still open: it ends for want of its parent alone.
    psutil.wait_procs([child], timeout=PATIENCE)
    assert not child.is_running()
    os.close(read)
    os.close(write)


@pytest.mark.slow
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
    agreed = check_agreement(start(path), runner_of(path), lambda *args: told.append(args[0]))
    assert len(told) == 1
    # The server remembers it for the worker's next start.
    check_agreement(start(path, agreed=agreed), runner_of(path), lambda *args: told.append(args[0]))
    assert len(told) == 1


def test_what_is_no_number_differs_and_is_remembered_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "state_dir", lambda: tmp_path / "state")
    path = written(tmp_path / "model.gguf")
    runner = runner_of(path)
    runner._engine._kept.objects[0].layers[2].vectors["inner_norm"][0] = float("nan")
    with pytest.raises(NotFast, match="differs"):
        check_agreement(start(path), runner, lambda *_: None)
    with pytest.raises(NotFast, match="differs"):
        agreement.check_known(start(path))


def test_slots_are_planned_anew_where_the_exact_engine_runs_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was chosen for the fast one becomes what fits beside the exact one; what was asked for stays."""
    limit = 65_536
    path = written(tmp_path / "model.gguf", max_position_embeddings=limit)
    facts = read_facts(path, "gguf")
    # What is ours to choose may take 0.8 of the memory: two whole slots and a half.
    need = (plan_memory(facts, limit, 2, 4).total + plan_memory(facts, limit, 3, 4).total) / 2
    monkeypatch.setattr(
        build, "available_memory", lambda: int(need / 0.8) - psutil.Process().memory_full_info().uss
    )

    def differs(*_: Any, **__: Any) -> str:
        raise NotFast("its layer 1 differs")

    monkeypatch.setattr(build, "check_agreement", differs)

    def found(**asked: Any) -> tuple[int, int]:
        runner, built = build_runner(start(path, engine="auto", slots=4, **asked), lambda *_: None)
        assert (built.engine, built.why) == ("exact", "its layer 1 differs")
        return runner.ctx, runner.slots

    ctx, slots = found(ctx=limit, ctx_auto=True, slots_auto=True)
    assert slots == 4 and 0.5 * limit < ctx < 0.7 * limit
    assert found(ctx=limit, slots_auto=True) == (limit, 2)
    ctx, slots = found(ctx=limit, ctx_auto=True)
    assert slots == 4 and 0.5 * limit < ctx < 0.7 * limit
    assert found(ctx=limit) == (limit, 4)
