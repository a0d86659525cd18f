"""``mashbox bench --certify``: what it prints, its statuses, and the record that health then goes by."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from msgspec.structs import replace
from transformers.utils import logging
from typer.testing import CliRunner

from mashbox import facts
from mashbox.cli import certifying
from mashbox.cli.main import app
from mashbox.cli.run import engine_settings
from mashbox.engine.certificates import Report
from mashbox.engine.local import LocalEngine
from mashbox.engine.worker.load.model import build_empty, fill
from mashbox.memory import plan_memory
from mashbox.settings import Settings
from mashbox.store import LocalFile, LocalModel
from tests.engine.letters import Letters
from tests.engine.test_certificates import CHECK, REPORT
from tests.engine.worker.tiny import random_weights, tiny_config
from tests.patience import PATIENCE
from tests.server.live import eventually

runner = CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    """A small model that is here already, whose letters are its tokens."""
    folder, tokenizer = tmp_path / "model", tmp_path / "tokenizer"
    folder.mkdir()
    tokenizer.mkdir()
    config = tiny_config("llama", vocab_size=Letters().size)
    module: Any = build_empty(config, torch.float32)
    fill(module, random_weights(module, seed=0).items(), torch.float32)
    logging.disable_progress_bar()
    module.save_pretrained(folder)
    model = LocalModel(
        id="tiny",
        format="safetensors",
        weights=folder,
        files=[LocalFile(path=folder / "model.safetensors", bytes=1, sha256="ab")],
        tokenizer=Letters().save(tokenizer),
        spec=None,
        source="-",
    )
    known = facts.read_facts(folder, "safetensors")

    def prepare(chosen: Settings) -> Any:
        return model, known, plan_memory(known, chosen.ctx or 512, chosen.slots or 2, 4), 0

    monkeypatch.setattr(certifying, "prepare", prepare)
    return model


@pytest.fixture
def found(tiny: LocalModel, monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """What the comparison finds, instead of comparing."""
    reports = [REPORT]
    monkeypatch.setattr(certifying, "_compare", lambda job: reports[-1])
    return reports


def certified(model: LocalModel, **chosen: Any) -> bool:
    """What the health of a server says that runs the model so."""
    known = facts.read_facts(model.weights, "safetensors")
    settings = Settings(**chosen)
    plan = plan_memory(known, settings.ctx or 512, settings.slots or 2, 4)

    async def status() -> bool:
        # The prompt cache and the time for a step change from start to start, and no answer.
        engine = LocalEngine(model, known, engine_settings(settings, plan, cache_ram=123))
        return engine.status().certified

    return asyncio.run(status())


@pytest.mark.parametrize(
    "words", [["--url", "http://127.0.0.1:1"], ["--plot", "a.svg"], ["--completions"], ["--seconds", "9"]]
)
def test_what_measures_has_no_meaning_beside_it(words: list[str]) -> None:
    result = runner.invoke(app, ["bench", "--certify", *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{words[0]} has no meaning with --certify" in result.stderr


def test_a_table_and_a_record_for_these_settings_only(found: list[Report], tiny: LocalModel) -> None:
    assert not certified(tiny, ctx=256)
    result = runner.invoke(app, ["bench", "--certify", "--ctx", "256", "--threads", "1"])
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "run",
        "requests",
        "tokens",
        "same",
        "ties",
        "cached",
        *["KL", "mean", "KL", "max"],
    ]
    assert lines[1].split() == ["alone", "1", "16", "16", "0", "0", "0.0e+00", "0.0e+00", "passed"]
    assert lines[-1] == "tiny: certified"
    assert certified(tiny, ctx=256, threads=1)
    assert certified(tiny, ctx=256, threads=1, step_timeout=5)
    for other in ({"ctx": 512}, {"slots": 3}, {"weights": "bf16"}, {"threads": 2}, {"engine": "exact"}):
        assert not certified(tiny, **{"ctx": 256, "threads": 1, **other})


def test_a_failure_is_status_1_and_takes_the_certificate_away(found: list[Report], tiny: LocalModel) -> None:
    assert runner.invoke(app, ["bench", "--certify", "--ctx", "256"]).exit_code == 0
    assert certified(tiny, ctx=256)
    found.append(replace(REPORT, checks=[CHECK, replace(CHECK, name="together", passed=False)]))
    result = runner.invoke(app, ["bench", "--certify", "--ctx", "256"])
    assert result.exit_code == 1
    assert "FAILED" in result.stdout and result.stdout.endswith("tiny: not certified\n")
    assert not certified(tiny, ctx=256)


def test_a_model_whose_files_have_no_hash_gets_no_record(
    found: list[Report], tiny: LocalModel, home: Path
) -> None:
    tiny.files[0] = replace(tiny.files[0], sha256=None)
    result = runner.invoke(app, ["bench", "--certify", "--ctx", "256"])
    assert result.exit_code == 0
    assert "not kept" in result.stderr
    assert not list(home.rglob("certificates"))


def test_a_comparison_that_breaks_off_is_1(tiny: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certifying, "COMMAND", ("false",))
    result = runner.invoke(app, ["bench", "--certify", "--ctx", "256"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "broke off (exit status 1)" in result.stderr


@pytest.mark.slow
def test_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    """In a terminal it reaches the comparison too: that one leaves it to the command, and ends with it."""
    script = (
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    started = tmp_path / "pid"
    command = (
        "import sys; from mashbox.cli import certifying, frame\n"
        "certifying.COMMAND = (sys.executable, '-c', sys.argv[1], sys.argv[2])\n"
        "sys.exit(frame.exit_status(lambda: certifying._compare(b'')))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, script, str(started)], stderr=subprocess.PIPE, start_new_session=True
    )
    eventually(lambda: started.exists() and started.read_text().isdigit(), within=20)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")
    eventually(lambda: not psutil.pid_exists(int(started.read_text())), within=20)


@pytest.mark.slow
def test_the_real_comparison(tiny: LocalModel) -> None:
    # On weights as wide as these the fast engine rounds beyond the bounds that real models keep.
    words = ["bench", "--certify", "--threads", "1", "--engine", "exact"]
    result = runner.invoke(app, [*words, "--json", "--ctx", "256"])
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["passed"] and record["report"]["compiles_after_ready"] == 0
    assert [check["name"] for check in record["report"]["checks"]] == ["alone", "from the cache", "together"]
    assert certified(tiny, ctx=256, threads=1, engine="exact")
    short = runner.invoke(app, [*words, "--ctx", "100"])
    assert short.exit_code == 1
    assert "Use --ctx 128 or more" in short.stderr
