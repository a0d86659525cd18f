"""A model by its name: as it lies here, or fetched by one process while others wait."""

import contextlib

from filelock import Timeout

from mashbox import store
from mashbox.errors import BadWeights
from mashbox.pull.progress import Progress, Silent
from mashbox.store import LocalModel

_SILENT = Silent()


def ensure(name: str, progress: Progress = _SILENT, *, repair: bool = False) -> LocalModel:
    """The model of that name, fetched first when it is not here.

    ``repair`` fetches again what is damaged or has changed, which is otherwise BadWeights. Raises
    UnknownModel, a PullError, or a ModelError for files that mashbox can't serve.
    """
    wanted = store.identify(name)
    found = _whole(name, repair=repair)
    if found is not None:
        return found
    lock = store.lock(wanted)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.note(f"Another process is pulling {wanted.id}; waiting for it")
        lock.acquire()
    try:
        # Whoever held the lock may have finished the work.
        found = _whole(name, repair=repair)
        if found is None:
            # Only now: what fetches takes a while to import.
            from mashbox.pull.fetch import fetch

            wanted.folder.mkdir(parents=True, exist_ok=True)
            found = fetch(wanted, progress)
        return found
    finally:
        with contextlib.suppress(OSError):
            # Of a pull that got nothing no trace is left; any other folder is not empty.
            wanted.folder.rmdir()
        lock.release()


def _whole(name: str, *, repair: bool) -> LocalModel | None:
    try:
        return store.lookup(name)
    except BadWeights:
        if repair:
            return None
        raise
