"""Token ids to text, one token at a time."""

import codecs
from collections.abc import Iterable

from mashbox.engine.tokenizer import ModelTokenizer


class Detokenizer:
    """The text of an answer as its tokens come.

    The texts pushed out join to what decoding all tokens at once gives. Bytes of a character that is not
    whole yet are held back, and dropped if the rest never comes; bytes that can't become a character are
    one U+FFFD. ``markers`` keeps the text of control tokens, which otherwise have none.
    ``answer`` takes off the space that some tokenizers put before a text's first word.
    """

    def __init__(self, tokenizer: ModelTokenizer, *, markers: bool = False, answer: bool = False) -> None:
        self._tokenizer = tokenizer
        self._markers = markers
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = answer and tokenizer.adds_space

    def push(self, token: int) -> str:
        """The text that this token completes; may be empty."""
        control = self._tokenizer.is_control(token)
        if control and not self._markers:
            return ""
        text = self._decoder.decode(self._tokenizer.token_bytes(token))
        if self._at_start and text and not control:
            self._at_start = False
            return text.removeprefix(" ")
        return text


def decode(tokenizer: ModelTokenizer, tokens: Iterable[int], *, markers: bool = False) -> str:
    """The text of all tokens at once, as a :class:`Detokenizer` gives it."""
    detokenizer = Detokenizer(tokenizer, markers=markers)
    return "".join([detokenizer.push(token) for token in tokens])
