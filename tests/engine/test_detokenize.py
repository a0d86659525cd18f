import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.detokenize import Detokenizer, decode
from mashbox.engine.token_text import byte_letters
from mashbox.engine.tokenizer import ModelTokenizer
from tests.engine import vocabularies


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    return vocabularies.tokenizer(vocabularies.byte_level(), tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    return vocabularies.tokenizer(vocabularies.sentencepiece(), tmp_path_factory.mktemp("pieces"))


def of_bytes(tokenizer: ModelTokenizer, data: bytes) -> list[int]:
    """One token for each byte, as a model may write them."""
    by_byte = {byte: letter for letter, byte in byte_letters().items()}
    ids = {tokenizer.token_bytes(index): index for index in range(tokenizer.vocab_size)}
    assert set(by_byte) == set(range(256))
    return [ids[bytes([byte])] for byte in data]


@given(st.data())
def test_random_tokens_give_in_steps_what_their_bytes_give_at_once(
    letters: ModelTokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, letters.vocab_size - 1), max_size=60))
    whole = b"".join(letters.token_bytes(token) for token in ids if not letters.is_control(token))
    detokenizer = Detokenizer(letters)
    steps = [detokenizer.push(token) for token in ids]
    for cut in range(len(ids) + 1):
        # Every beginning of the steps is what the tokens so far give, so that any split gives the same.
        assert "".join(steps[:cut]) == decode(letters, ids[:cut])
    rest = whole.decode("utf-8", "replace").removeprefix("".join(steps))
    # Bytes that were still awaited may look like one cut character or like up to three broken ones.
    assert len(rest) <= 3 and not rest.strip("\ufffd"), "only the cut character at the end is missing"


@given(st.text(max_size=40))
def test_every_text_comes_back_from_single_bytes(letters: ModelTokenizer, text: str) -> None:
    ids = of_bytes(letters, text.encode("utf-8", "replace"))
    assert decode(letters, ids) == text.encode("utf-8", "replace").decode()


@given(st.text(max_size=60))
def test_every_text_comes_back_from_its_own_tokens(letters: ModelTokenizer, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    ids = letters.encode_text(text, specials=False)
    # User-defined tokens (<think> here, when no template writes it) are visible text.
    assert decode(letters, ids) == text


def test_a_character_comes_when_its_last_byte_does(letters: ModelTokenizer) -> None:
    detokenizer = Detokenizer(letters)
    ids = of_bytes(letters, "a😀b".encode())
    assert [detokenizer.push(token) for token in ids] == ["a", "", "", "", "😀", "b"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"ok \xf0\x9f\x98", "ok "),
        (b"\xe4\xb8a", "\ufffda"),
        (b"\xff", "\ufffd"),
        (b"x\x80y", "x\ufffdy"),
        (b"\xc3", ""),
        (b"", ""),
    ],
)
def test_broken_characters(letters: ModelTokenizer, data: bytes, text: str) -> None:
    assert decode(letters, of_bytes(letters, data)) == text


def test_control_tokens_are_hidden_or_kept(letters: ModelTokenizer) -> None:
    ids = letters.encode_text("hello<|im_end|>x", specials=True)
    assert decode(letters, ids) == "hellox"
    assert decode(letters, ids, markers=True) == "hello<|im_end|>x"


def test_a_hidden_token_does_not_break_a_character(letters: ModelTokenizer) -> None:
    head, tail = of_bytes(letters, b"\xc3"), of_bytes(letters, b"\xa9")
    marker = letters.encode_text("<|im_start|>", specials=True)
    assert decode(letters, [*head, *marker, *tail]) == "é"


def test_ids_outside_the_vocabulary_have_no_text(letters: ModelTokenizer) -> None:
    assert decode(letters, [letters.vocab_size + 5, -1]) == ""


def test_the_space_before_the_first_word_of_an_answer(pieces: ModelTokenizer) -> None:
    ids = pieces.encode_text("hello hello", specials=False)
    assert decode(pieces, ids) == " hello hello"
    detokenizer = Detokenizer(pieces, answer=True)
    assert "".join([detokenizer.push(token) for token in ids]) == "hello hello"


def test_bytes_of_a_sentencepiece_vocabulary(pieces: ModelTokenizer) -> None:
    ids = pieces.encode_text("é😀", specials=False)
    detokenizer = Detokenizer(pieces, answer=True)
    assert "".join([detokenizer.push(token) for token in ids]) == "é😀"
