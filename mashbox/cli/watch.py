"""Notices, while a server runs, that its weights were changed on disk or that its worker was restarted."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from mashbox.cli import console
from mashbox.cli.loading import Loading, check

POLL_SECONDS = 2.0

DRAWS = 4
"""Of the status line, at each look."""


class Files:
    """Files as they were when the server started."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._marks = {path: _mark(path) for path in paths}

    def changes(self) -> list[str]:
        """What has happened since the last call, in words, each thing once."""
        news = []
        for path, before in self._marks.items():
            now = _mark(path)
            if now == before:
                continue
            self._marks[path] = now
            news.append(f"{path} is gone." if now is None else f"{path} was changed on disk.")
        return news


def _mark(path: Path) -> tuple[int, int, int] | None:
    """What tells one state of a file from another; None when it is not there."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


async def watch(engine: Loading, files: Files, draw: Callable[[], None] = lambda: None) -> None:
    """Warn, one line a piece of news; never returns. Raises ModelError when the engine fails for good.

    ``draw`` is called at shorter steps.
    """
    restarts = engine.status().worker_restarts
    while True:
        for _ in range(DRAWS):
            await asyncio.sleep(POLL_SECONDS / DRAWS)
            draw()
        check(engine)
        for news in files.changes():
            console.warn(f"{news} This server goes on with what it has loaded; restart it to be sure.")
        status = engine.status()
        if status.worker_restarts != restarts:
            restarts = status.worker_restarts
            console.warn(f"The worker had a fault and was started again (restart {restarts}).")
