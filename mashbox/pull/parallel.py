"""Several downloads of one model at once."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from mashbox.pull.progress import FETCHING, Progress

AT_ONCE = 4
"""More connections than this bring nothing from one server, and are not liked there."""

LEAVE_S = 2.0
"""What running downloads get to end when one has failed or the user has stopped them."""

_T = TypeVar("_T")

Job = Callable[[Progress], _T]


class Stopped(Exception):
    """Raised in a download to end it, since another one failed."""


class _Shared:
    """One progress for several threads; telling it something ends a thread whose work is over."""

    def __init__(self, inner: Progress) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def plan(self, files: dict[str, int | None], doing: str = FETCHING) -> None:
        with self._going_on():
            self._inner.plan(files, doing)

    def update(self, file: str, done: int, total: int | None) -> None:
        with self._going_on():
            self._inner.update(file, done, total)

    def note(self, text: str) -> None:
        with self._going_on():
            self._inner.note(text)

    def _going_on(self) -> threading.Lock:
        if self.stopped.is_set():
            raise Stopped
        return self._lock


def run(jobs: Sequence[Job[_T]], progress: Progress, at_once: int = AT_ONCE) -> list[_T]:
    """The jobs' results in their order, at most so many at once.

    Raises what the first job that fails raises; the others end at their next word to the progress. The
    threads are daemons: a download that hangs does not keep the program when its user has left it, and what
    it has written so far counts at the next try.
    """
    if len(jobs) == 1:
        return [jobs[0](progress)]
    shared = _Shared(progress)
    results: dict[int, _T] = {}
    errors: list[BaseException] = []
    waiting = iter(enumerate(jobs))
    turn = threading.Lock()

    def work() -> None:
        while not shared.stopped.is_set():
            with turn:
                number, job = next(waiting, (None, None))
            if number is None or job is None:
                return
            try:
                results[number] = job(shared)
            except Stopped:
                return
            except BaseException as error:
                errors.append(error)
                shared.stopped.set()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive() and not shared.stopped.is_set():
                thread.join(0.2)
    finally:
        shared.stopped.set()
        for thread in threads:
            thread.join(LEAVE_S)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(jobs))]
