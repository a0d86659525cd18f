"""The bytes that each token of a vocabulary stands for."""

import json
import re
from typing import Any

from tokenizers import Tokenizer

from mashbox.errors import UnsupportedModel

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
_SPACE = "▁"


def byte_letters() -> dict[str, int]:
    """GPT-2's writing of bytes: printable ones as themselves, the others as the letters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return letters


class TokenBytes:
    """Bytes by token id, made when first asked for; ``added`` tokens stand for their own text.

    ``adds_space`` tells that the tokenizer puts a space before a text, which its decoder takes off.
    """

    def __init__(self, tokenizer: Tokenizer, added: dict[int, str]) -> None:
        decoder = tokenizer.decoder
        steps = _steps({} if decoder is None else json.loads(decoder.__getstate__()))
        kinds = {step["type"] for step in steps}
        self._byte_level = "ByteLevel" in kinds
        if not self._byte_level and not kinds & {"ByteFallback", "Metaspace", "Replace"}:
            raise UnsupportedModel(
                "The tokenizer writes its tokens in a way that mashbox can't turn into text "
                f"(decoder: {', '.join(sorted(kinds)) or 'none'})."
            )
        self.adds_space = any(_takes_space_off(step) for step in steps)
        self._tokenizer = tokenizer
        self._letters = byte_letters()
        self._known = {index: text.encode("utf-8", "replace") for index, text in added.items()}

    def __getitem__(self, token: int) -> bytes:
        known = self._known.get(token)
        if known is None:
            known = self._known[token] = self._make(token)
        return known

    def _make(self, token: int) -> bytes:
        text = self._tokenizer.id_to_token(token) if token >= 0 else None
        if text is None:
            return b""
        if self._byte_level:
            letters = [self._letters.get(letter) for letter in text]
            return text.encode() if None in letters else bytes(byte for byte in letters if byte is not None)
        if match := _BYTE_TOKEN.match(text):
            return bytes([int(match[1], 16)])
        return text.replace(_SPACE, " ").encode()


def _steps(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder.get("type") == "Sequence":
        return [step for inner in decoder["decoders"] for step in _steps(inner)]
    return [decoder] if decoder else []


def _takes_space_off(step: dict[str, Any]) -> bool:
    if step["type"] == "Strip":
        return bool(step.get("start", 0) > 0 and step.get("content") == " ")
    return bool(step["type"] == "Metaspace" and step.get("prepend_scheme", "always") != "never")
