"""Promises about a file (size, SHA-256, git's blob id), and holding downloaded bytes to them."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from mashbox.errors import NoSpace, WrongHash

CHUNK = 1 << 20


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalogue or the hub says about a file; None where it says nothing.

    ``git`` is the id that git gives the content: SHA-1 over ``blob <size>\\0`` and the bytes. The hub
    gives it for files that are not in its large-file store, which have a SHA-256 instead.
    """

    bytes: int | None = None
    sha256: str | None = None
    git: str | None = None


class Digest:
    """Hashes what is written, and compares with the promise at the end."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.done = 0
        self._sha256 = hashlib.sha256()
        # Not for security here: it is the hub's own name for the content.
        self._git = hashlib.sha1(usedforsecurity=False)
        if promise.git is not None and promise.bytes is not None:
            self._git.update(b"blob %d\0" % promise.bytes)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def update(self, chunk: bytes) -> None:
        self.done += len(chunk)
        self._sha256.update(chunk)
        if self.promise.git is not None:
            self._git.update(chunk)

    def read(self, path: Path, seen: Callable[[int], None] | None = None) -> None:
        """Take in what is already in a file; ``seen`` is told the bytes read so far."""
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                self.update(chunk)
                if seen is not None:
                    seen(self.done)

    def fault(self) -> str | None:
        """How the bytes differ from the promise, with expected and actual values; None if they don't."""
        promise = self.promise
        if promise.bytes not in (None, self.done) or promise.sha256 not in (None, self.sha256):
            expected = [f"sha256 {promise.sha256}"] if promise.sha256 else []
            expected += [f"{promise.bytes:,} bytes"] if promise.bytes is not None else []
            return f"expected {', '.join(expected)}; got sha256 {self.sha256}, {self.done:,} bytes"
        if promise.git is not None and promise.bytes is not None and self._git.hexdigest() != promise.git:
            return f"expected git blob {promise.git}; got {self._git.hexdigest()}, sha256 {self.sha256}"
        return None


def wrong(name: str, fault: str, *, deleted: bool = True) -> WrongHash:
    """The error for bytes that are not the promised ones; ``deleted`` by the caller, as they should be."""
    return WrongHash(f"{name}: {fault}.", "The bad bytes were deleted: pull again." if deleted else "")


def check_space(folder: Path, needed: int) -> None:
    """Raise NoSpace unless the disk under ``folder`` has room for ``needed`` bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise NoSpace(
            f"The download needs {size(needed)}, {folder} has {size(free)} free.",
            "Free some space, remove a model (mashbox pull --remove), or move the store with MASHBOX_HOME.",
        )


def size(count: int) -> str:
    """Bytes for people, in decimal units as disks and downloads are sold."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit in ("B", "kB") else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
