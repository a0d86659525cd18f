"""``mashbox pull``: fetch a model, list the catalogue and what is here, remove."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mashbox.cli import console
from mashbox.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from mashbox.catalog import ModelSpec
    from mashbox.pull.progress import Progress
    from mashbox.store import LocalModel

EPILOG = "Example: mashbox pull smollm2-135m, or: mashbox pull --list"

LINE_STEP = 0.1
"""Without a terminal, a line for each such share of the whole download."""

LINE_SECONDS = 15.0
"""... and at the latest after this long."""


def pull(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A catalogue id, org/repo, org/repo:file.gguf, or a local path. Default: the starter.",
            show_default=False,
        ),
    ] = None,
    list_models: Annotated[
        bool, typer.Option("--list", help="Show the catalogue, what is here, and what fits this machine.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print an array of objects.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the model, and unfinished downloads of it.")
    ] = False,
) -> None:
    """Fetch a model, so that it can be served.

    An interrupted download goes on where it stopped; every file is held to its size and SHA-256. The path
    of the weights is printed. A local path is not copied: the model is served from where it lies.
    """
    if list_models and (model is not None or remove):
        raise UsageError("--list takes no MODEL and no --remove.", "Use one at a time.")
    if as_json and not list_models:
        raise UsageError("--json goes with --list.", "Try: mashbox pull --list --json")
    if list_models:
        _list(as_json=as_json)
    elif remove:
        _remove(model)
    else:
        _fetch(model)


def _fetch(model: str | None) -> None:
    from mashbox import catalog
    from mashbox.pull import ensure

    name = model or catalog.load().starter
    try:
        with shown() as progress:
            found = ensure(name, progress, repair=True)
    except KeyboardInterrupt:
        console.note("Interrupted. What is here already is kept: pull again to go on.")
        raise
    console.note(f"{found.id} is here ({_size(found.bytes)}). Serve it: mashbox run {name}")
    console.output().print(str(found.weights), markup=False, soft_wrap=True)


def _remove(model: str | None) -> None:
    from mashbox import store

    if model is None:
        raise UsageError("--remove needs the name of a model.", "See what is here: mashbox pull --list")
    freed = store.remove(model)
    console.note(f"Removed {model}, {_size(freed)} freed.")


def _list(*, as_json: bool) -> None:
    rows = overview()
    if as_json:
        import msgspec

        console.output().print(
            msgspec.json.format(msgspec.json.encode(rows), indent=2).decode(), markup=False, soft_wrap=True
        )
        return
    out = console.output()
    head, *body = table(rows, out.width if out.is_terminal else None)
    out.print(head, style="bold", markup=False, soft_wrap=True)
    for line in body:
        out.print(line, markup=False, soft_wrap=True)
    if not all(row["tried"] for row in rows):
        console.note("Tried: no means that the entry was written from public sources and not run by us yet.")


def overview() -> list[dict[str, Any]]:
    """What ``--list`` shows, one object a model: the catalogue, then what else is here."""
    from mashbox import catalog, store
    from mashbox.memory import available_memory

    known = catalog.load()
    models = store.installed()
    here = {model.spec.id: model for model in models if model.spec is not None}
    available = available_memory()
    listed = [
        {
            **_facts(spec, here.get(spec.id)),
            "fits": catalog.memory_need(spec) <= available,
            "starter": spec.id == known.starter,
        }
        for spec in known.models.values()
    ]
    return listed + [_unlisted(model) for model in models if model.spec is None]


def _facts(spec: "ModelSpec", local: "LocalModel | None") -> dict[str, Any]:
    from mashbox import catalog

    return {
        "id": spec.id,
        "title": spec.title,
        "family": spec.family,
        "format": spec.format,
        "parameters": spec.parameters,
        "active_parameters": spec.active,
        "quant": spec.quant,
        "bpw": spec.bits_per_weight,
        "bytes": local.bytes if local else spec.bytes,
        "context": spec.context,
        "licence": spec.licence,
        "chat": spec.chat != "none",
        "tools": spec.tools,
        "thinking": spec.thinking,
        "memory_bytes": catalog.memory_need(spec),
        "fits": None,
        "here": local is not None,
        "path": str(local.weights) if local else None,
        "tried": spec.tried,
        "starter": False,
        "note": spec.note,
    }


def _unlisted(model: "LocalModel") -> dict[str, Any]:
    """A model that is here but not in the catalogue: what is not known is null."""
    unknown = (
        "family",
        "parameters",
        "active_parameters",
        "quant",
        "bpw",
        "context",
        "licence",
        "chat",
        "tools",
    )
    return {
        "id": model.id,
        "title": model.source,
        **dict.fromkeys(unknown),
        "format": model.format,
        "bytes": model.bytes,
        "thinking": None,
        "memory_bytes": None,
        "fits": None,
        "here": True,
        "path": str(model.weights),
        "tried": False,
        "starter": False,
        "note": "",
    }


_HEADINGS = ("id", "params", "quant", "size", "context", "here", "fits", "tried", "licence")
_NUMBERS = ("params", "size", "context")


def table(rows: list[dict[str, Any]], width: int | None) -> list[str]:
    """A heading and a line a model; with ``width`` the licence, at the end, is cut to fit."""
    cells = [
        (
            row["id"],
            _parameters(row["parameters"], row["active_parameters"]),
            row["quant"] or "?",
            _size(row["bytes"]) if row["bytes"] else "?",
            f"{row['context']:,}" if row["context"] else "?",
            *(_yes(row[field]) for field in ("here", "fits", "tried")),
            row["licence"] or "?",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (_HEADINGS, *cells)) for column in range(len(_HEADINGS))]
    lines = []
    for line in (_HEADINGS, *cells):
        sides = zip(_HEADINGS, line, widths, strict=True)
        text = " ".join(
            cell.rjust(size) if heading in _NUMBERS else cell.ljust(size) for heading, cell, size in sides
        ).rstrip()
        lines.append(text if width is None or len(text) <= width else text[: width - 1] + "…")
    return lines


def _yes(value: bool | None) -> str:
    return "?" if value is None else "yes" if value else "no"


def _parameters(total: int | None, active: int | None) -> str:
    if total is None:
        return "?"
    return f"{_count(total)}-A{_count(active)}" if active else _count(total)


def _count(number: int) -> str:
    if number < 1_000_000_000:
        return f"{number / 1e6:.0f}M"
    return f"{number / 1e9:.1f}".removesuffix(".0") + "B"


def _size(count: int) -> str:
    from mashbox.pull.verify import size

    return size(count)


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

    def plan(self, files: dict[str, int | None]) -> None:
        self._sum.plan(files)
        if len(files) > 1:
            self._all = self._bars.add_task(f"All {len(files)} files", total=self._sum.total)

    def update(self, file: str, done: int, total: int | None) -> None:
        self._sum.update(file, done, total)
        task = self._tasks.get(file)
        if task is None:
            task = self._tasks[file] = self._bars.add_task(Path(file).name, total=total)
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

    def plan(self, files: dict[str, int | None]) -> None:
        self._sum.plan(files)
        self._step = 0
        count = f"{len(files)} files" if len(files) > 1 else next(iter(files), "")
        total = self._sum.total
        console.note(f"Fetching {count}" + (f", {_size(total)}" if total else ""))

    def update(self, file: str, done: int, total: int | None) -> None:
        self._sum.update(file, done, total)
        whole = self._sum.total
        step = int(self._sum.done / whole / LINE_STEP) if whole else 0
        if step > self._step or time.monotonic() - self._said > LINE_SECONDS:
            share = f"{100 * self._sum.done // whole} % of {_size(whole)}" if whole else _size(self._sum.done)
            console.note(f"{Path(file).name}: {share}")
            self._step, self._said = step, time.monotonic()

    def note(self, text: str) -> None:
        console.note(text)
