"""Reads ``config.toml``: tables of settings, each value with the words that name its place in the file."""

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mashbox.errors import UsageError

Placed = dict[str, tuple[Any, str]]
"""Values by the names of their settings, each with its place."""


def read(path: Path, tables: Mapping[str, Collection[str]]) -> dict[str, Placed]:
    """The tables of the file that are there; all of them, if there is no file, are missing.

    ``tables`` are the names that each may hold; ``-`` in a name counts as ``_``. Raises UsageError: the file
    can't be read, is no TOML, or holds what it may not.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"The config file {path} can't be read: {problem}.") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UsageError(f"{path}: {problem}.", "It must be TOML.") from None
    found: dict[str, Placed] = {}
    for key, table in document.items():
        if key not in tables:
            known = " and ".join(f"[{name}]" for name in tables)
            raise UsageError(f"{_place(path, text, key)}: unknown.", f"Settings stand in the tables {known}.")
        if not isinstance(table, dict):
            raise UsageError(
                f"{_place(path, text, key)}: must be a table.", f"Write [{key}] above the settings."
            )
        found[key] = _of_table(path, text, table, tables[key])
    return found


def _of_table(path: Path, text: str, table: Mapping[str, Any], names: Collection[str]) -> Placed:
    found = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in names:
            raise UsageError(f"{_place(path, text, key)}: unknown setting.", _nearest(name, names))
        found[name] = (value, _place(path, text, key))
    return found


def _nearest(name: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]}?" if close else f"Allowed: {', '.join(names)}."


def _place(path: Path, text: str, key: str) -> str:
    """``FILE line N, key``; tomllib keeps no positions, so the line is looked for."""
    wanted = re.compile(rf"""\s*\[?\s*([a-z]+\s*\.\s*)?["']?{re.escape(key)}["']?\s*[]=.]""")
    for number, line in enumerate(text.splitlines(), start=1):
        if wanted.match(line):
            return f"{path} line {number}, {key}"
    return f"{path}, {key}"
