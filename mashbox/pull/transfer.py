"""One file over HTTP: resumed, retried, and never accepted unless it is what was promised.

Bytes go to ``<file>.part``; ``<file>.part.json`` says which content they are the beginning of. A server
that answers a range with the whole file, or with another version of it, makes the download start from
zero. An interrupted download leaves both files, and the next one goes on from there.
"""

import email.utils
import hashlib
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
import msgspec

from mashbox.errors import NoNetwork, PullError
from mashbox.pull.plan import Wanted
from mashbox.pull.progress import Progress
from mashbox.pull.verify import Digest, Promise, wrong

PAUSES_S: Sequence[float] = (0.5, 1, 2, 4)
"""Waits between tries that got no new byte; a try that got some starts the row anew."""

LONGEST_PAUSE_S = 60.0
"""A server's Retry-After is heeded up to this."""

BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that are worth another try."""

Explain = Callable[[httpx.Response], PullError]
"""Turns a refusal (a 4xx that is not worth another try) into the error that the user reads."""


class Busy(Exception):
    """The server asks us to come back; ``after`` seconds where it says when."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"the server answers HTTP {status}")
        self.after = _retry_after(headers.get("retry-after"))


def client(cert: str | None = None) -> httpx.Client:
    """A client with the environment's proxies and certificates (or those of the file ``cert``).

    Redirects to another host drop the token.
    """
    return httpx.Client(
        verify=True if cert is None else ssl.create_default_context(cafile=cert),
        follow_redirects=True,
        timeout=httpx.Timeout(30, connect=10),
        headers={"accept-encoding": "identity"},
    )


class Backoff:
    """Counts tries in vain and waits between them; gives up with NoNetwork."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._vain = 0

    def wait(self, problem: Exception, *, advanced: bool) -> None:
        """Sleep before the next try; ``advanced``: the last one brought new bytes."""
        self._vain = 0 if advanced else self._vain + 1
        if self._vain > len(PAUSES_S):
            raise NoNetwork(
                f"{self._what}: {spoken(problem)}.",
                "Check the network or proxy and pull again: what is here already is kept.",
            ) from problem
        asked = problem.after if isinstance(problem, Busy) else None
        pause = PAUSES_S[max(self._vain - 1, 0)] if PAUSES_S else 0
        time.sleep(min(asked, LONGEST_PAUSE_S) if asked is not None else pause)


def spoken(problem: Exception) -> str:
    """An exception of the network in one clause."""
    return str(problem).rstrip(".") or type(problem).__name__


def raise_for(response: httpx.Response, explain: Explain) -> None:
    """Raise Busy for what is worth another try, the source's own error for a refusal."""
    if response.status_code in BUSY:
        raise Busy(response.status_code, response.headers)
    if response.is_error:
        raise explain(response)


def _retry_after(value: str | None) -> float | None:
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """Which content a partial file is the beginning of: equal means that it may be continued.

    ``address`` is a hash of the URL, which may hold a secret.
    """

    address: str
    promise: Promise
    etag: str | None = None


class _Part:
    """The growing file, its digest, and the record of what it is."""

    def __init__(self, wanted: Wanted, folder: Path, progress: Progress) -> None:
        self.wanted = wanted
        self.total = wanted.promise.bytes
        self.target = folder / wanted.path
        self.path = self.target.with_name(self.target.name + ".part")
        self._record = self.target.with_name(self.target.name + ".part.json")
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.etag: str | None = None
        self.digest = Digest(wanted.promise)
        self._file = self.path.open("ab")
        self._adopt(lambda done: progress.update(wanted.path, done, self.total))

    @property
    def done(self) -> int:
        return self.digest.done

    @property
    def hashed(self) -> bool:
        """The content is known by a hash: no other can slip in, whatever the server calls it."""
        return self.wanted.promise.sha256 is not None or self.wanted.promise.git is not None

    def _adopt(self, seen: Callable[[int], None]) -> None:
        """Go on with what an earlier pull left, if it is the beginning of the same content."""
        kept, size = self._recorded(), self.path.stat().st_size
        same = kept is not None and kept == self._content(kept.etag) and (self.hashed or kept.etag)
        if kept is None or not same or size > (self.wanted.promise.bytes or size):
            self.restart(None)
        else:
            self.etag = kept.etag
            self.digest.read(self.path, seen)

    def _content(self, etag: str | None) -> _Content:
        address = hashlib.sha256(self.wanted.url.encode()).hexdigest()
        return _Content(address=address, promise=self.wanted.promise, etag=etag)

    def _recorded(self) -> _Content | None:
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=_Content)
        except (OSError, msgspec.DecodeError):
            return None

    def restart(self, etag: str | None) -> None:
        """Begin at zero with the content that the server calls ``etag``."""
        self._file.truncate(0)
        self.digest = Digest(self.wanted.promise)
        self.etag = None if self.hashed else etag
        self._record.write_bytes(msgspec.json.encode(self._content(self.etag)))

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self.digest.update(chunk)

    def close(self) -> None:
        self._file.close()
        if not self.done:
            self.path.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)

    def accept(self) -> str:
        """Make the part the file if it keeps the promise (returns its SHA-256), else delete it and raise."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        fault = self.digest.fault()
        self._record.unlink(missing_ok=True)
        if fault is not None:
            self.path.unlink()
            raise wrong(self.wanted.path, fault)
        self.path.replace(self.target)
        return self.digest.sha256


def fetch(http: httpx.Client, wanted: Wanted, folder: Path, progress: Progress, explain: Explain) -> str:
    """Download ``wanted`` to its place in ``folder`` and return its SHA-256.

    Raises WrongHash (the bytes are deleted), NoNetwork (they are kept), or what ``explain`` makes of a
    refusal.
    """
    part = _Part(wanted, folder, progress)
    backoff = Backoff(f"{wanted.path} could not be fetched")
    try:
        while True:
            before = part.done
            try:
                whole = _stream(http, part, progress, explain)
            except (httpx.RequestError, Busy) as problem:
                backoff.wait(problem, advanced=part.done > before)
                continue
            # A clean but early end: go on behind it, unless the server has nothing to add.
            if whole or part.done <= before:
                return part.accept()
    finally:
        part.close()


def _stream(http: httpx.Client, part: _Part, progress: Progress, explain: Explain) -> bool:
    """One request; True when the file has all its bytes (or more than it should)."""
    wanted, promised = part.wanted, part.wanted.promise.bytes
    progress.update(wanted.path, part.done, part.total)
    if promised is not None and part.done >= promised:
        return True
    with http.stream("GET", wanted.url, headers=_headers(part)) as response:
        if response.status_code == 416 and promised is not None:
            return True
        if response.status_code == 416:
            part.restart(None)
            raise httpx.RemoteProtocolError("the server has less than it sent before")
        raise_for(response, explain)
        _begin(response, part)
        # In pieces as they come: larger ones would lose what they had gathered when the line breaks.
        for chunk in response.iter_bytes():
            part.write(chunk)
            progress.update(wanted.path, part.done, part.total)
            if promised is not None and part.done > promised:
                return True
    return part.total is None or part.done >= part.total


def _headers(part: _Part) -> dict[str, str]:
    headers = dict(part.wanted.headers)
    if part.done:
        headers["range"] = f"bytes={part.done}-"
        if part.etag is not None and not part.etag.startswith("W/"):
            headers["if-range"] = part.etag
    return headers


def _begin(response: httpx.Response, part: _Part) -> None:
    """Place the part where the answer starts, and note the whole file's size where the answer tells it."""
    etag = response.headers.get("etag")
    if response.status_code == 206:
        start, total = _content_range(response.headers.get("content-range", ""))
        if start != part.done or (part.total is not None and total not in (None, part.total)):
            part.restart(None)
            raise httpx.RemoteProtocolError("the server answered with another range than was asked for")
        return
    encoded = response.headers.get("content-encoding", "identity") != "identity"
    part.restart(etag)
    if part.wanted.promise.bytes is None:
        part.total = None if encoded else _number(response.headers.get("content-length"))


def _content_range(value: str) -> tuple[int | None, int | None]:
    """First byte and whole size of ``bytes 5-9/10``."""
    unit, _, rest = value.partition(" ")
    span, _, total = rest.partition("/")
    return (_number(span.partition("-")[0]) if unit == "bytes" else None), _number(total)


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None
