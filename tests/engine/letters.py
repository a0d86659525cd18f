"""A vocabulary of the 256 bytes and some control tokens, in the shape of a real tokenizer's folder."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END = "<|end_of_answer|>"


class Letters:
    """``markers`` are ids by text; ``end`` ends an answer."""

    def __init__(self, markers: Sequence[str] = ()) -> None:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        self.tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.tokenizer.decoder = decoders.ByteLevel()
        self.tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (END, *markers)])
        self.end = self._id(END)
        self.markers = {text: self._id(text) for text in markers}
        self.size = self.tokenizer.get_vocab_size()

    def save(self, folder: Path) -> Path:
        """Write ``tokenizer.json`` there; the folder."""
        self.tokenizer.save(str(folder / "tokenizer.json"))
        return folder

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def _id(self, text: str) -> int:
        index = self.tokenizer.token_to_id(text)
        assert index is not None
        return index
