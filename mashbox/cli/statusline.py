"""The line at the bottom of the terminal while a server runs: how busy it is."""

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from mashbox.cli import console
from mashbox.engine.engine import EngineStatus

WINDOW_SECONDS = 3.0
"""The rate is the mean over so long."""


class Figures(Protocol):
    """What the line tells, as counted by the server since its start."""

    @property
    def slots(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def generated(self) -> int: ...
    @property
    def prompt_tokens(self) -> int:
        """Of the requests that have ended."""
        ...

    @property
    def cached_tokens(self) -> int:
        """Those of them that were in the prompt cache."""
        ...

    def status(self) -> EngineStatus: ...


class Gauge:
    """Makes the line's text; remembers what is needed for the rate."""

    def __init__(self, figures: Figures, clock: Callable[[], float] = time.monotonic) -> None:
        self._figures = figures
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque([(clock(), figures.generated)])

    def text(self) -> str:
        """``slots 2/4 busy · 3 waiting · 61.2 tokens/s · cache hits 87%``"""
        figures, status = self._figures, self._figures.status()
        rate = self._rate()
        parts = [f"slots {figures.running}/{figures.slots} busy", f"{figures.waiting} waiting"]
        if status.state != "ok":
            parts.append(f"{status.stage or status.state} {status.progress:.0%}")
        elif rate:
            parts.append(f"{rate:.1f} tokens/s")
        else:
            parts.append("reading prompts" if figures.running else "idle")
        if figures.prompt_tokens:
            parts.append(f"cache hits {figures.cached_tokens / figures.prompt_tokens:.0%}")
        return " · ".join(parts)

    def _rate(self) -> float:
        """Tokens a second over the window."""
        now, generated = self._clock(), self._figures.generated
        self._seen.append((now, generated))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_SECONDS:
            self._seen.popleft()
        then, before = self._seen[0]
        return (generated - before) / (now - then) if now > then else 0.0


@contextlib.contextmanager
def shown(gauge: Gauge) -> Iterator[Callable[[], None]]:
    """Keep the line on the terminal; what is given back draws it anew. Does nothing without a terminal.

    Everything that is written through :mod:`~mashbox.cli.console` meanwhile appears above it.
    """
    notes = console.notes()
    if not notes.is_terminal or not in_foreground():
        yield lambda: None
        return
    from rich.live import Live
    from rich.text import Text

    drawn = ""

    def draw() -> None:
        nonlocal drawn
        text = gauge.text()
        if text != drawn and in_foreground():
            drawn = text
            line = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
            live.update(line, refresh=True)

    # It is drawn when something has changed, not by a clock of its own: an idle server does nothing.
    live = Live(
        console=notes, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    with live, console.kept(notes):
        draw()
        yield draw


def in_foreground() -> bool:
    """Whether the terminal is ours to draw on: a job in the background must leave the shell's line alone."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
