"""Places where a text may be cut so that its pieces have the tokens that the whole has.

Most byte-pair vocabularies first cut a text into words by a pattern, and merge within a word only. Where
every word that such a pattern finds must end, seen from the two characters there, the text can be cut: what
stands before cannot reach further, and none of the patterns looks back. Most pieces come again and again.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from mashbox.engine.pretokenizers import GPT2_PATTERN, pretokenizer

_BORDER = re.compile(
    r"(?<=[A-Za-z])(?=[\t\n\r -&(-@\[-`{-~])"  # a letter, then none (an apostrophe may go on with a word)
    r"|(?<=[0-9])(?=[\t\n\r -/:-~])"  # a digit, then none
    r"|(?<=[!-/:-@\[-`{-~])(?=[\t ])"  # a mark, then a space
    r"|(?<=[\t\n\r ])(?= [A-Za-z])"  # white space, then the space that a word begins with
)

# Pieces, each up to a border: the usual ones, which are found several times as fast, then any other.
_LETTERS = r"[A-Za-z]+(?=[\t\n\r -&(-@\[-`{-~])"
_MARK = r"[!-/:-@\[-`{-~]"
_PIECE = re.compile(
    rf" ?{_LETTERS}"
    rf"|[\t\n\r ]+(?= [A-Za-z])"
    rf"|[\t\n\r ]*{_MARK}*(?:{_LETTERS}|[0-9]+(?=[\t\n\r -/:-~]))"
    rf"|[\t\n\r ]*{_MARK}+(?=[\t ])"
    rf"|(?s:.+?)(?:{_BORDER.pattern}|\Z)"
)

_CUTTING = ("gpt-2", "qwen2", "llama3", "gpt-4o", "tekken", "qwen35", "bailingmoe", "ufakzeka")
"""Whose last patterns end every word at such a place."""

_WORDS = frozenset(pretokenizer(name).patterns[-1] for name in _CUTTING)
_BEFORE = frozenset({r"\p{N}", r"\p{N}{1,3}"})
"""Patterns that may come before: they part what those would part too."""


def pieces(text: str) -> list[str]:
    """The text, cut at borders: at nearly all of them."""
    return _PIECE.findall(text)


def cuts(patterns: Sequence[str]) -> bool:
    """Whether these patterns, applied one after the other, end a word at every border."""
    return bool(patterns) and patterns[-1] in _WORDS and _BEFORE.issuperset(patterns[:-1])


class Cutter:
    """Cuts texts for one tokenizer. Its special tokens are no concern, since none is looked for in a text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._cuts = (
            type(tokenizer.model).__name__ == "BPE"
            and tokenizer.normalizer is None
            and cuts(_patterns(_state(tokenizer.pre_tokenizer)))
        )
        # They are found before any word is, and some swallow white space around them.
        self._found_first = [
            token.content
            for token in tokenizer.get_added_tokens_decoder().values()
            if not token.special
            and (token.lstrip or token.rstrip or token.single_word or _may_be_cut(token.content))
        ]

    def cut(self, text: str) -> list[str] | None:
        """Pieces whose tokens are together those of the text; None where that is not certain."""
        if not self._cuts or any(token in text for token in self._found_first):
            return None
        return pieces(text)


def _may_be_cut(token: str) -> bool:
    """Whether a border can lie within it, with a letter behind it at the latest."""
    return any(0 < border.start() < len(token) for border in _BORDER.finditer(f"{token}a"))


def _patterns(step: dict[str, Any]) -> list[str]:
    """The patterns of a pre-tokenizer's description, in their order; "" for a step of another kind."""
    match step:
        case {"type": "Sequence", "pretokenizers": [*steps]}:
            return [pattern for inner in steps for pattern in _patterns(inner)]
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False}:
            return [pattern]
        case {"type": "ByteLevel", "add_prefix_space": False}:
            return [GPT2_PATTERN] if step.get("use_regex", True) else []
        case _:
            return [""]


def _state(part: Any) -> dict[str, Any]:
    state = {} if part is None else json.loads(part.__getstate__())
    return state if isinstance(state, dict) else {}
