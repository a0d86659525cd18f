"""Shows how far a model is loaded: a bar on a terminal, a line at each stage otherwise."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Protocol

from mashbox.cli import console
from mashbox.engine.engine import EngineStatus
from mashbox.engine.wire import Failed
from mashbox.errors import DoesNotFit, ModelError

POLL_SECONDS = 0.1
LINE_STEP = 0.25
"""Without a terminal, a line for each such share of a stage."""


class Loading(Protocol):
    """What is asked of the engine here."""

    @property
    def failure(self) -> Failed | None: ...

    def status(self) -> EngineStatus: ...


class Show(Protocol):
    """Shows a status."""

    def __call__(self, status: EngineStatus, /) -> None: ...


async def until_ready(engine: Loading) -> None:
    """Show the progress until the engine is ready. Raises ModelError when it never will be."""
    with _display() as show:
        while (status := engine.status()).state != "ok":
            check(engine)
            show(status)
            await asyncio.sleep(POLL_SECONDS)


def check(engine: Loading) -> None:
    """Raise what made the engine fail for good, if it did."""
    if engine.status().state != "failed":
        return
    failure = engine.failure
    if failure is None:
        raise ModelError("The model could not be loaded.", "Run with --debug to see why.")
    kind = DoesNotFit if failure.kind == "memory" else ModelError
    raise kind(failure.message, failure.remedy)


@contextlib.contextmanager
def _display() -> Iterator[Show]:
    notes = console.notes()
    if not notes.is_terminal:
        yield _Lines()
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=notes, transient=True) as bar, console.kept(notes):
        measured = bar.add_task("", total=1.0, visible=False)
        unmeasured = bar.add_task("Starting", total=None)

        def show(status: EngineStatus) -> None:
            # Some stages can't tell how far they are: a bar that stood at 0% would look stuck.
            known = status.progress > 0
            bar.update(measured, description=_stage(status), completed=status.progress, visible=known)
            bar.update(unmeasured, description=_stage(status), visible=not known)

        yield show


class _Lines:
    """Prints a line when the stage changes and when a good piece of it is done."""

    def __init__(self) -> None:
        self._stage = ""
        self._step = 0

    def __call__(self, status: EngineStatus) -> None:
        stage, step = _stage(status), int(status.progress / LINE_STEP)
        if stage != self._stage:
            self._stage, self._step = stage, step
            console.note(f"{stage} ...")
        elif step > self._step:
            self._step = step
            console.note(f"{stage} {status.progress:.0%}")


def _stage(status: EngineStatus) -> str:
    stage = status.stage or "starting"
    return stage[0].upper() + stage[1:]
