"""Who asks: an API key names a tenant."""

import logging
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from mashbox.errors import UsageError
from mashbox.server import keyfile
from mashbox.server.keyfile import Entry
from mashbox.server.settings import ServerSettings

log = logging.getLogger("mashbox.server")

SETTLED_S = 1.0
"""A file that was changed less long ago could change again without its times telling."""


class Keys(Protocol):
    """Something that knows keys."""

    def verify(self, presented: str) -> str | None:
        """The tenant whose key this is; None when nobody's."""
        ...


def _owner(entries: Iterable[Entry], presented: str) -> str | None:
    # Every key is compared, in constant time, so that the time tells nothing of a match.
    key = presented.encode("utf-8", "surrogateescape")
    found = None
    for entry in entries:
        if entry.matches(key):
            found = entry.owner
    return found


class PlainKeys:
    """Keys given in the clear (``MASHBOX_API_KEY``); each is a tenant of its own."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._entries = [keyfile.make_entry(key, "", keyfile.new_id()) for key in keys]

    def verify(self, presented: str) -> str | None:
        return _owner(self._entries, presented)


class FileKeys:
    """The keys of a key file, as it is at each request: a change counts from the next one on.

    While the file is damaged, unreadable or gone, its last good state stays in force, and the log tells.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: list[Entry] = []
        self._seen: tuple[int, ...] | None = None
        self._trouble = ""
        self._reload()

    def verify(self, presented: str) -> str | None:
        try:
            state = self._signature(self._path.stat())
            changed = state != self._seen or time.time() - state[0] / 1e9 < SETTLED_S
        except OSError:
            changed = True
        if changed:
            self._reload_if_good()
        return _owner(self._entries, presented)

    @staticmethod
    def _signature(state: os.stat_result) -> tuple[int, ...]:
        return state.st_ctime_ns, state.st_mtime_ns, state.st_ino, state.st_dev, state.st_size

    def _reload(self) -> None:
        lines, state = keyfile.load(self._path, log.warning)
        self._entries, self._seen = keyfile.entries_of(lines), self._signature(state)

    def _reload_if_good(self) -> None:
        before = self._entries
        try:
            self._reload()
            trouble = ""
        except UsageError as problem:
            trouble = str(problem)
        if trouble and trouble != self._trouble:
            log.error("%s The keys known before stay valid.", trouble)
        self._trouble = trouble
        if [entry.line() for entry in before] != [entry.line() for entry in self._entries]:
            log.info("the key file was read again; keys: %d", len(self._entries))


class AllKeys:
    """The keys of several sources. Where two hold the same key, the first names its tenant."""

    def __init__(self, sources: Sequence[Keys]) -> None:
        self._sources = sources

    def verify(self, presented: str) -> str | None:
        owners = [source.verify(presented) for source in self._sources]
        return next((owner for owner in owners if owner is not None), None)


def keys_of(settings: ServerSettings) -> Keys | None:
    """What the settings say of keys; None: no key is checked. Raises UsageError for an unusable key file."""
    sources: list[Keys] = []
    if settings.key_file is not None:
        sources.append(FileKeys(settings.key_file))
    if settings.api_keys:
        sources.append(PlainKeys(settings.api_keys))
    return AllKeys(sources) if sources else None
