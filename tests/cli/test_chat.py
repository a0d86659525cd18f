"""``mashbox chat`` asked once, and the server that it starts for itself."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from mashbox.cli import spawn
from mashbox.cli.chat import usual_url
from mashbox.cli.main import app
from tests.cli.scripted import Refusal, ScriptedServer, answer, delta, serving
from tests.patience import PATIENCE

runner = CliRunner()
FAKE = (sys.executable, "-m", "tests.cli.fake_mashbox")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    for name in ("MASHBOX_API_KEY", "MASHBOX_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_message_is_answered_as_plain_text() -> None:
    with serving(ScriptedServer(answer("1. *Mars*\n", "2. Venus"))) as server:
        options = [
            "-s",
            "Be brief.",
            "--temperature",
            "0",
            "--max-tokens",
            "9",
            "--no-think",
            "--api-key",
            "k",
        ]
        result = runner.invoke(app, ["chat", "--url", server.url, *options, "Name planets."])
    assert (result.exit_code, result.stdout, result.stderr) == (0, "1. *Mars*\n2. Venus\n", "")
    assert server.keys == ["Bearer k"]
    assert server.requests == [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Name planets."},
            ],
            "model": "tiny",
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "max_tokens": 9,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


@pytest.mark.parametrize(
    ("argument", "piped", "question"),
    [
        ([], "from stdin\n", "from stdin"),
        (["Review:"], "a diff\n", "Review:\n\na diff"),
        (["only"], "", "only"),
    ],
)
def test_stdin_is_the_message_or_goes_behind_it(argument: list[str], piped: str, question: str) -> None:
    with serving(ScriptedServer(answer("ok\n"))) as server:
        result = runner.invoke(app, ["chat", "--url", server.url, *argument], input=piped)
    assert (result.exit_code, result.stdout) == (0, "ok\n")
    assert server.requests[0]["messages"] == [{"role": "user", "content": question}]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_bytes_that_are_no_text_are_sent_and_printed_as_far_as_they_can_be(encoding: str) -> None:
    with serving(ScriptedServer(answer("Café\n"))) as server:
        done = subprocess.run(
            [sys.executable, "-m", "mashbox", "chat", "--url", server.url, "-s", b"s\xff", b"a\xff"],
            input=b"caf\xe9",
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
    printed = "Café\n" if encoding == "utf-8" else "Caf?\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, printed.encode(), b"")
    system, user = server.requests[0]["messages"]
    assert (system["content"], user["content"]) == ("s\ufffd", "a\ufffd\n\ncaf\ufffd")


@pytest.mark.parametrize("args", [[], [" "]])
def test_an_empty_message_is_wrong_use(args: list[str]) -> None:
    result = runner.invoke(app, ["chat", "--url", "http://127.0.0.1:1", *args], input=" \n")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: The message is empty. Give one as an argument, or on stdin.\n",
    )


def test_thinking_stays_out_of_stdout() -> None:
    with serving(ScriptedServer([delta(reasoning_content="hm"), *answer("yes")])) as server:
        result = runner.invoke(app, ["chat", "--url", server.url, "--think", "?"])
    assert result.stdout == "yes\n"


def test_a_cut_answer_is_told_on_stderr() -> None:
    with serving(ScriptedServer(answer("half", reason="length"))) as server:
        result = runner.invoke(app, ["chat", "--url", server.url, "?"])
    assert (result.exit_code, result.stdout) == (0, "half\n")
    assert result.stderr == "warning: The answer was cut off by the token limit.\n"


def test_url_and_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ScriptedServer(answer("x"))) as server:
        monkeypatch.setenv("MASHBOX_URL", server.url)
        monkeypatch.setenv("MASHBOX_API_KEY", "secret")
        assert runner.invoke(app, ["chat", "?"]).exit_code == 0
    assert server.keys == ["Bearer secret"]


def test_with_url_an_unreachable_server_is_1_and_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "OwnServer", None)
    url = f"http://127.0.0.1:{free_port()}"
    result = runner.invoke(app, ["chat", "--url", url, "?"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: No server answers at {url}. Start one with: mashbox run\n"


def test_a_refusal_is_1_and_one_line() -> None:
    refusal = Refusal(429, {"error": {"message": "32 are waiting."}}, retry_after="4")
    with serving(ScriptedServer(refusal)) as server:
        result = runner.invoke(app, ["chat", "--url", server.url, "?"])
    assert (result.exit_code, result.stdout, result.stderr) == (
        1,
        "",
        "error: 32 are waiting. Try again in 4 s.\n",
    )


def test_another_model_than_the_servers_is_refused() -> None:
    with serving(ScriptedServer()) as server:
        result = runner.invoke(app, ["chat", "--url", server.url, "-m", "other", "?"])
    assert result.exit_code == 1
    assert "has tiny, not other" in result.stderr


def test_a_loading_server_is_waited_for() -> None:
    seen: list[float] = []

    def ready() -> bool:
        seen.append(time.monotonic())
        return len(seen) > 2

    with serving(ScriptedServer(answer("x"), ready=ready)) as server:
        assert runner.invoke(app, ["chat", "--url", server.url, "?"]).exit_code == 0
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:77"), ("0.0.0.0", "http://127.0.0.1:77"), ("::1", "http://[::1]:77")],
)
def test_the_usual_address_follows_the_settings(monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.setenv("MASHBOX_PORT", "77")
    monkeypatch.setenv("MASHBOX_HOST", host)
    assert usual_url() == url


def test_a_running_server_on_the_usual_port_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "OwnServer", None)
    with serving(ScriptedServer(answer("x"))) as server:
        monkeypatch.setenv("MASHBOX_PORT", server.url.rpartition(":")[2])
        assert runner.invoke(app, ["chat", "?"]).stdout == "x\n"


def alive(pid: int) -> bool:
    try:
        return str(psutil.Process(pid).status()) != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_without_one_a_server_is_started_and_ended(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(spawn, "COMMAND", FAKE)
    monkeypatch.setenv("MASHBOX_PORT", str(free_port()))
    result = runner.invoke(app, ["chat", "-m", "./some.gguf", "?"])
    assert result.exit_code == 0, result.stderr
    word, pid, _, key = result.stdout.split()
    assert (word, len(key)) == ("pid", 32)
    assert not alive(int(pid))
    assert list((home / "state" / "logs").iterdir()) == []


def test_a_server_that_does_not_start_tells_why(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(spawn, "COMMAND", FAKE)
    monkeypatch.setenv("MASHBOX_PORT", str(free_port()))
    monkeypatch.setenv("FAKE_FAILS", "1")
    result = runner.invoke(app, ["chat", "?"])
    (log,) = (home / "state" / "logs").iterdir()
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: The server did not start: Needs 9 GB, has 4 GB. Lower --ctx. Its log: {log}\n"
    )
    assert "started with run --host 127.0.0.1 --port" in log.read_text()


def test_our_server_ends_when_we_are_killed(home: Path) -> None:
    script = (
        "import sys, time; from mashbox.cli import spawn; spawn.COMMAND = sys.argv[1:];"
        "server = spawn.OwnServer(None); print(server._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, *FAKE], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + PATIENCE
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def test_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert spawn.last_line(log) == ""
    log.write_text("x" * 9000 + "\nlast one\n\n")
    assert spawn.last_line(log) == "last one"
