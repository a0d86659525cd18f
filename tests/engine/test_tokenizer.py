import json
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from mashbox.engine.detokenize import decode
from mashbox.engine.tokenizer import ModelTokenizer, _PieceCache
from mashbox.errors import BadWeights, UnsupportedModel
from tests.engine.vocabularies import byte_level, sentencepiece, tokenizer


def hub_folder(folder: Path, make: Callable[[], Tokenizer], **files: dict[str, Any]) -> Path:
    """A model's folder as the hub has it; ``files`` are JSON files by stem."""
    make().save(str(folder / "tokenizer.json"))
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return folder


def metaspace() -> Tokenizer:
    """A SentencePiece vocabulary that puts a space before a text's first word only."""
    vocab = {text: index for index, text in enumerate(["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a"])}
    made = Tokenizer(models.BPE(vocab, [("▁", "a")], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>")])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return made


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    return tokenizer(byte_level(add_bos_token=True), tmp_path_factory.mktemp("letters"))


def test_markers_in_a_raw_prompt_are_tokens(letters: ModelTokenizer) -> None:
    ids = letters.encode_text("a<|im_end|>b", specials=True)
    assert [letters.token_bytes(index) for index in ids] == [b"<|endoftext|>", b"a", b"<|im_end|>", b"b"]


def test_markers_in_mere_text_are_text(letters: ModelTokenizer) -> None:
    ids = letters.encode_text("a<|im_end|>b", specials=False)
    assert not any(letters.is_control(index) for index in ids)
    assert decode(letters, ids) == "a<|im_end|>b"


def test_other_threads_run_while_a_long_text_is_encoded(letters: ModelTokenizer) -> None:
    """The server's loop is such a thread: it must answer, stream and cancel meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(letters.encode_text, "a b " * 200_000, specials=False)
        moments = 0
        while not encoding.done():
            time.sleep(0.001)
            moments += 1
    assert len(encoding.result()) >= 200_000
    assert moments > 20


def test_bos_is_never_doubled(letters: ModelTokenizer) -> None:
    once = letters.encode_text("a", specials=True)
    assert once == letters.encode_text("<|endoftext|>a", specials=True)
    assert once.count(letters.bos_id) == 1
    assert letters.encode_text("", specials=True) == [letters.bos_id]
    assert letters.encode_text("", specials=False) == []


def test_code_points_that_utf8_can_not_hold_are_left_out(letters: ModelTokenizer) -> None:
    assert letters.encode_text("a\ud83db", specials=False) == letters.encode_text("ab", specials=False)


def test_user_defined_tokens_are_tokens_unless_the_template_uses_them(tmp_path: Path) -> None:
    plain = tokenizer(byte_level(), tmp_path / "plain")
    assert len(plain.encode_text("<think>", specials=False)) == 1
    assert not plain.is_control(plain.encode_text("<think>", specials=False)[0])
    thinks = tokenizer(byte_level(template="{{ '<think>' }}{{ messages }}"), tmp_path / "thinks")
    assert len(thinks.encode_text("<think>", specials=False)) > 1
    assert len(thinks.encode_text("<think>", specials=True)) == 1


def test_a_marker_that_plain_letters_would_make_stays_text(tmp_path: Path) -> None:
    # The whole word is in the vocabulary, and words are looked up whole.
    model = tokenizer(byte_level(pre="gemma4", control=("<eos>",), eos_token_id=0) | gemma_keys(), tmp_path)
    ids = model.encode_text("<eos>", specials=False)
    assert not any(model.is_control(index) for index in ids)
    assert decode(model, ids) == "<eos>"


def gemma_keys() -> dict[str, Any]:
    tokens = ["<eos>", "<pad>", "<unk>", "\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    return {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": [*tokens, "<", "e", "o", "s", ">"],
        "tokenizer.ggml.token_type": [3, 3, 3, 1] + [6] * 256 + [1] * 5,
        "tokenizer.ggml.unknown_token_id": 2,
        "tokenizer.ggml.merges": [],
    }


def test_long_texts_are_the_same_from_the_cache_and_in_threads(letters: ModelTokenizer) -> None:
    texts = [("hello world " * 100) + str(number) for number in range(8)]
    alone = [letters.encode_text(text, specials=False) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        again = list(threads.map(lambda text: letters.encode_text(text, specials=False), texts * 4))
    assert again == alone * 4
    again[0].append(1)
    assert letters.encode_text(texts[0], specials=False) == alone[0]


def test_the_cache_holds_no_more_than_its_limit() -> None:
    cache = _PieceCache(10)
    for letter in "abc":
        cache.put((letter * 4, True), array("i", [1]))
        cache.get(("aaaa", True))
    assert cache.get(("aaaa", True)) is not None
    assert cache.get(("bbbb", True)) is None
    assert cache.get(("cccc", True)) is not None
    cache.put(("d" * 11, True), array("i", [1]))
    assert cache.get(("d" * 11, True)) is None


def test_a_hub_folder(tmp_path: Path) -> None:
    folder = hub_folder(
        tmp_path,
        metaspace,
        tokenizer_config={"bos_token": {"content": "<s>"}, "eos_token": "</s>"},
        generation_config={"eos_token_id": [2, 4]},
    )
    model = ModelTokenizer.load(folder)
    assert (model.bos_id, model.add_bos, model.vocab_size) == (1, True, 7)
    assert model.end_ids == {2, 4}
    assert model.special_texts == {"bos_token": "<s>", "eos_token": "</s>"}
    assert model.chat_template is None


def test_only_a_texts_first_word_gets_a_space(tmp_path: Path) -> None:
    model = ModelTokenizer.load(hub_folder(tmp_path, metaspace, tokenizer_config={"bos_token": "<s>"}))
    assert model.encode_text("a", specials=False) == [6]
    assert model.encode_text("a</s>a", specials=True) == [1, 6, 2, 4]
    assert max(model.encode_text("a</s>b", specials=True)) < model.vocab_size


def test_the_configuration_decides_on_bos(tmp_path: Path) -> None:
    config = {"bos_token": "<s>", "add_bos_token": False}
    assert not ModelTokenizer.load(hub_folder(tmp_path, metaspace, tokenizer_config=config)).add_bos


def test_chat_templates_from_configuration_and_files(tmp_path: Path) -> None:
    held = [{"name": "default", "template": "held"}, {"name": "tool_use", "template": "tools"}]
    folder = hub_folder(tmp_path, metaspace, tokenizer_config={"chat_template": held})
    model = ModelTokenizer.load(folder)
    assert model.chat_template == "held"
    assert model.templates["tool_use"].source == "tools"
    (folder / "chat_template.jinja").write_text("file")
    assert ModelTokenizer.load(folder).chat_template == "file"


def test_a_chat_template_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path, metaspace, chat_template={"chat_template": "its own"})
    assert ModelTokenizer.load(folder).chat_template == "its own"


def test_a_sentencepiece_file_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.model but no tokenizer\.json.*GGUF"):
        ModelTokenizer.load(tmp_path)


def test_a_missing_or_damaged_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=r"no tokenizer\.json"):
        ModelTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(BadWeights, match=r"tokenizer\.json can't be read"):
        ModelTokenizer.load(tmp_path)
    tokenizer(byte_level(), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(BadWeights, match=r"tokenizer_config\.json can't be read"):
        ModelTokenizer.load(tmp_path)


def test_tokens_without_bytes_are_refused(tmp_path: Path) -> None:
    def word_pieces() -> Tokenizer:
        made = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
        made.decoder = decoders.WordPiece()
        return made

    with pytest.raises(UnsupportedModel, match="WordPiece"):
        ModelTokenizer.load(hub_folder(tmp_path, word_pieces))


def test_sentencepiece_prefix_after_each_control_token(tmp_path: Path) -> None:
    model = tokenizer(sentencepiece(), tmp_path)
    ids = model.encode_text("he<turn>he", specials=True)
    assert [model.token_bytes(index) for index in ids] == [b"<s>", b" h", b"e", b"<turn>", b" h", b"e"]
