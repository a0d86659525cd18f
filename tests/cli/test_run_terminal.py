"""``mashbox run`` on a real pseudo-terminal: the status line, log lines above it, and an orderly end."""

import contextlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.patience import PATIENCE

CTRL_C = "\x03"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, and no browser."""
    for name in ("MASHBOX_API_KEY", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def running(home: Path, *args: str) -> Iterator[tuple[Terminal, str]]:
    """A server that is ready, and its address."""
    words = ["run", "--port", "0", "--slots", "2", *args]
    terminal = Terminal(*words, home=home, columns=70, module="tests.cli.scripted_run")
    try:
        terminal.expect("Ctrl-C ends the server.", seconds=60)
        terminal.expect("slots 0/2 busy · 0 waiting · idle")
        (url,) = set(re.findall(r"Ready after [\d.]+ s: (http://\S+)", terminal.text))
        yield terminal, url
    finally:
        terminal.close()


def ask(url: str, question: str) -> str:
    body = {"messages": [{"role": "user", "content": question}]}
    answered = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=PATIENCE, trust_env=False)
    return str(answered.raise_for_status().json()["choices"][0]["message"]["content"])


def ended(terminal: Terminal) -> bool:
    """Whether it ended as it should, after Ctrl-C."""
    terminal.expect("Stopped.")
    return terminal.exit_status() == 0 and "Traceback" not in terminal.text


def test_the_status_line_and_the_log_share_the_terminal(tmp_path: Path) -> None:
    with running(tmp_path) as (terminal, url):
        for _ in range(2):
            assert ask(url, "Hello?") == "Hello world"
            terminal.expect("POST /v1/chat/completions 200 5+2 tokens · 2 cached")
        terminal.expect("cache hits 40%")
        # The status line was taken away before a log line was written.
        before = re.findall(r"([^\n]*)\d\d:\d\d:\d\d POST", terminal.raw)
        assert len(before) == 2 and all("\x1b[2K" in text or not text for text in before)
        terminal.send(CTRL_C)
        assert ended(terminal)


@pytest.mark.slow
def test_what_the_worker_writes_stands_above_the_status_line(tmp_path: Path) -> None:
    with running(tmp_path) as (terminal, url):
        ask(url, "Say it aloud.")
        terminal.expect("the worker: [so] it is\n")
        terminal.expect("POST /v1/chat/completions 200")
        before = terminal.raw.partition("the worker: [so]")[0].rpartition("\n")[2]
        assert "\x1b[2K" in before or not before


@pytest.mark.slow
def test_with_log_json_what_the_worker_writes_is_json_too(tmp_path: Path) -> None:
    words = ["run", "--port", "0", "--log-json"]
    terminal = Terminal(*words, home=tmp_path, columns=500, module="tests.cli.scripted_run")
    try:
        terminal.expect("Ctrl-C ends the server.", seconds=60)
        (url,) = set(re.findall(r"Ready after [\d.]+ s: (http://[\w.:]+)", terminal.text))
        ask(url, "Say it aloud.")
        terminal.expect('"event": "request"')
        lines = [json.loads(line) for line in terminal.text.splitlines() if line.strip()]
        said = {"level": "warning", "event": "message", "message": "the worker: [so] it is"}
        assert [line for line in lines if said.items() <= line.items()]
    finally:
        terminal.close()


@pytest.mark.slow
def test_the_lines_for_clients_fit_the_terminal(tmp_path: Path) -> None:
    with running(tmp_path) as (terminal, _):
        told = terminal.text.partition("Ready after")[2].partition("Ctrl-C ends")[0]
        assert "ssh -L" in told and "ANTHROPIC_BASE_URL" in told
        # The long command goes on behind a backslash, cut between its words.
        assert re.search(r"curl http://\S+/v1/chat/completions -H \\\n", told)


@pytest.mark.slow
def test_ctrl_c_lets_an_answer_come_to_its_end(tmp_path: Path) -> None:
    with running(tmp_path) as (terminal, url):
        answers: list[str] = []
        client = threading.Thread(target=lambda: answers.append(ask(url, "Go on slowly.")))
        client.start()
        terminal.expect("slots 1/2 busy · 0 waiting · ")
        terminal.expect("tokens/s")
        terminal.send(CTRL_C)
        terminal.expect("Stopping: running requests get 30 s")
        client.join()
        assert answers == ["so " * 60]
        assert ended(terminal)


@pytest.mark.slow
def test_open_shows_the_page_in_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with running(tmp_path, "--open") as (_, url):
        assert opened.read_text().strip() == url
        page = httpx.get(url, trust_env=False)
        assert page.headers["content-type"].startswith("text/html")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS always has a browser")
def test_open_without_a_browser_says_where_the_page_is(tmp_path: Path) -> None:
    with running(tmp_path, "--open") as (terminal, url):
        words = " ".join(terminal.text.split())
        assert f"There is no browser to open here. The page is at {url}" in words
