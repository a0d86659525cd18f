"""``mashbox run``: what it refuses, what it prints, and one real server from start to end."""

import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from mashbox import facts, memory, pull
from mashbox.cli import console, recipes, serving
from mashbox.cli.client import Client
from mashbox.cli.main import app
from mashbox.cli.run import engine_settings
from mashbox.engine import process
from mashbox.engine.settings import start_message
from mashbox.memory import MemoryPlan
from mashbox.settings import Settings
from mashbox.store import LocalModel
from tests.patience import PATIENCE
from tests.server.scripted import CARD
from tests.test_capacity import facts as some_facts

MODEL = LocalModel(
    id="tiny", format="gguf", weights=Path("t.gguf"), files=[], tokenizer=Path(), spec=None, source=""
)
runner = CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    loggers = [logging.getLogger(), logging.getLogger("mashbox")]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    monkeypatch.delenv("MASHBOX_API_KEY", raising=False)
    yield tmp_path
    console.as_json(False)
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A small model that is here already; what would be served is recorded instead."""
    calls: list[tuple[Any, ...]] = []

    def ensure(name: str, progress: object) -> LocalModel:
        calls.append(("pull", name))
        return MODEL

    monkeypatch.setattr(pull, "ensure", ensure)
    monkeypatch.setattr(facts, "read_facts", lambda weights, format: some_facts(limit=4096))
    monkeypatch.setattr(memory, "available_memory", lambda: 8 * 10**9)
    monkeypatch.setattr(process, "WorkerProcess", lambda start, heard: contextlib.nullcontext((start, heard)))
    monkeypatch.setattr(serving, "serve_model", lambda *arguments: calls.append(("serve", *arguments)))
    return calls


def refused(*args: str, status: int = 2) -> str:
    result = runner.invoke(app, ["run", *args])
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.splitlines()[-1].startswith("error: ")
    return result.stderr.removeprefix("error: ").strip()


def test_the_plan_is_printed_before_loading(served: list[tuple[Any, ...]]) -> None:
    result = runner.invoke(app, ["run", "--port", "0"])
    assert (result.exit_code, result.stdout) == (0, "")
    first, second, third = result.stderr.splitlines()
    assert third.startswith("Prompts read before are kept in up to ")
    assert first == "tiny: llama, 135 M parameters, Q4_1 (5.7 bits each)"
    plan = memory.plan_memory(some_facts(limit=4096), 4096, 4, 4)
    working, total = plan.working / 1e9, plan.total / 1e9
    assert second == (
        f"Memory: weights 0.54 + 4 slots of 4,096 tokens 0.81 + working {working:.2f}"
        f" = {total:.2f} of 8.00 GB free"
    )
    assert served[0] == ("pull", "smollm2-135m")


def test_flags_reach_the_server(served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_DRAIN", "7")
    monkeypatch.setenv("MASHBOX_API_KEY", "k")
    args = ["run", "org/repo", "--host", "0.0.0.0", "--port", "0", "--ui", "--ctx", "512", "--slots", "3"]
    result = runner.invoke(
        app, [*args, "--allow-host", "a.b", "--allow-host", "c", "--max-body-mib", "1", "--read-timeout", "9"]
    )
    assert result.exit_code == 0, result.stderr
    assert served[0] == ("pull", "org/repo")
    _, chosen, server, _, _, plan, settings, (start, heard) = served[1]
    assert start == start_message(MODEL, settings) and heard is sys.stderr.isatty()
    assert (server.host, server.allow_hosts, server.api_keys) == ("0.0.0.0", ("a.b", "c"), ("k",))
    assert (server.ui, server.max_body_mib, server.drain_s, server.read_timeout_s) == (True, 1, 7.0, 9.0)
    assert (plan.ctx, plan.slots, chosen.engine) == (512, 3, "auto")


def test_every_choice_reaches_the_worker() -> None:
    chosen = Settings(
        engine="fast",
        weights="q8",
        activations=8,
        threads=3,
        share_cache=True,
        speculation="off",
        step_timeout=7,
    )
    plan = MemoryPlan(ctx=512, slots=3, weights=1, kv=1, working=1)
    settings = engine_settings(chosen, plan, cache_ram=5)
    assert settings.step_timeout == 7.0
    start = start_message(MODEL, settings)
    assert (start.ctx, start.slots, start.engine, start.weights, start.threads) == (512, 3, "fast", "q8", 3)
    assert start.activations == 8
    assert (start.share_cache, start.speculation, start.cache_bytes) == (True, "off", 5 << 20)
    # What is left to us stays so.
    usual = start_message(MODEL, engine_settings(Settings(), plan, cache_ram=0))
    assert usual.activations == 16
    assert (usual.share_cache, usual.speculation, usual.engine, usual.threads) == (False, "auto", "auto", 0)
    assert usual.ctx_auto and usual.slots_auto and usual.cache_auto
    asked = start_message(MODEL, engine_settings(Settings(ctx=512, slots=3), plan, cache_ram=0))
    assert not asked.ctx_auto and not asked.slots_auto


def test_what_fits_beside_another_engine_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    plan = MemoryPlan(ctx=8192, slots=4, weights=1, kv=1, working=1)
    planned = replace(CARD, max_model_len=8192, slots=4)
    fewer = replace(planned, slots=2, max_model_len=4096, engine="exact", engine_why="its layer 1 differs")
    for card in (planned, replace(planned, engine="exact", engine_why="its layer 1 differs")):
        serving.tell_what_fits(card, plan)
    assert capsys.readouterr().err == ""
    serving.tell_what_fits(fewer, plan)
    said = " ".join(capsys.readouterr().err.split())
    assert "beside the exact one, 2 slots of 4,096 tokens fit" in said


def test_other_addresses_need_a_key() -> None:
    line = refused("--host", "0.0.0.0")
    assert "no API key is set" in line
    assert "mashbox keys add" in line
    assert "MASHBOX_API_KEY" in line


def test_a_taken_port_is_told_before_anything_is_pulled(served: list[tuple[Any, ...]]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Port {port} on 127.0.0.1 is taken" in refused("--port", str(port))
    assert served == []


def test_a_context_above_the_models_limit(served: list[tuple[Any, ...]]) -> None:
    assert "--ctx 4097 is above the model's limit of 4096 tokens" in refused("--port", "0", "--ctx", "4097")


def test_what_does_not_fit_is_1_and_says_what_to_lower(
    served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10**9)
    assert re.search(
        r"GB are needed .* Lower", refused("--port", "0", "--slots", "9", "--ctx", "4096", status=1)
    )


def test_an_unknown_model() -> None:
    line = refused("--port", "0", "smollm2-135")
    assert "smollm2-135" in line
    assert "smollm2-135m" in line


def test_a_device_that_is_not_supported(served: list[tuple[Any, ...]]) -> None:
    assert "--device cuda is not supported" in refused("--port", "0", "--device", "cuda")


def test_wrong_values_name_their_flag() -> None:
    assert refused("--port", "x").startswith("--port: 'x' is not allowed. Allowed: a whole number")
    assert "No such option: --prot" in refused("--prot", "1")


def test_every_line_is_json_with_log_json(served: list[tuple[Any, ...]]) -> None:
    result = runner.invoke(app, ["run", "--port", "0", "--log-json"])
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert all((line["level"], line["event"]) == ("info", "message") for line in lines)
    assert lines[0]["message"] == "tiny: llama, 135 M parameters, Q4_1 (5.7 bits each)"
    refused = runner.invoke(app, ["run", "--port", "0", "--log-json", "--ctx", "4097"])
    last = json.loads(refused.stderr.splitlines()[-1])
    assert last["level"] == "error"
    assert "above the model's limit" in last["message"]


def test_a_key_file_is_checked_before_anything_is_pulled(served: list[tuple[Any, ...]], home: Path) -> None:
    path = home / "keys"
    path.touch(mode=0o600)
    for text, told in (
        ("", "holds no key"),
        ("# x\n", "holds no key"),
        ("a\nb c d", "keys line 2 has several"),
    ):
        path.write_text(text)
        assert told in refused("--port", "0", "--api-key-file", str(path))
    assert served == []


def test_a_key_file_reaches_the_server(served: list[tuple[Any, ...]], home: Path) -> None:
    path = home / "keys"
    path.write_text("abc alice\n")
    path.chmod(0o644)
    result = runner.invoke(app, ["run", "--port", "0", "--host", "0.0.0.0", "--api-key-file", str(path)])
    assert result.exit_code == 0, result.stderr
    server = served[1][2]
    assert (server.key_file, server.api_keys, server.keyed) == (path, (), True)
    assert "warning: Others could read the key file" in result.stderr


def test_a_key_that_no_header_can_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_API_KEY", "two words")
    line = refused("--port", "0")
    assert line.startswith("MASHBOX_API_KEY: a key is made of printable ASCII")
    assert "two words" not in line


def test_a_missing_key_file_is_named() -> None:
    assert "/nowhere/keys can't be read" in refused("--api-key-file", "/nowhere/keys")


def lines(url: str, *, keyed: bool = False) -> str:
    return "\n".join(recipe.line for recipe in recipes.clients(url, "tiny", ctx=512, keyed=keyed))


@pytest.mark.slow
def test_an_error_is_the_last_word_though_standard_input_is_watched(home: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mashbox", "run", "nope", "--until-eof"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(PATIENCE) == 2
    assert said == b"error: There is no model 'nope'. See: mashbox pull --list\n"
    process.communicate()


def test_recipes_show_only_what_was_asked_for() -> None:
    plain = lines("http://127.0.0.1:8000")
    assert "ssh -L 8000:127.0.0.1:8000 " in plain
    assert "OPENAI_BASE_URL=http://127.0.0.1:8000/v1" in plain
    assert "Authorization" not in plain
    keyed = lines("http://[::1]:9", keyed=True)
    assert 'Authorization: Bearer $MASHBOX_API_KEY"' in keyed
    assert "ssh -L 9:[::1]:9 " in keyed


class Running:
    """A real ``mashbox run`` whose stderr is collected."""

    def __init__(self, *args: str) -> None:
        words = [sys.executable, "-m", "mashbox", "run", *args, "--host", "127.0.0.1", "--port", "0"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def url(self) -> str:
        """The URL it prints when it is ready."""
        return self.said(r"^Ready after .* s: (http://\S+)$")[1]

    def said(self, pattern: str) -> re.Match[str]:
        """Where a line of it matches, now or later."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.lines[:]:
                if found := re.search(pattern, line):
                    return found
            time.sleep(0.05)
        raise AssertionError("".join(self.lines))

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self._reader.join()
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def starter(starter_gguf: Path) -> Iterator[Running]:
    running = Running(str(starter_gguf), "--ctx", "512", "--slots", "2", "--threads", "1")
    yield running
    running.close()


@pytest.mark.real
def test_a_real_server_from_start_to_ctrl_c(starter: Running) -> None:
    url = starter.url()
    assert f"{url}/v1/chat/completions" in starter.said("^  curl.*").string
    answered = subprocess.run(
        ["mashbox", "chat", "--url", url, "--temperature", "0", "Name three planets."],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
    )
    assert answered.stdout == "1. Mars\n2. Venus\n3. Earth\n"
    with Client(url) as client:
        story = client.chat([{"role": "user", "content": "Write a long story."}], max_tokens=12)
        first = next(story)
        assert httpx.get(f"{url}/health", trust_env=False).json()["compiles_after_ready"] == 0
        starter.process.send_signal(signal.SIGINT)
        rest = list(story)
    assert [first, *rest][-1].reason == "length"  # type: ignore[union-attr]
    assert starter.process.wait(PATIENCE) == 0
    starter.close()
    assert starter.lines[-1] == "Stopped.\n"
    assert not any("Traceback" in line for line in starter.lines)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/health", trust_env=False)


@pytest.mark.real
def test_ctrl_c_while_the_model_loads_is_a_clean_end(starter: Running) -> None:
    starter.said("^(Starting|Reading)")
    time.sleep(0.3)
    assert starter.end(signal.SIGINT) == 0
    assert not any("Traceback" in line for line in starter.lines), "".join(starter.lines)
