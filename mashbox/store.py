"""The local store: models that are here and whole, one folder each below the cache.

A folder holds the model's files (or only refers to them, for a model pulled from a local path), for a GGUF
the tokenizer made from it, and ``manifest.json``, which is written last and by renaming: a folder without
one is an unfinished pull and is never used. Files are known by size, modification time and SHA-256, so
that a later change is noticed.
"""

import contextlib
import datetime
import difflib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from mashbox import catalog
from mashbox.catalog import ModelSpec
from mashbox.errors import BadWeights, PullError, UnknownModel
from mashbox.paths import models_dir

if TYPE_CHECKING:
    from filelock import BaseFileLock

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"

Format = Literal["gguf", "safetensors"]


class LocalFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a model on this machine; ``mtime_ns`` is its modification time when it was checked."""

    path: Path
    bytes: int
    sha256: str | None = None
    mtime_ns: int = 0


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is here and can be served.

    ``weights`` is the GGUF file (the first part of a split one) or the folder of safetensors.
    ``tokenizer`` is a folder with ``tokenizer.json``, ``tokenizer_config.json`` and, for chat models,
    ``chat_template.jinja``. ``spec`` is what the catalogue knows (None: not in it), ``source`` says in
    words where the files came from.
    """

    id: str
    format: Format
    weights: Path
    files: list[LocalFile]
    tokenizer: Path
    spec: ModelSpec | None
    source: str

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """What a user's word for a model means, and the folder of the store that is its own."""

    id: str
    slug: str
    spec: ModelSpec | None = None
    repo: str | None = None
    file: str | None = None
    path: Path | None = None

    @property
    def folder(self) -> Path:
        return models_dir() / self.slug


class _File(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    bytes: int
    mtime_ns: int
    sha256: str | None = None


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest.json``: paths inside the folder are relative, others absolute."""

    version: Literal[1] = 1
    id: str
    format: Format
    weights: str
    tokenizer: str
    files: list[_File]
    source: str
    pulled: str


_HUB_NAME = re.compile(r"^([\w.-]+/[\w.-]+)(?::(.+))?$", re.ASCII)


def identify(name: str) -> Name:
    """What ``name`` means: a catalogue id, ``org/repo[:file.gguf]``, or a local path.

    Raises UnknownModel, with the nearest names that exist.
    """
    known = catalog.load().models.get(name)
    if known is not None:
        return Name(id=name, slug=name, spec=known)
    path = Path(name).expanduser()
    if _is_model_path(path):
        return _local_name(path)
    hub = _HUB_NAME.match(name)
    if hub and not name.startswith((".", "~")):
        repo, file = hub[1], hub[2]
        return Name(id=name, slug=_slug(name), repo=repo, file=file)
    return _installed_name(name)


def lookup(name: str) -> LocalModel | None:
    """The model if it is here, None if it is not; raises BadWeights when its files have changed."""
    wanted = identify(name)
    manifest = _read_manifest(wanted.folder)
    if manifest is None:
        return None
    model = _model(manifest, wanted.folder)
    return check(model, wanted.folder)


def find(name: str) -> LocalModel:
    """The model, which must be here. Raises UnknownModel (not here, or no such name) or BadWeights."""
    model = lookup(name)
    if model is None:
        raise UnknownModel(f"The model {name!r} is not on this machine.", f"Fetch it: mashbox pull {name}")
    return model


def installed() -> list[LocalModel]:
    """Every model that is here, by id. Files are not looked at, see :func:`find`."""
    models = [_model(manifest, folder) for folder, manifest in _manifests()]
    return sorted(models, key=lambda model: model.id)


def remove(name: str) -> int:
    """Delete what the store holds of a model, unfinished downloads too; returns the bytes freed.

    Files of a model that was pulled from a local path stay where they are. Raises UnknownModel, or
    PullError while another process is pulling the model.
    """
    wanted = identify(name)
    if not wanted.folder.is_dir():
        raise UnknownModel(f"The model {name!r} is not on this machine.", "See: mashbox pull --list")
    from filelock import Timeout

    try:
        held = lock(wanted).acquire(timeout=0)
    except Timeout as error:
        raise PullError(f"Another process is pulling {wanted.id}.", "Stop it first, or wait.") from error
    with held:
        freed = sum(path.stat().st_size for path in wanted.folder.rglob("*") if path.is_file())
        # The manifest goes first: a removal that is cut short must not leave a model that looks whole.
        (wanted.folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(wanted.folder)
    return freed


def lock(name: Name) -> "BaseFileLock":
    """Held by whoever writes the model's folder, in whichever process."""
    from filelock import FileLock

    locks = models_dir() / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{name.slug}.lock")


def add(
    name: Name,
    *,
    format: Format,
    weights: Path,
    files: Iterable[tuple[Path, str | None]],
    tokenizer: Path,
    source: str,
) -> LocalModel:
    """Record a model whose ``files`` (path, SHA-256 where known) are whole and in place."""
    folder = name.folder
    entries = [_file(path, digest, folder) for path, digest in files]
    manifest = _Manifest(
        id=name.id,
        format=format,
        weights=_inside(weights, folder),
        tokenizer=_inside(tokenizer, folder),
        files=entries,
        source=source,
        pulled=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    _write_manifest(manifest, folder)
    return _model(manifest, folder)


def check(model: LocalModel, folder: Path) -> LocalModel:
    """``model`` if its files are those that were recorded; else raises BadWeights.

    A file whose time alone differs (a copied cache) is hashed once and recorded anew when it is equal.
    """
    touched = False
    for file in model.files:
        try:
            stat = file.path.stat()
        except OSError as error:
            raise BadWeights(f"{file.path} is gone ({error.strerror}).", _again(model)) from error
        if stat.st_size != file.bytes:
            what = f"{file.path} has {stat.st_size:,} bytes, {file.bytes:,} when it was pulled."
            raise BadWeights(what, _again(model))
        if stat.st_mtime_ns != file.mtime_ns:
            if file.sha256 is None or sha256_of(file.path) != file.sha256:
                raise BadWeights(f"{file.path} has changed since it was pulled.", _again(model))
            touched = True
    if not (model.tokenizer / "tokenizer.json").is_file():
        raise BadWeights(f"{model.tokenizer / 'tokenizer.json'} is gone.", _again(model))
    if touched:
        manifest = _read_manifest(folder)
        if manifest is not None:
            files = [_file(file.path, file.sha256, folder) for file in model.files]
            _write_manifest(msgspec.structs.replace(manifest, files=files), folder)
            return msgspec.structs.replace(model, files=[_local_file(file, folder) for file in files])
    return model


def sha256_of(path: Path, seen: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file in hex; ``seen`` is told the number of bytes read so far."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            done += len(chunk)
            if seen is not None:
                seen(done)
    return digest.hexdigest()


def _again(model: LocalModel) -> str:
    outside = model.source.startswith("local ")
    return f"Pull it again: mashbox pull {model.weights if outside else model.id}"


def _is_model_path(path: Path) -> bool:
    if path.suffix == ".gguf" and path.is_file():
        return True
    if not path.is_dir():
        return False
    return any(path.glob("*.safetensors")) or any(path.glob("*.gguf"))


def _local_name(path: Path) -> Name:
    # Not resolved: the hub's cache links names that end in .gguf to files that do not.
    path = Path(os.path.abspath(path))  # noqa: PTH100
    plain = path.stem if path.is_file() else path.name
    return Name(id=plain, slug=_slug(str(path), plain), path=path)


def _installed_name(name: str) -> Name:
    """A model that is here under an id which is neither in the catalogue nor a hub's name."""
    found = [(folder, manifest) for folder, manifest in _manifests() if manifest.id == name]
    if not found:
        raise _unknown(name)
    if len(found) > 1:
        paths = ", ".join(manifest.weights for _, manifest in found)
        raise UnknownModel(f"{len(found)} models here are called {name!r}.", f"Name one by its path: {paths}")
    folder, manifest = found[0]
    own = Path(manifest.weights)
    return Name(id=name, slug=folder.name, path=own if own.is_absolute() else None)


def _slug(key: str, readable: str | None = None) -> str:
    """A folder name of its own for ``key``: readable, and unique by a piece of its hash."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "--", readable or key).strip("-.")[:80]
    return f"{text}--{hashlib.sha256(key.encode()).hexdigest()[:10]}"


def _unknown(name: str) -> UnknownModel:
    if name.startswith((".", "/", "~")) or name.endswith(".gguf"):
        is_other = Path(name).expanduser().is_file()
        said = f"{name!r} is no model's file." if is_other else f"There is no model at {name!r}."
        return UnknownModel(said, "Name a .gguf file, or a folder of safetensors.")
    names = {*catalog.load().models, *(model.id for model in installed())}
    near = difflib.get_close_matches(name.lower(), sorted(names), n=3, cutoff=0.5)
    *others, last = near or [""]
    hint = (
        f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}?"
        if near
        else "See: mashbox pull --list"
    )
    return UnknownModel(f"There is no model {name!r}.", hint)


def _manifests() -> list[tuple[Path, _Manifest]]:
    """Every folder with its manifest. One that is damaged is told when its model is asked for."""
    root, found = models_dir(), []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []:
        with contextlib.suppress(BadWeights):
            manifest = _read_manifest(folder)
            if manifest is not None:
                found.append((folder, manifest))
    return found


def _read_manifest(folder: Path) -> _Manifest | None:
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=_Manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        remedy = f"Delete the folder {folder} and pull the model again."
        raise BadWeights(f"{folder / MANIFEST} is damaged: {error}.", remedy) from error


def _write_manifest(manifest: _Manifest, folder: Path) -> None:
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    temporary = folder / f".{MANIFEST}.{os.getpid()}"
    with temporary.open("wb") as file:
        file.write(text + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / MANIFEST)


def _inside(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _file(path: Path, digest: str | None, folder: Path) -> _File:
    stat = path.stat()
    return _File(path=_inside(path, folder), bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=digest)


def _local_file(file: _File, folder: Path) -> LocalFile:
    # Joining an absolute path gives that path itself.
    return LocalFile(path=folder / file.path, bytes=file.bytes, sha256=file.sha256, mtime_ns=file.mtime_ns)


def _model(manifest: _Manifest, folder: Path) -> LocalModel:
    return LocalModel(
        id=manifest.id,
        format=manifest.format,
        weights=folder / manifest.weights,
        files=[_local_file(file, folder) for file in manifest.files],
        tokenizer=folder / manifest.tokenizer,
        # A local file may happen to be called like an entry: only the entry's own folder is the entry.
        spec=catalog.load().models.get(manifest.id) if folder.name == manifest.id else None,
        source=manifest.source,
    )
