"""Where a text may be cut: the words of every pre-tokenizer that is said to end there do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from mashbox import store
from mashbox.engine.borders import Cutter, cuts, pieces
from mashbox.engine.pretokenizers import names, pretokenizer
from mashbox.engine.tokenizer import ModelTokenizer
from tests.engine.test_pretokenizers import words
from tests.engine.vocabularies import byte_level, sentencepiece, tokenizer

CUTTING = [name for name in names() if pretokenizer(name).byte_level and cuts(pretokenizer(name).patterns)]

texts = st.text(
    st.one_of(
        st.sampled_from("aZs'lv 1239\n\r\t.,(){}_/-\"=é中\u0301\u00a0\u2167"),
        st.characters(codec="utf-8", max_codepoint=127),
    ),
    max_size=60,
)


def test_the_families_of_the_catalogue_are_cut() -> None:
    assert {"smollm", "qwen2", "qwen35", "llama-bpe", "gpt-4o", "tekken", "dbrx", "lfm2"} <= set(CUTTING)
    assert not {"exaone-moe", "superbpe", "bloom", "gemma4", "viking", "tiny_aya", "chameleon"} & set(CUTTING)


@pytest.mark.parametrize("name", sorted({pretokenizer(name).patterns: name for name in CUTTING}.values()))
@given(text=texts)
def test_no_word_reaches_over_a_border(name: str, text: str) -> None:
    assert [word for piece in pieces(text) for word in words(name, piece)] == words(name, text)


@given(text=texts)
def test_nothing_is_lost(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_most_pieces_are_words_that_come_again() -> None:
    assert pieces("if (a == b1) {\n    self.f(it's);\n") == [
        "if", " (a", " ==", " b", "1", ")", " {\n   ", " self", ".f", "(it's", ");\n",
    ]  # fmt: skip


def bare(**parts: object) -> Tokenizer:
    built = Tokenizer(models.BPE({}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for name, part in parts.items():
        setattr(built, name, part)
    return built


def test_what_is_not_certain_is_not_cut() -> None:
    assert Cutter(bare()).cut("one two") == ["one", " two"]
    for other in (
        bare(normalizer=normalizers.NFC()),
        bare(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
        bare(pre_tokenizer=pre_tokenizers.Metaspace()),
        bare(pre_tokenizer=None),
        Tokenizer(models.WordPiece({"a": 0}, unk_token="a")),
    ):
        assert Cutter(other).cut("one two") is None


def test_tokens_that_are_found_before_words_are_left_whole() -> None:
    built = bare()
    built.add_tokens(
        [AddedToken("\n\n"), AddedToken("<a b>"), AddedToken("word", lstrip=True), AddedToken("    ")]
    )
    cutter = Cutter(built)
    assert cutter.cut("one\n\ntwo  2") == ["one", "\n\ntwo", "  2"]
    assert cutter.cut("one <a b> two") is None and cutter.cut("a word") is None
    # The last of the spaces before a word is cut off.
    assert cutter.cut("one    two") is None


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ModelTokenizer]]:
    """Two tokenizers that cut, one of them around its markers only, and one that does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mashbox.engine.tokenizer._COUNT_MIN", 0)
        vocabularies = [byte_level(add_bos_token=True), byte_level(pre="smollm"), sentencepiece()]
        yield [tokenizer(one, tmp_path_factory.mktemp("tokenizer")) for one in vocabularies]


@given(text=texts, markers=st.lists(st.sampled_from(["<|im_end|>", "<|endoftext|>", "<think>"]), max_size=2))
def test_a_count_is_the_number_of_ids(counting: list[ModelTokenizer], text: str, markers: list[str]) -> None:
    whole = "".join([*markers[:1], text, *markers[1:], text, "hello world"])
    for model in counting:
        assert model.count_text(whole) == len(model.encode_text(whole, specials=True))
    assert counting[0].count_text("") == 1


def test_a_long_text_is_encoded_by_its_different_words(counting: list[ModelTokenizer]) -> None:
    model = counting[0]
    seen: list[int] = []
    library = model._tokenizer

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

        def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
            seen.append(len(texts))
            return library.encode_batch_fast(texts, **options)

    model._tokenizer = Watched()  # type: ignore[assignment]
    try:
        assert model.count_text("hello world, " * 1000) == len(
            model.encode_text("hello world, " * 1000, specials=True)
        )
    finally:
        model._tokenizer = library
    assert seen[0] < 6


@pytest.mark.real
def test_the_starter_counts_as_it_encodes(model_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_HOME", str(model_home))
    model = ModelTokenizer.load(store.find("smollm2-135m").tokenizer)
    docs = Path(__file__).parent.parent.parent / "docs"
    text = "".join(path.read_text() for path in sorted(docs.glob("*.md")))
    assert model._cutter.cut(text) is not None
    assert model.count_text(text) == len(model.encode_text(text, specials=True))
