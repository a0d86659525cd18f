"""Shows how far a download is: bars on a terminal, a line now and then otherwise."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mashbox.cli import console

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from mashbox.pull.progress import Progress

LINE_STEP = 0.1
"""Without a terminal, a line for each such share of the whole download."""

LINE_SECONDS = 15.0
"""... and at the latest after this long."""


def size(count: int) -> str:
    """Bytes for people."""
    from mashbox.pull.verify import size as spoken

    return spoken(count)


@contextlib.contextmanager
def shown() -> "Iterator[Progress]":
    """A progress that is shown on stderr: bars on a terminal, a line now and then otherwise."""
    notes = console.notes()
    if not notes.is_terminal:
        yield _Lines()
        return
    from rich import progress as rich_progress

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=notes, transient=True) as bars, console.kept(notes):
        yield _Bars(bars)


# As in mashbox.pull.progress, which is not imported for this alone.
_FETCHING = "Fetching"


class _Sum:
    """Adds up the files of one download."""

    def __init__(self) -> None:
        self.files: dict[str, int | None] = {}
        self._done: dict[str, int] = {}

    def plan(self, files: dict[str, int | None]) -> None:
        self.files, self._done = dict(files), {}

    def update(self, file: str, done: int, total: int | None) -> None:
        self._done[file] = done
        if total is not None:
            self.files[file] = total

    @property
    def done(self) -> int:
        return sum(self._done.values())

    @property
    def total(self) -> int | None:
        known = [size for size in self.files.values() if size is not None]
        return sum(known) if self.files and len(known) == len(self.files) else None


class _Bars:
    """A bar for the file that is being fetched, and one for all of them when there are several."""

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._sum = _Sum()
        self._tasks: dict[str, TaskID] = {}
        self._all: TaskID | None = None
        self._doing = ""

    def plan(self, files: dict[str, int | None], doing: str = _FETCHING) -> None:
        self._doing = f"{doing} " if doing != _FETCHING else ""
        self._sum.plan(files)
        if len(files) > 1:
            self._all = self._bars.add_task(f"All {len(files)} files", total=self._sum.total)

    def update(self, file: str, done: int, total: int | None) -> None:
        self._sum.update(file, done, total)
        task = self._tasks.get(file)
        if task is None:
            task = self._tasks[file] = self._bars.add_task(self._doing + Path(file).name, total=total)
        self._bars.update(task, completed=done, total=total)
        if self._all is not None:
            self._bars.update(self._all, completed=self._sum.done, total=self._sum.total)
            # Of dozens of files only the one at work is worth a line.
            self._bars.update(task, visible=done != total)

    def note(self, text: str) -> None:
        self._bars.console.print(text, markup=False)


class _Lines:
    """A line for each tenth of the whole, and at the latest after a while."""

    def __init__(self) -> None:
        self._sum = _Sum()
        self._step = 0
        self._said = time.monotonic()

    def plan(self, files: dict[str, int | None], doing: str = _FETCHING) -> None:
        self._sum.plan(files)
        self._step = 0
        count = f"{len(files)} files" if len(files) > 1 else next(iter(files), "")
        total = self._sum.total
        console.note(f"{doing} {count}" + (f", {size(total)}" if total else ""))

    def update(self, file: str, done: int, total: int | None) -> None:
        self._sum.update(file, done, total)
        whole = self._sum.total
        step = int(self._sum.done / whole / LINE_STEP) if whole else 0
        if step > self._step or time.monotonic() - self._said > LINE_SECONDS:
            share = f"{100 * self._sum.done // whole} % of {size(whole)}" if whole else size(self._sum.done)
            console.note(f"{Path(file).name}: {share}")
            self._step, self._said = step, time.monotonic()

    def note(self, text: str) -> None:
        console.note(text)
