"""Gathers the text of one tool-call region until its closing."""

import re

from mashbox.engine.formats.base import Region

_QUOTES = re.compile(r'"|\\.', re.DOTALL)


class Collector:
    """A region's text from its opening on. Its cost for a piece does not grow with what was gathered."""

    def __init__(self, region: Region, text: str, opening: int) -> None:
        """``text`` starts with the region's opening, of ``opening`` characters."""
        self.region = region
        self.closed = False
        self._settled = [text[:opening]]
        self._open = ""
        self._in_string = False
        self._escaped = False
        self._rest = ""
        self.push(text[opening:])

    def push(self, text: str, *, end_of_text: bool = False) -> None:
        """Add text; afterwards ``closed`` says whether the closing was in it."""
        if self.closed:
            self._rest += text
            return
        self._open += text
        close = self.region.close
        if close and close.absent(self._open):
            self._settle(len(self._open))
            return
        while close and (hit := close.search(self._open, end_of_text=end_of_text)):
            self._settle(hit.start)
            size = hit.end - hit.start
            if hit.pending:
                return
            if not self._in_string:
                self._settled.append(self._open[:size])
                self._rest, self._open = self._open[size:], ""
                self.closed = True
                return
            if not self._open:
                return
            self._settle(max(size, 1))
        self._settle(len(self._open))

    def take(self) -> tuple[str, str]:
        """The region's text, and the text behind it."""
        return "".join(self._settled) + self._open, self._rest

    def _settle(self, size: int) -> None:
        """The first ``size`` characters are part of the region."""
        text, self._open = self._open[:size], self._open[size:]
        if text:
            if self.region.is_json:
                self._follow_strings(text)
            self._settled.append(text)

    def _follow_strings(self, text: str) -> None:
        """Keep track of whether the text so far ends inside a JSON string."""
        for match in _QUOTES.finditer(text, 1 if self._escaped else 0):
            if match[0] == '"':
                self._in_string = not self._in_string
        # Backslashes in pairs are characters; a single one at the end escapes what comes next.
        slashes = len(text) - len(text.rstrip("\\"))
        if slashes == len(text):
            slashes -= self._escaped
        self._escaped = slashes % 2 == 1
