import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import PreTokenizer

from mashbox.engine.gguf_tokenizer import pre_tokenizer_json
from mashbox.engine.pretokenizers import names, pretokenizer
from mashbox.engine.token_text import byte_letters
from mashbox.errors import UnsupportedModel

LETTERS = byte_letters()


@cache
def cutter(name: str) -> PreTokenizer:
    """The library's pre-tokenizer as the written file makes it."""
    description = json.loads(Tokenizer(models.BPE({}, [])).to_str())
    description["pre_tokenizer"] = pre_tokenizer_json(pretokenizer(name))
    return Tokenizer.from_str(json.dumps(description)).pre_tokenizer


def words(name: str, text: str) -> list[str]:
    pieces = [piece for piece, _ in cutter(name).pre_tokenize_str(text)]
    if not pretokenizer(name).byte_level:
        return pieces
    return [bytes([LETTERS[letter] for letter in piece]).decode() for piece in pieces]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "1234567 it's IT'S", ["1234567", " it", "'s", " IT", "'", "S"]),
        ("gpt-2", "a   b\n\n c", ["a", "  ", " b", "\n\n", " c"]),
        ("smollm", "a12 3", ["a", "1", "2", " ", "3"]),
        ("qwen2", "a1234", ["a", "1", "2", "3", "4"]),
        ("qwen2", " it's IT'S", [" it", "'s", " IT", "'S"]),
        ("qwen2", "x !\n\ny \n z", ["x", " !\n\n", "y", " \n", " z"]),
        ("qwen2", "Ankara'da", ["Ankara", "'d", "a"]),
        ("ufakzeka", "Ankara'da", ["Ankara", "'da"]),
        ("qwen2", "ne\u0301e", ["ne", "\u0301e"]),
        ("qwen35", "ne\u0301e", ["ne\u0301e"]),
        ("seed-coder", "!\n", ["!", "\n"]),
        ("llama-bpe", "1234567", ["123", "456", "7"]),
        ("minicpm5", "1234567", ["123", "456", "7"]),
        ("afmoe", "1234567", ["1", "234", "567"]),
        ("tiny_aya", "1234567", ["1", "234", "567"]),
        ("superbpe", "1234567", ["1", "234", "567"]),
        ("gpt-4o", "camelCase's x", ["camel", "Case's", " x"]),
        ("gpt-4o", "éÉcole", ["é", "École"]),
        ("tekken", "camelCase 12", ["camel", "Case", " ", "1", "2"]),
        ("llama-bpe", "camelCase", ["camelCase"]),
        ("deepseek-v3", "x中文y.com", ["x", "中文", "y", ".com"]),
        ("deepseek-llm", "x1中文\n\ny", ["x", "1", "中文", "\n", "\n", "y"]),
        ("deepseek-coder", "ab 12", ["ab", " ", "1", "2"]),
        ("kimi-k2", "abc中文def", ["abc", "中文", "def"]),
        ("qwen2", "abc中文def", ["abc中文def"]),
        ("falcon", "a+b 12345", ["a", "+", "b", " ", "123", "45"]),
        ("laguna", "a \nb", ["a", " ", "\n", "b"]),
        ("gemma4", "a▁b\n\nc", ["a▁b", "\n\n", "c"]),
        ("jais-2", "a" + " " * 10 + "b", ["a", " " * 8, " ", " b"]),
        ("exaone-moe", "ab cd 1", ["ab cd", " ", "1"]),
        ("bailingmoe", "a!\nb'D", ["a", "!\n", "b", "'D"]),
        ("default", "a, 1234", ["a", ",", " ", "123", "4"]),
    ],
)
def test_words(name: str, text: str, expected: list[str]) -> None:
    assert words(name, text) == expected


@given(st.text(max_size=30), st.sampled_from(names()))
def test_no_text_is_lost(text: str, name: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert "".join(words(name, text)) == text


def test_names_that_share_a_behaviour() -> None:
    assert pretokenizer("llama3") is pretokenizer("llama-bpe") is pretokenizer("lfm2")
    assert pretokenizer("hunyuan") is pretokenizer("qwen2")
    assert pretokenizer("glm4").ignore_merges
    assert not pretokenizer("glm4").add_bos


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="'no-such-cutter'"):
        pretokenizer("no-such-cutter")
