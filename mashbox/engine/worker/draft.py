"""Guesses the next tokens of a sequence from what stands in it already: prompt lookup.

Saxena: Prompt Lookup Decoding, 2023; the index is a hash chain, as LZ77 compressors use (RFC 1951, section
4). What is guessed never decides a token: it is drawn all the same, and a guess is kept where it is equal.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

GRAM = 3
"""Tokens in a row that must have come before."""

_CANDIDATES = 8
_LONGEST = 32
_LEAST_TABLE, _MOST_TABLE = 1 << 10, 1 << 17

# Chances by the length of the match: up to which length, and the chance that its next token comes again,
# as long as nothing is known of this sequence.
_BANDS = (3, 6, 15)
_CHANCES = (0.3, 0.5, 0.7, 0.85)
_LEARN = 0.12
_UNLIKELY = 0.02
"""Chance below which no further guess is made."""


class Guess(NamedTuple):
    """A token, and the chance that it and all guesses before it come."""

    token: int
    chance: float


class Drafter:
    """One sequence, prompt and answer. A token costs the same however long the sequence is.

    The guess follows the longest match of the sequence's end that is found among the latest ones, and goes
    on along it for as long as it is right. Each token that comes tells, whether it was guessed or not, how
    much the matches of this sequence are worth.
    """

    def __init__(self, expected: int) -> None:
        """``expected`` tokens, roughly: the size of the table follows it."""
        size = _LEAST_TABLE
        while size < min(expected, _MOST_TABLE):
            size *= 2
        self._tokens = array("i")
        self._before = array("i")
        self._newest = array("i", [-1]) * size
        self._chances = list(_CHANCES)
        self._next = -1
        self._length = 0

    def extend(self, tokens: Iterable[int]) -> None:
        """Take up the prompt, or a part of it."""
        for token in tokens:
            self._note(token)
        self._find()

    def add(self, token: int) -> None:
        """Take up a token of the answer."""
        at = self._next
        right = False
        if at >= 0:
            right = self._tokens[at] == token
            band = _band(self._length)
            self._chances[band] += _LEARN * (right - self._chances[band])
        self._note(token)
        if right:
            self._next, self._length = at + 1, self._length + 1
        else:
            self._find()

    def guesses(self, most: int) -> Sequence[Guess]:
        """The next tokens, ``most`` or fewer; none if the sequence's end never came before."""
        if self._next < 0:
            return ()
        found: list[Guess] = []
        chance = 1.0
        period = len(self._tokens) - self._next
        for ahead in range(most):
            # What lies beyond the end is the guess itself: the sequence repeats.
            token = self._tokens[self._next + ahead] if ahead < period else found[ahead - period].token
            chance *= self._chances[_band(self._length + ahead)]
            if chance < _UNLIKELY:
                break
            found.append(Guess(token, chance))
        return found

    def _note(self, token: int) -> None:
        tokens = self._tokens
        tokens.append(token)
        if len(tokens) < GRAM:
            self._before.append(-1)
            return
        place = hash((tokens[-3], tokens[-2], token)) & (len(self._newest) - 1)
        self._before.append(self._newest[place])
        self._newest[place] = len(tokens) - 1

    def _find(self) -> None:
        """The longest of the latest matches."""
        self._next, self._length = -1, 0
        if not self._tokens:
            return
        at = self._before[-1]
        for _ in range(_CANDIDATES):
            if at < 0:
                return
            length = self._common(at)
            if length >= GRAM and length > self._length:
                self._next, self._length = at + 1, length
                if length == _LONGEST:
                    return
            at = self._before[at]

    def _common(self, at: int) -> int:
        """How many tokens up to ``at`` are those that the sequence ends with; at most _LONGEST."""
        tokens, end = self._tokens, len(self._tokens) - 1
        length = 0
        while length < _LONGEST and length <= at and tokens[at - length] == tokens[end - length]:
            length += 1
        return length


_BAND = [sum(length > most for most in _BANDS) for length in range(_BANDS[-1] + 2)]


def _band(length: int) -> int:
    return _BAND[min(length, len(_BAND) - 1)]
