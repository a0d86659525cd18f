"""Llama 3 writes several calls as JSON objects one behind the other, with a semicolon or line end between."""

import json
import re

_TAG = re.compile(r"\s*(?:<\|python_tag\|>)?\s*")
_BETWEEN = re.compile(r"[\s;,]*(?:<\|python_tag\|>)?\s*")
_decoder = json.JSONDecoder()


def split_objects(raw: str) -> list[str]:
    """The objects in the text; the text itself as one piece when it is not made of objects only."""
    pieces: list[str] = []
    at = _TAG.match(raw).end()  # type: ignore[union-attr]  # matches the empty text too
    while at < len(raw):
        try:
            _, end = _decoder.raw_decode(raw, at)
        except (ValueError, RecursionError):
            return [raw]
        pieces.append(raw[at:end])
        at = _BETWEEN.match(raw, end).end()  # type: ignore[union-attr]
    return pieces or [raw]
