"""Finds stop strings in a text that comes in pieces."""

from collections.abc import Iterable


class StopFinder:
    """Passes a text on until one of the stop strings is complete in it; ``matched`` is then that string.

    The stop string that is complete first ends the text; of several complete at the same character the
    longest counts, so that no part of one is passed on. Text that may be the beginning of a stop string is
    held back until it is known not to be. However the text is cut into pieces, the outcome is the same.
    Empty stop strings are ignored.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        longest_first = sorted({stop for stop in stops if stop}, key=lambda stop: (-len(stop), stop))
        self._progress = [_Progress(stop) for stop in longest_first]
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """What may be sent now; nothing more after a match."""
        if self.matched is not None:
            return ""
        if not self._progress:
            return text
        whole = self._held + text
        for end, letter in enumerate(text, start=len(self._held) + 1):
            done = [progress.stop for progress in self._progress if progress.step(letter)]
            if done:
                self.matched = done[0]
                self._held = ""
                return whole[: end - len(done[0])]
        sendable = len(whole) - max((progress.length for progress in self._progress), default=0)
        self._held = whole[sendable:]
        return whole[:sendable]

    def flush(self) -> str:
        """What was still held back, once the text has ended."""
        held, self._held = self._held, ""
        return held


class _Progress:
    """How much of one stop string the text so far ends with: Knuth, Morris and Pratt's automaton.

    ``length`` is the longest beginning of the stop string that the text ends with.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0
        self._shorter = [0]
        for letter in stop[1:]:
            self._shorter.append(self._extend(self._shorter[-1], letter))

    def _extend(self, length: int, letter: str) -> int:
        while length and self.stop[length] != letter:
            length = self._shorter[length - 1]
        return length + (self.stop[length] == letter)

    def step(self, letter: str) -> bool:
        """Take the next letter; True when the stop string is complete."""
        self.length = self._extend(self.length, letter)
        if self.length < len(self.stop):
            return False
        self.length = self._shorter[self.length - 1]
        return True
