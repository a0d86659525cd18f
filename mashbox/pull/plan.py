"""What is to be fetched: the files of one model, from one source."""

import re
from pathlib import Path
from typing import Literal

import msgspec

from mashbox.pull.verify import Promise

Format = Literal["gguf", "safetensors"]

SPLIT = re.compile(r"^(?P<stem>.*)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf$")
"""How llama.cpp names the parts of a split GGUF."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its path below the model's folder, where it comes from, and what it must be.

    ``headers`` go with the request for ``url``, which is empty where the source is no address. ``cached``
    is a copy that another program keeps on this machine.
    """

    path: str
    promise: Promise
    url: str = ""
    headers: dict[str, str] = {}
    cached: Path | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All files of one model, of a GGUF the weights first; ``source`` in words goes into the manifest."""

    format: Format
    files: list[Wanted]
    source: str


def split_set(name: str) -> list[str]:
    """All parts of the split GGUF that ``name`` belongs to, in order; ``name`` alone if it is whole."""
    match = SPLIT.match(name)
    if match is None:
        return [name]
    parts = int(match["parts"])
    return [f"{match['stem']}-{part:05}-of-{parts:05}.gguf" for part in range(1, parts + 1)]
