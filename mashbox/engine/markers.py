"""Finds a model's control tokens in text, and keeps those that a client typed from being taken for them.

What a client wrote goes into the chat template with every control token in it wrapped in two code points
that no text holds (lone surrogates). What the template writes itself isn't wrapped, and so only that becomes
control tokens. The wrapping survives a template's string methods (``strip``, ``split`` at a marker); one
half left over alone still parts the text around it. transformers' ``sanitize_control_tokens`` is alike.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Protocol

START, END = "\udc01", "\udc02"
_SURROGATES = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """The text without code points that UTF-8 can't hold."""
    return text if text.isascii() else _SURROGATES.sub("", text)


class ControlToken(Protocol):
    """What is needed of the ``tokenizers`` library's ``AddedToken``."""

    @property
    def content(self) -> str: ...

    @property
    def lstrip(self) -> bool: ...

    @property
    def rstrip(self) -> bool: ...


class Markers:
    """The control tokens of one vocabulary; ``texts`` by id."""

    def __init__(self, tokens: Mapping[int, ControlToken]) -> None:
        self.texts = {index: token.content for index, token in tokens.items()}
        self._ids = {token.content: index for index, token in tokens.items() if token.content}
        self._strips_left = {index for index, token in tokens.items() if token.lstrip}
        self._strips_right = {index for index, token in tokens.items() if token.rstrip}
        self._lengths = sorted({len(text) for text in self._ids}, reverse=True)
        self._beginnings = {text[:length] for text in self._ids for length in range(1, len(text))}
        firsts = "".join(re.escape(first) for first in sorted({text[0] for text in self._ids}))
        self._first = re.compile(f"[{firsts}]" if firsts else "(?!)")

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Each control token in the text as (start, end, id): leftmost first, of several the longest."""
        at = 0
        while match := self._first.search(text, at):
            start = at = match.start()
            at += 1
            for length in self._lengths:
                token = text[start : start + length]
                if (index := self._ids.get(token)) is not None:
                    at = start + len(token)
                    yield start, at, index
                    break

    def wrap(self, value: Any) -> Any:
        """A copy of a client's data with the control tokens in all its strings (keys too) wrapped."""
        if isinstance(value, str):
            return self._wrap_text(value)
        if isinstance(value, Mapping):
            return {self.wrap(key): self.wrap(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.wrap(inner) for inner in value]
        return value

    def _wrap_text(self, text: str) -> str:
        text = without_surrogates(text)
        parts = []
        done = 0
        for start, end, _ in self.find(text):
            parts += [text[done:start], START, text[start:end], END]
            done = end
        # What may be the beginning of a token is parted from whatever the template writes behind it.
        rest = text[done:]
        parts.append(rest + END if self._may_begin_at_end(rest) else rest)
        return "".join(parts)

    def _may_begin_at_end(self, text: str) -> bool:
        longest = min(len(text), self._lengths[0] - 1 if self._lengths else 0)
        return any(text[-length:] in self._beginnings for length in range(1, longest + 1))

    def split(self, rendered: str) -> list[str | int]:
        """Texts and control tokens of a rendered prompt; wrapped control tokens are part of the texts.

        A token that swallows white space beside it does so here.
        """
        pieces: list[str | int] = []
        text: list[str] = []
        done = 0
        for start, end, index in self.find(rendered):
            if rendered[start - 1 : start] == START and rendered[end : end + 1] == END:
                continue
            text.append(rendered[done:start])
            self._close(pieces, text, before=index)
            pieces.append(index)
            done = end
        text.append(rendered[done:])
        self._close(pieces, text, before=None)
        return pieces

    def _close(self, pieces: list[str | int], text: list[str], *, before: int | None) -> None:
        """Append the collected text, if there is any, and empty the collection."""
        whole = without_surrogates("".join(text))
        text.clear()
        if before in self._strips_left:
            whole = whole.rstrip()
        if pieces and pieces[-1] in self._strips_right:
            whole = whole.lstrip()
        if whole:
            pieces.append(whole)

    def broken(self, text: str) -> list[str]:
        """The text cut behind the first letter of every control token in it, so that none is whole."""
        cuts = [0, *(start + 1 for start, _, _ in self.find(text)), len(text)]
        return [text[start:end] for start, end in pairwise(cuts) if end > start]
