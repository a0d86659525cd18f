"""The key file: who may ask, one key a line.

::

    # a comment, or nothing
    sha256:SALT:DIGEST ID CREATED [TENANT]      written by ``mashbox keys``
    KEY [TENANT]                                written by hand; ``mashbox keys`` hashes it at its next change

SALT and DIGEST are hexadecimal, DIGEST is SHA-256 over the salt's bytes and the key's, CREATED a date. A
password would need a slow hash against guessing. Our keys are 256 random bits, which no one can guess at any
speed, and a slow hash would let every wrong key that a stranger sends take a core's time from the server.
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from filelock import FileLock, Timeout

from mashbox.errors import MashboxError, UsageError

T = TypeVar("T")
Warn = Callable[[str], None]

MOST_BYTES = 1 << 20
LOCK_SECONDS = 10.0
HEAD = "# Written by `mashbox keys`. It holds hashes of keys: the keys themselves can't be shown again."

_HASHED = re.compile(
    r"sha256:(?P<salt>[0-9a-f]{32}):(?P<digest>[0-9a-f]{64}) (?P<id>[0-9a-f]{8})"
    r" (?P<created>\d{4}-\d{2}-\d{2})(?: (?P<tenant>\S+))?",
    re.ASCII,
)
_KEY = re.compile(r"[!-~]+")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")

# A plain key's digest lives as long as the process, so that nothing that is shown or logged tells of the key.
_PROCESS_SALT = secrets.token_bytes(16)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One key. ``tenant`` "" is unnamed, ``created`` "" unknown; ``plain``: the file shows the key itself."""

    id: str
    salt: bytes
    digest: bytes
    tenant: str = ""
    created: str = ""
    plain: bool = False

    @property
    def owner(self) -> str:
        """Whose requests the key's are: the tenant's, else the key's own. It tells nothing of the key."""
        return self.tenant or f"key:{self.digest.hex()[:12] if self.plain else self.id}"

    def matches(self, key: bytes) -> bool:
        """Whether this is the key, in a time that does not tell how near it comes."""
        return hmac.compare_digest(self.digest, _digest(self.salt, key))

    def line(self) -> str:
        """The entry as it stands in the file."""
        words = [f"sha256:{self.salt.hex()}:{self.digest.hex()}", self.id, self.created, self.tenant]
        return " ".join(word for word in words if word)


Line = Entry | str
"""A line of the file: an entry, or a comment (or nothing) as it stands."""


def _digest(salt: bytes, key: bytes) -> bytes:
    return hashlib.sha256(salt + key).digest()


def check_key(key: str, what: str) -> None:
    """Raise UsageError for a key that no HTTP header could carry; ``what`` names its place."""
    if not _KEY.fullmatch(key):
        raise UsageError(f"{what}: a key is made of printable ASCII characters without spaces.")


def check_tenant(name: str, what: str = "--tenant") -> None:
    """Raise UsageError for a name that could not stand in the file or in a log line."""
    if not _TENANT.fullmatch(name):
        raise UsageError(
            f"{what}: {name!r} is no name for a tenant.",
            "Use up to 64 letters, digits and . _ @ -, beginning with a letter or a digit.",
        )


def entries_of(lines: Iterable[Line]) -> list[Entry]:
    """The keys among the lines."""
    return [line for line in lines if isinstance(line, Entry)]


def parse(raw: bytes, path: Path) -> list[Line]:
    """The lines of a key file. Raises UsageError: it names the first damaged line, and never shows a key."""
    lines: list[Line] = []
    places: dict[str, int] = {}
    plain: list[tuple[int, str]] = []
    for number, piece in enumerate(raw.split(b"\n"), start=1):
        place = f"{path} line {number}"
        try:
            text = piece.decode().rstrip()
        except UnicodeDecodeError:
            raise UsageError(f"{place} is not UTF-8.", _MEND) from None
        if not text or text.lstrip().startswith("#"):
            lines.append(text)
            continue
        entry = _hashed(text, place) if text.lstrip().startswith("sha256:") else _plain(text, place)
        if (first := places.setdefault(entry.id, number)) != number:
            raise UsageError(f"{place} has the same key as line {first}.", "Remove one of them.")
        if entry.plain:
            plain.append((number, text.split()[0]))
        lines.append(entry)
    hashed = [entry for entry in entries_of(lines) if not entry.plain]
    for number, key in plain:
        if any(entry.matches(key.encode()) for entry in hashed):
            raise UsageError(f"{path} line {number} has the key of another line.", "Remove one of them.")
    while lines and lines[-1] == "":
        lines.pop()
    return lines


_MEND = "Mend or remove the line; the file was left as it is."


def _hashed(text: str, place: str) -> Entry:
    match = _HASHED.fullmatch(text)
    if match is None:
        raise UsageError(f"{place} is a damaged entry.", _MEND)
    tenant = match["tenant"] or ""
    if tenant:
        check_tenant(tenant, place)
    salt, digest = bytes.fromhex(match["salt"]), bytes.fromhex(match["digest"])
    return Entry(id=match["id"], salt=salt, digest=digest, tenant=tenant, created=match["created"])


def _plain(text: str, place: str) -> Entry:
    key, *names = text.split()
    if len(names) > 1:
        raise UsageError(f"{place} has several words.", "Write KEY, or KEY TENANT.")
    check_key(key, place)
    if names:
        check_tenant(names[0], place)
    return Entry(
        id=plain_id(key),
        salt=_PROCESS_SALT,
        digest=_digest(_PROCESS_SALT, key.encode()),
        tenant="".join(names),
        plain=True,
    )


def load(path: Path, warn: Warn) -> tuple[list[Line], os.stat_result]:
    """The lines of the file at ``path``, and its state when they were read.

    A file that others could read is set to mode 0600, and ``warn`` is told. Raises UsageError: missing or
    unreadable, damaged, or one that others could have written keys into.
    """
    raw, state = _read(path, warn)
    return parse(raw, path), state


def _read(path: Path, warn: Warn) -> tuple[bytes, os.stat_result]:
    try:
        # A pipe could be read only once, and might wait for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"The key file {path} is not a regular file.")
        with path.open("rb") as file:
            _keep_private(path, file.fileno(), warn)
            raw = file.read(MOST_BYTES + 1)
            state = os.fstat(file.fileno())
    except OSError as problem:
        remedy = "Make one: mashbox keys add" if isinstance(problem, FileNotFoundError) else ""
        raise UsageError(f"The key file {path} can't be read: {problem.strerror}.", remedy) from None
    if len(raw) > MOST_BYTES:
        raise UsageError(f"{path} is too large to be a key file.")
    return raw, state


def _keep_private(path: Path, descriptor: int, warn: Warn) -> None:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & 0o022:
        raise UsageError(
            f"Others can write to the key file {path} (mode {mode:04o}).",
            f"Look whether its keys are yours, then: chmod 600 {path}",
        )
    if mode & 0o077:
        try:
            os.fchmod(descriptor, 0o600)
        except OSError as problem:
            raise UsageError(
                f"Others can read the key file {path} (mode {mode:04o}): {problem.strerror}.",
                f"Let its owner do: chmod 600 {path}",
            ) from None
        warn(f"Others could read the key file {path} (mode {mode:04o}); its mode is 0600 now.")


def change(path: Path, edit: Callable[[list[Line]], T], warn: Warn) -> T:
    """Replace the file's lines by what ``edit`` makes of them in place; what it raises leaves the file alone.

    One process at a time, and readers see the old file or the new one. Plain keys are written as hashes. A
    missing file counts as an empty one. Raises UsageError as :func:`load` does, MashboxError when the file
    can't be written.
    """
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_SECONDS, mode=0o600):
            lines: list[Line] = [HEAD]
            state = None
            if path.exists():
                lines, state = load(path, warn)
            plain = _plain_keys(path) if any(entry.plain for entry in entries_of(lines)) else {}
            result = edit(lines)
            lines = [_hash_plain(line, plain) for line in lines]
            _replace(path, "".join(f"{text_of(line)}\n" for line in lines), state)
    except Timeout:
        raise MashboxError(f"Another process holds the key file {path}.", "Try again.") from None
    except OSError as problem:
        raise MashboxError(f"The key file {path} can't be written: {problem.strerror}.") from None
    if plain:
        warn(f"The plain keys of {path} are stored as hashes now, with new ids; they stay valid.")
    return result


def text_of(line: Line) -> str:
    """A line as it stands in the file."""
    return line.line() if isinstance(line, Entry) else line


def _plain_keys(path: Path) -> dict[str, str]:
    """The plain keys of a file by their ids: what was parsed of it has only their hashes."""
    words = [line.split()[0].decode() for line in path.read_bytes().split(b"\n") if line.strip()]
    return {plain_id(word): word for word in words}


def _hash_plain(line: Line, keys: dict[str, str]) -> Line:
    if isinstance(line, Entry) and line.plain:
        if line.id not in keys:
            raise MashboxError("The key file was changed by something else at the same time.", "Try again.")
        return make_entry(keys[line.id], line.tenant, new_id())
    return line


def _replace(path: Path, text: str, before: os.stat_result | None) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            if before is not None and before.st_uid != os.geteuid():
                # The server's own user must still be able to read what root has changed.
                os.fchown(descriptor, before.st_uid, before.st_gid)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_entry(key: str, tenant: str, id: str) -> Entry:
    """The entry of a key, of today, with a salt of its own."""
    salt = secrets.token_bytes(16)
    today = datetime.now(UTC).date().isoformat()
    return Entry(id=id, salt=salt, digest=_digest(salt, key.encode()), tenant=tenant, created=today)


def _new_key() -> str:
    """A key of 256 random bits; the prefix lets scanners for leaked keys know it."""
    return f"mashbox-{secrets.token_hex(32)}"


def add(path: Path, tenant: str, warn: Warn) -> tuple[Entry, str]:
    """Append a new key for ``tenant`` ("": a tenant of its own); returns its entry and the key itself."""
    if tenant:
        check_tenant(tenant)
    key = _new_key()

    def edit(lines: list[Line]) -> Entry:
        taken = {entry.id for entry in entries_of(lines)}
        entry = make_entry(key, tenant, next(id for id in iter(new_id, "") if id not in taken))
        lines.append(entry)
        return entry

    return change(path, edit, warn), key


def plain_id(key: str) -> str:
    """The id of a plain key, the same each time it is read. For its owner's eyes, not for logs."""
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def new_id() -> str:
    """Eight random hexadecimal digits."""
    return secrets.token_hex(4)


def revoke(path: Path, id: str, warn: Warn) -> Entry:
    """Remove a key. Raises UsageError when there is none of that id."""

    def edit(lines: list[Line]) -> Entry:
        return _taken_out(path, lines, id)[1]

    return change(path, edit, warn)


def rotate(path: Path, id: str, warn: Warn) -> tuple[Entry, str]:
    """Replace a key by a new one of the same id and tenant; the old one is void at once."""
    key = _new_key()

    def edit(lines: list[Line]) -> Entry:
        index, old = _taken_out(path, lines, id)
        entry = make_entry(key, old.tenant, old.id)
        lines.insert(index, entry)
        return entry

    return change(path, edit, warn), key


def _taken_out(path: Path, lines: list[Line], id: str) -> tuple[int, Entry]:
    for index, line in enumerate(lines):
        if isinstance(line, Entry) and line.id == id:
            del lines[index]
            return index, line
    raise UsageError(f"{path} has no key {id}.", "See which there are: mashbox keys list")
