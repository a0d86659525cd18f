"""Signals that end the chat, wherever it is when they come."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from mashbox.cli.leaving import Leaving
from mashbox.cli.prompt import reader
from mashbox.cli.talk import Ask, Talk

Hangup = Callable[[], None]


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """A line to type in, without a terminal, while signals are heeded."""
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    leaving = Leaving()
    with (
        create_pipe_input() as keys,
        create_app_session(input=keys, output=DummyOutput()),
        leaving.on_signals(),
    ):
        yield reader(cast(Talk, SimpleNamespace()), leaving)


def test_outside_of_what_defers_it_leaves_at_once() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(SystemExit) as left, Leaving().on_signals():
        hang_up()
        pytest.fail("it went on")
    assert left.value.code == 128 + signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_defers_it_ends_by_itself(number: signal.Signals) -> None:
    leaving, seen = Leaving(), []
    with (
        pytest.raises(SystemExit) as left,
        leaving.on_signals(),
        leaving.deferred(lambda: seen.append("end")),
    ):
        os.kill(os.getpid(), number)
        seen.append("the rest of the block")
        raise EOFError
    assert left.value.code == 128 + number
    assert seen == ["end", "the rest of the block"]


def test_a_signal_in_a_callback_of_the_prompt_ends_it(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is raised there goes to the loop's exception handler, which waits for Enter."""

    def load(self: FileHistory) -> Iterable[str]:
        hang_up()
        return []

    monkeypatch.setattr(FileHistory, "load_history_strings", load)
    with pytest.raises(SystemExit) as left:
        ask("")
    assert left.value.code == 128 + signal.SIGHUP
    assert capfd.readouterr() == ("", "")


def test_a_signal_at_any_step_of_the_prompt_ends_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """From before the loop runs to long after it waits for keys."""
    step, at = asyncio.Handle._run, 0

    def run(handle: Any) -> None:
        nonlocal count
        count += 1
        if count == at:
            hang_up()
        step(handle)

    monkeypatch.setattr(asyncio.Handle, "_run", run)
    for at in range(1, 12):
        count = 0
        with pytest.raises(SystemExit):
            ask("")
        assert count >= at
