"""Progress while a model loads, and the watch over a running server."""

import asyncio
import io
import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from mashbox.cli import console, loading, watch
from mashbox.engine.engine import EngineStatus
from mashbox.engine.wire import Failed
from mashbox.errors import DoesNotFit, ModelError


class Steps:
    """An engine whose status is the next of a list at each look; the last one stays."""

    def __init__(self, *statuses: EngineStatus, failure: Failed | None = None) -> None:
        self.statuses = list(statuses)
        self.failure = failure

    def status(self) -> EngineStatus:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


def at(stage: str, progress: float = 0.0) -> list[EngineStatus]:
    """Twice the same: it is looked at once for its state and once for failure."""
    return [EngineStatus(state="loading", stage=stage, progress=progress)] * 2


READY = EngineStatus(state="ok", progress=1.0)
FAILED = EngineStatus(state="failed")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.001)


def test_without_a_terminal_a_line_at_each_stage(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Steps(
        *at(""), *at("reading", 0.1), *at("reading", 0.2), *at("reading", 0.55), *at("warming up"), READY
    )
    asyncio.run(loading.until_ready(engine))
    assert capsys.readouterr().err == "Starting ...\nReading ...\nReading 55%\nWarming up ...\n"


def test_on_a_terminal_a_stage_without_a_measure_has_no_percentage(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(console, "notes", lambda: terminal)
    for status, bar in ((at("comparing", 0.0), ""), (at("reading", 0.25), "25%")):
        written.truncate(0)
        asyncio.run(loading.until_ready(Steps(*status * 100, READY)))
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue())
        told = [line for line in re.split(r"[\r\n]+", shown) if status[0].stage.title() in line]
        assert told and all(("%" in line) == bool(bar) for line in told)


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (
            Failed(id=None, kind="memory", message="Too big.", remedy="Lower --ctx."),
            DoesNotFit,
            "Too big. Lower",
        ),
        (Failed(id=None, kind="model", message="Unknown."), ModelError, "Unknown."),
        (None, ModelError, "could not be loaded"),
    ],
)
def test_a_failure_is_raised(failure: Failed | None, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        asyncio.run(loading.until_ready(Steps(*at("reading"), FAILED, failure=failure)))


def watched(engine: Steps, files: watch.Files) -> None:
    async def some_time() -> None:
        await asyncio.wait_for(watch.watch(engine, files), 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(some_time())


def test_changed_and_vanished_weights_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, gone, same = (tmp_path / name for name in ("changed", "gone", "same"))
    for path in (changed, gone, same):
        path.write_text("x")
    files = watch.Files([changed, gone, same])
    os.utime(changed, ns=(1, 1))
    gone.unlink()
    watched(Steps(READY), files)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"warning: {changed} was changed on disk.")
    assert second.startswith(f"warning: {gone} is gone.")


def test_a_restart_of_the_worker_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    watched(Steps(READY, READY, EngineStatus(state="ok", worker_restarts=1)), watch.Files([]))
    assert capsys.readouterr().err == "warning: The worker had a fault and was started again (restart 1).\n"


def test_a_worker_that_fails_for_good_ends_the_watch() -> None:
    failure = Failed(id=None, kind="model", message="The file is damaged.")
    with pytest.raises(ModelError, match="damaged"):
        asyncio.run(watch.watch(Steps(READY, FAILED, failure=failure), watch.Files([])))
