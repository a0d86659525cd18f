"""The status line of a running server: what it says, and that other lines appear above it whole."""

import dataclasses
import io
import logging

import pytest
from rich.console import Console

from mashbox.cli import console, statusline
from mashbox.engine.engine import EngineStatus
from mashbox.server import logs
from mashbox.server.record import Record


@dataclasses.dataclass
class Counts:
    """A server's figures, set by hand."""

    slots: int = 4
    running: int = 0
    waiting: int = 0
    generated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    state: EngineStatus = dataclasses.field(default_factory=lambda: EngineStatus(state="ok"))

    def status(self) -> EngineStatus:
        return self.state


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_idle_server_says_so() -> None:
    assert statusline.Gauge(Counts()).text() == "slots 0/4 busy · 0 waiting · idle"


def test_slots_waiting_rate_and_hits() -> None:
    counts, clock = Counts(running=2, waiting=3), Clock()
    gauge = statusline.Gauge(counts, clock)
    assert gauge.text() == "slots 2/4 busy · 3 waiting · reading prompts"
    counts.generated, counts.prompt_tokens, counts.cached_tokens, clock.now = 50, 200, 150, 102.0
    assert gauge.text() == "slots 2/4 busy · 3 waiting · 25.0 tokens/s · cache hits 75%"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    counts, clock = Counts(running=1), Clock()
    gauge = statusline.Gauge(counts, clock)
    rates = []
    for second in range(1, 20):
        clock.now = 100.0 + second
        counts.generated += 10 if second <= 10 else 0
        rates.append(gauge.text().split(" · ")[2])
    assert rates[4:10] == ["10.0 tokens/s"] * 6
    assert rates[-1] == "reading prompts"


def test_a_worker_that_starts_again_is_told() -> None:
    counts = Counts(state=EngineStatus(state="loading", stage="reading weights", progress=0.5))
    assert statusline.Gauge(counts).text() == "slots 0/4 busy · 0 waiting · reading weights 50%"


def test_nothing_is_drawn_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with statusline.shown(statusline.Gauge(Counts())) as draw:
        draw()
        console.note("a line")
    assert capsys.readouterr().err == "a line\n"


class Screen:
    """What a terminal shows of the bytes that were written: enough of its language for lines and erasing."""

    def __init__(self, text: str) -> None:
        self.lines, self.row, self.column = [""], 0, 0
        while text:
            text = self._take(text)

    def _take(self, text: str) -> str:
        if text.startswith("\x1b["):
            end = next(i for i, char in enumerate(text[2:], 2) if char.isalpha())
            self._control(text[2:end], text[end])
            return text[end + 1 :]
        char = text[0]
        if char == "\n":
            self.row, self.column = self.row + 1, 0
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif char == "\r":
            self.column = 0
        else:
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + char + line[self.column + 1 :]
            self.column += 1
        return text[1:]

    def _control(self, count: str, kind: str) -> None:
        if kind == "A":
            self.row -= int(count or 1)
        elif kind == "K":
            self.lines[self.row] = ""


def test_other_lines_appear_above_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=50, highlight=False, color_system=None)
    monkeypatch.setattr(console, "notes", lambda: terminal)
    monkeypatch.setattr(statusline, "in_foreground", lambda: True)
    counts = Counts()
    with statusline.shown(statusline.Gauge(counts)) as draw:
        console.note("first, a line that is longer than the terminal is wide by some words")
        counts.waiting = 1
        draw()
        console.Stream().write("12:00:00 POST /v1/chat/completions 200 · a log line of some length\n")
        console.foreign("the worker's own words")
        counts.running = 1
        draw()
        during = Screen(written.getvalue()).lines
    after = Screen(written.getvalue()).lines
    told = [
        "first, a line that is longer than the terminal is",
        "wide by some words",
        "12:00:00 POST /v1/chat/completions 200 · a log",
        "line of some length",
        "the worker's own words",
    ]
    assert during == [*told, "slots 1/4 busy · 1 waiting · reading prompts"]
    assert [line for line in after if line] == told


def test_log_lines_on_a_terminal_are_brief() -> None:
    record = Record(request_id="r", method="POST", route="/v1/messages", status=200)
    record.prompt_tokens, record.new_tokens, record.cached_tokens = 30, 11, 20
    record.predicted_ms, record.total_ms, record.finish, record.tenant = 500.0, 1234.0, "length", "alice"
    line = logs.BriefFormatter().format(
        logging.LogRecord("mashbox.request", logging.INFO, "", 0, record, None, None)
    )
    told = "POST /v1/messages 200 30+11 tokens · 20 cached · 20.0/s · 1.23 s · length · alice"
    assert line.split(" ", 1)[1] == told
