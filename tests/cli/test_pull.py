"""``mashbox pull`` as a user runs it."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mashbox.cli import fetching
from mashbox.cli.main import app
from mashbox.pull import transfer
from tests.patience import PATIENCE
from tests.pull.hub_server import Hub, serve
from tests.pull.models import tiny_gguf

NAME = "org/tiny-GGUF"
runner = CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(transfer, "PAUSES_S", (0.0,))
    return tmp_path / "home"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    import huggingface_hub

    with serve() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        running.repos[NAME] = {"tiny-Q4_0.gguf": tiny_gguf(tmp_path)}
        yield running
        huggingface_hub.close_session()


def test_a_pull_prints_the_path_and_says_what_it_does_on_stderr(hub: Hub, home: Path) -> None:
    result = runner.invoke(app, ["pull", NAME])
    assert result.exit_code == 0, result.stderr
    path = Path(result.stdout.strip())
    assert path.is_file() and path.is_relative_to(home)
    assert "Fetching tiny-Q4_0.gguf, 401 kB" in result.stderr
    assert "tiny-Q4_0.gguf: 100 % of 401 kB" in result.stderr
    assert f"{NAME} is here (401 kB). Serve it: mashbox run {NAME}" in result.stderr


def test_a_file_of_this_machine_is_not_said_to_be_fetched(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(tiny_gguf(tmp_path))
    result = runner.invoke(app, ["pull", str(path)])
    assert result.exit_code == 0 and result.stdout.strip() == str(path)
    assert "Checking mine.gguf, 401 kB" in result.stderr and "Fetching" not in result.stderr


def test_a_corrupt_download_is_one_line_and_exit_1(hub: Hub) -> None:
    hub.faults = ["flip"]
    result = runner.invoke(app, ["pull", NAME])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: tiny-Q4_0.gguf: expected sha256 " in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert runner.invoke(app, ["pull", NAME]).exit_code == 0


def test_a_broken_connection_is_taken_up_by_the_next_pull(hub: Hub) -> None:
    hub.faults = ["drop", "busy", "busy"]
    result = runner.invoke(app, ["pull", NAME])
    assert result.exit_code == 1
    assert "what is here already is kept" in result.stderr
    result = runner.invoke(app, ["pull", NAME])
    assert result.exit_code == 0
    assert [asked.range is None for asked in hub.downloads("tiny-Q4_0.gguf")] == [True, False, False, False]


def test_list_shows_the_catalogue_and_what_is_here(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mashbox.memory.available_memory", lambda: 16_000_000_000)
    runner.invoke(app, ["pull", NAME])
    result = runner.invoke(app, ["pull", "--list"])
    assert result.exit_code == 0
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["id", "params", "quant", "size", "ctx", "here", "fits", "tried", "licence"]
    rows = {line.split()[0]: line.split() for line in lines}
    starter = "smollm2-135m 135M Q4_1 98.4 MB 8k - 4×8k yes Apache-2.0"
    assert " ".join(rows["smollm2-135m"]) == starter
    assert rows["qwen3-30b-a3b"][1] == "30.5B-A3.3B"
    # A file that no facts can be read from is listed all the same.
    assert rows[NAME][-4:] == ["yes", "?", "-", "?"]
    assert "slots × context that `mashbox run` would choose now, with 16.0 GB" in result.stderr


def test_list_as_json_is_an_array(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mashbox.memory.available_memory", lambda: 4_000_000_000)
    runner.invoke(app, ["pull", NAME])
    result = runner.invoke(app, ["pull", "--list", "--json"])
    assert result.stderr == ""
    rows = {row["id"]: row for row in json.loads(result.stdout)}
    assert rows["smollm2-135m"]["starter"] and not rows["qwen3-8b"]["starter"]
    assert rows["smollm2-135m"]["fits"] is True
    assert (rows["smollm2-135m"]["fits_slots"], rows["smollm2-135m"]["fits_context"]) == (4, 8192)
    assert rows["qwen3-8b"]["fits"] is False
    assert rows["qwen3-8b"]["fits_slots"] is None
    assert rows["qwen3-8b"]["memory_bytes"] > 4_000_000_000
    assert rows["qwen3-8b"]["here"] is False and rows[NAME]["here"] is True
    assert Path(rows[NAME]["path"]).is_file()
    assert rows[NAME].keys() == rows["qwen3-8b"].keys()


def test_remove(hub: Hub) -> None:
    path = Path(runner.invoke(app, ["pull", NAME]).stdout.strip())
    result = runner.invoke(app, ["pull", NAME, "--remove"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"Removed {NAME}, 40" in result.stderr
    assert not path.exists()
    result = runner.invoke(app, ["pull", NAME, "--remove"])
    assert result.exit_code == 2
    assert "not on this machine" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["smollm2-135"], "Did you mean smollm2-135m"),
        (["--remove"], "--remove needs the name of a model"),
        (["--json"], "--json goes with --list"),
        (["--list", "x"], "--list takes no MODEL"),
        (["--list", "--remove"], "--list takes no MODEL"),
    ],
)
def test_wrong_use_is_exit_2(args: list[str], said: str) -> None:
    result = runner.invoke(app, ["pull", *args])
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_without_a_model_the_starter_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stop(name: str, *args: object, **more: object) -> None:
        asked.append(name)
        raise KeyboardInterrupt

    monkeypatch.setattr("mashbox.pull.ensure", stop)
    result = runner.invoke(app, ["pull"])
    assert asked == ["smollm2-135m"]
    assert result.exit_code == 130
    assert "What is here already is kept" in result.stderr


def test_help_has_an_example() -> None:
    result = runner.invoke(app, ["pull", "--help"])
    assert result.exit_code == 0
    assert "Example: mashbox pull smollm2-135m" in result.stdout


def test_a_terminal_gets_bars(hub: Hub) -> None:
    terminal, side = pty.openpty()
    code = "import sys; from mashbox.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "pull", NAME],
        stdout=subprocess.PIPE,
        stderr=side,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as child:
        os.close(side)
        shown = b""
        try:
            while piece := os.read(terminal, 65536):
                shown += piece
        except OSError:
            # Linux reports the end of a terminal's other side as an error.
            pass
        os.close(terminal)
        assert child.stdout is not None
        path = child.stdout.read().decode().strip()
        assert child.wait(PATIENCE) == 0
    assert Path(path).is_file()
    assert "tiny-Q4_0.gguf" in shown.decode() and "━" in shown.decode()


def test_lines_are_few_however_many_updates(capfd: pytest.CaptureFixture[str]) -> None:
    lines = fetching._Lines()
    lines.plan({"a": 1000, "b": 1000})
    for file in ("a", "b"):
        for done in range(1001):
            lines.update(file, done, 1000)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "Fetching 2 files, 2 kB"
    assert len(said) == 11
    assert said[-1] == "b: 100 % of 2 kB"
