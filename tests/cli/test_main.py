"""The command itself: version, help, errors and exit statuses, and what importing it costs."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import mashbox
from mashbox.cli import complete, frame
from mashbox.cli.main import app
from mashbox.errors import DoesNotFit, UnknownModel
from tests.marks import slow_but
from tests.patience import PATIENCE

runner = CliRunner()


def raising(problem: BaseException) -> typer.Typer:
    """A command line with one command that fails."""
    failing = typer.Typer(cls=frame.CommandLine, pretty_exceptions_enable=False)

    @failing.command()
    def fail() -> None:
        raise problem

    @failing.callback()
    def root() -> None:
        pass

    return failing


def test_version_is_the_packages() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"mashbox {mashbox.__version__}\n")


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"]])
def test_help_lists_the_options(args: list[str]) -> None:
    result = runner.invoke(app, args)
    assert result.exit_code == 0
    assert "--version" in result.stdout
    assert "Usage: mashbox" in result.stdout
    assert not result.stderr


@pytest.mark.parametrize(
    ("problem", "status", "line"),
    [
        (
            UnknownModel("No model 'x'.", "See mashbox pull --list."),
            2,
            "No model 'x'. See mashbox pull --list.",
        ),
        (DoesNotFit("Needs 9 GB,\nhas 4 GB."), 1, "Needs 9 GB, has 4 GB."),
        (PermissionError(13, "Permission denied", "/x"), 1, "/x: Permission denied."),
        (
            ZeroDivisionError("by zero"),
            1,
            "ZeroDivisionError: by zero (a fault in mashbox; --debug shows where)",
        ),
    ],
)
def test_an_error_is_one_line_on_stderr(problem: Exception, status: int, line: str) -> None:
    result = runner.invoke(raising(problem), ["fail"])
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", f"error: {line}\n")


@pytest.mark.parametrize("args", [["--debug", "fail"], ["fail", "--debug"]])
def test_debug_shows_the_traceback_before_or_behind_the_command(args: list[str]) -> None:
    result = runner.invoke(raising(UnknownModel("No model.")), args)
    assert result.exit_code == 2
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("error: No model.\n")


def test_debug_behind_a_double_dash_is_an_argument() -> None:
    assert frame.take_debug(["chat", "--", "--debug"]) == (["chat", "--", "--debug"], False)


def test_an_interrupt_is_130() -> None:
    result = runner.invoke(raising(KeyboardInterrupt()), ["fail"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nope"], "No such command 'nope'. Try 'mashbox --help'."),
        (["--nope"], "No such option: --nope. Try 'mashbox --help'."),
    ],
)
def test_wrong_use_is_2_and_one_line(args: list[str], words: str) -> None:
    result = runner.invoke(app, args)
    assert result.exit_code == 2
    assert not result.stdout
    assert words in result.stderr
    assert "mashbox --help" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "mashbox", "--help"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 1


def test_importing_the_command_line_leaves_the_heavy_parts_out() -> None:
    """That is what lets it start within 0.3 s (benchmarks/start.py tells the time)."""
    heavy = (
        "torch",
        "transformers",
        "litestar",
        "huggingface_hub",
        "pydantic",
        "numpy",
        "httpx",
        "tokenizers",
    )
    script = f"import sys, mashbox.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


def completed(shell: str, words: str, home: Path) -> list[str]:
    """What a shell's completion function gets for a line that is typed, by the protocol of its script."""
    asked = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {"MASHBOX_HOME": str(home), "_MASHBOX_COMPLETE": f"complete_{shell}", **asked}
    done = runner.invoke(app, [], env=environment)
    assert not done.stderr
    return re.findall(r'^\s*"?([\w./-]+)', done.stdout.replace("_arguments '*: :((", ""), re.MULTILINE)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mashbox --vers", "--version"),
        ("mashbox cou", "count-tokens"),
        ("mashbox keys rot", "rotate"),
        ("mashbox run smollm2-13", "smollm2-135m"),
    ],
)
def test_shells_complete_commands_options_and_models(
    shell: str, words: str, expected: str, tmp_path: Path
) -> None:
    assert expected in completed(shell, words, tmp_path)


@pytest.mark.parametrize("words", ["pull", "bench", "chat --model", "count-tokens --model"])
def test_every_command_that_takes_a_model_completes_it(words: str, tmp_path: Path) -> None:
    assert completed("fish", f"mashbox {words} smollm2-13", tmp_path) == ["smollm2-135m"]


@pytest.mark.parametrize("shell", slow_but(["bash"], ["bash", "zsh", "fish"]))
def test_the_completion_script_of_each_shell(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mashbox", "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and f"_MASHBOX_COMPLETE=complete_{shell}" in done.stdout


@pytest.mark.slow
def test_a_shell_in_a_process_of_its_own_gets_the_completion(tmp_path: Path) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "mashbox run smollm2-13", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "mashbox"],
        env={**os.environ, "MASHBOX_HOME": str(tmp_path), "_MASHBOX_COMPLETE": "complete_fish", **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "smollm2-135m" in done.stdout and not done.stderr


@pytest.mark.slow
def test_the_help_page_is_what_the_commands_say() -> None:
    script = Path(__file__).parent.parent.parent / "docs" / "help_pages.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_serving_process_never_imports_torch() -> None:
    script = "import sys, mashbox.cli.serving; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"False\n"


@pytest.mark.parametrize(
    "command",
    [
        "pull",
        "run",
        "chat",
        "bench",
        "count-tokens",
        "keys",
        "keys add",
        "keys list",
        "keys revoke",
        "keys rotate",
    ],
)
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = runner.invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"Usage: mashbox {command}" in result.stdout
    assert f"mashbox {command}" in result.stdout.partition("Example")[2]


def test_completion_names_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    assert complete.models("smollm2-13") == ["smollm2-135m"]
    assert complete.models("no such") == []
    config = tmp_path / "config"
    config.mkdir()
    (config / "models.json").write_text("{")
    assert complete.models("smollm2-13") == []


def test_ctrl_c_while_the_commands_are_imported_is_130_and_quiet() -> None:
    script = (
        "import sys, mashbox.__main__\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'mashbox.cli.bench': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "mashbox.__main__.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "words", "status", "told"),
    [
        ("<&- >&- 2>&-", "pull --list", 0, b""),
        (">&-", "--version", 0, b""),
        ("<&-", "chat --url http://127.0.0.1:1", 2, b"error: The message is empty."),
        ("<&-", "count-tokens --model none", 2, b"error: There is no model 'none'."),
        ("<&-", "chat --url http://127.0.0.1:1 hi", 1, b"error: No server answers"),
    ],
)
def test_closed_streams_lead_nowhere(
    closed: str, words: str, status: int, told: bytes, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m mashbox {words} {closed}', sys.executable],
        env={**os.environ, "MASHBOX_HOME": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, b"")
    assert done.stderr.startswith(told) and done.stderr.count(b"\n") <= 1


@pytest.mark.slow
def test_what_the_encoding_lacks_is_replaced(tmp_path: Path) -> None:
    environment = {**os.environ, "MASHBOX_HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "mashbox", "pull", "--list"], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert b"4?8k" in done.stdout and not done.stderr.startswith(b"error")


def test_ctrl_c_in_a_real_process_is_130() -> None:
    script = (
        "import time, sys; from mashbox.cli import frame;"
        "sys.exit(frame.exit_status(lambda: (print('up', flush=True), time.sleep(30))))"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert (process.returncode, stderr) == (130, b"")
