import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mashbox.engine.detokenize import decode
from mashbox.engine.gguf_tokenizer import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    GGUFVocabulary,
    merges_from_scores,
    write_from_metadata,
    write_tokenizer,
)
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.errors import BadWeights, UnsupportedModel
from tests.engine.vocabularies import byte_level, sentencepiece, tokenizer
from tests.patience import PATIENCE

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma3-270m"])
def real(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ModelTokenizer]:
    """A real model's tokenizer, made from its GGUF file."""
    gguf = request.getfixturevalue("starter_gguf" if request.param == "smollm2-135m" else "gemma_gguf")
    folder = tmp_path_factory.mktemp(request.param)
    write_tokenizer(gguf, folder)
    return request.param, ModelTokenizer.load(folder)


@pytest.mark.real
def test_ids_are_those_of_llama_cpp(real: tuple[str, ModelTokenizer]) -> None:
    # The files hold what llama.cpp's llama-tokenize printed for the same GGUF files: "raw" with BOS and
    # special tokens parsed, "plain" with --no-bos and --no-parse-special.
    name, model = real
    for case in json.loads((DATA / f"tokens-{name}.json").read_text()):
        assert model.encode_text(case["text"], specials=True) == case["raw"], case["name"]
        assert model.encode_text(case["text"], specials=False) == case["plain"], case["name"]
        assert decode(model, case["plain"], markers=True) == case["text"], case["name"]


@pytest.mark.real
def test_real_special_tokens(real: tuple[str, ModelTokenizer]) -> None:
    name, model = real
    bos, add_bos, ends = {
        "smollm2-135m": ("<|im_start|>", False, {"<|endoftext|>", "<|im_end|>", "<reponame>"}),
        "gemma3-270m": ("<bos>", True, {"<eos>", "<end_of_turn>"}),
    }[name]
    assert model.bos_id is not None
    assert model.token_bytes(model.bos_id).decode() == bos
    assert model.add_bos is add_bos
    assert {model.token_bytes(index).decode() for index in model.end_ids} == ends


def test_byte_level_words_merge_as_ranked(tmp_path: Path) -> None:
    model = tokenizer(byte_level(), tmp_path)
    pieces = [model.token_bytes(index) for index in model.encode_text("hello world", specials=False)]
    assert pieces == [b"hello", b" w", b"or", b"l", b"d"]


def test_ignore_merges_takes_a_word_whole(tmp_path: Path) -> None:
    # No merge leads to "xyz", but the vocabulary has it.
    metadata = byte_level(pre="llama-bpe")
    metadata["tokenizer.ggml.tokens"].append("xyz")
    metadata["tokenizer.ggml.token_type"].append(NORMAL)
    assert len(tokenizer(metadata, tmp_path).encode_text("xyz", specials=False)) == 1
    metadata["tokenizer.ggml.pre"] = "qwen2"
    assert len(tokenizer(metadata, tmp_path).encode_text("xyz", specials=False)) == 3


def test_sentencepiece_joins_by_score(tmp_path: Path) -> None:
    model = tokenizer(sentencepiece(), tmp_path)
    pieces = [model.token_bytes(index) for index in model.encode_text("hello wor.", specials=False)]
    assert pieces == [b" h", b"e", b"ll", b"o", b" wor", b"."]


def test_merges_are_every_way_to_cut_a_token_best_score_first() -> None:
    tokens = ["a", "b", "c", "ab", "bc", "abc", "<s>", "s>"]
    kinds = [NORMAL] * 6 + [CONTROL, NORMAL]
    scores = [0.0, 0.0, 0.0, -2.0, -1.0, -3.0, 0.0, 0.0]
    assert merges_from_scores(tokens, kinds, scores) == [["b", "c"], ["a", "b"], ["a", "bc"], ["ab", "c"]]


def test_space_prefix_is_the_files_choice(tmp_path: Path) -> None:
    with_space = tokenizer(sentencepiece(), tmp_path / "a")
    without = tokenizer(sentencepiece(add_space_prefix=False), tmp_path / "b")
    assert with_space.token_bytes(with_space.encode_text("he", specials=False)[0]).startswith(b" ")
    assert without.token_bytes(without.encode_text("he", specials=False)[0]) == b"he"


def test_phi3_special_tokens_swallow_white_space(tmp_path: Path) -> None:
    metadata = sentencepiece() | {"general.name": "Phi-3-mini"}
    model = tokenizer(metadata, tmp_path)
    turn = model.encode_text("<turn>", specials=True)
    assert model.encode_text("<turn>\n  he", specials=True) == turn + model.encode_text("he", specials=False)


@pytest.mark.parametrize(
    ("metadata", "adds"),
    [
        (byte_level(), False),
        (byte_level(pre="llama-bpe"), True),
        (byte_level(pre="llama-bpe", add_bos_token=False), False),
        (byte_level(add_bos_token=True), True),
        (sentencepiece(), True),
        (sentencepiece(add_bos_token=False), False),
    ],
)
def test_bos_defaults(metadata: dict[str, Any], adds: bool, tmp_path: Path) -> None:
    assert GGUFVocabulary(metadata).add_bos is adds
    assert tokenizer(metadata, tmp_path).add_bos is adds


def ends(control: tuple[str, ...], normal: tuple[str, ...] = (), eos: int = 0) -> set[str]:
    metadata = byte_level(control=control, user_defined=normal, eos_token_id=eos)
    vocabulary = GGUFVocabulary(metadata)
    return {vocabulary.tokens[index] for index in vocabulary.end_ids}


def test_end_tokens() -> None:
    assert ends(("<eos!>", "<|im_end|>", "<|im_start|>")) == {"<eos!>", "<|im_end|>"}
    assert ends(("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>")) == {
        "<|endoftext|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
    }
    # The end of a channel is not the end of the answer.
    harmony = ("<|return|>", "<|call|>", "<|end|>", "<|channel|>")
    assert ends(harmony) == {"<|return|>", "<|call|>"}
    assert ends(("<eos!>", "<|end|>")) == {"<eos!>", "<|end|>"}
    # HTML's struck-out text ends nothing, a control token of that name does.
    assert ends(("<eos!>",), normal=("</s>",)) == {"<eos!>"}
    assert ends(("<eos!>", "</s>")) == {"<eos!>", "</s>"}


def test_end_token_by_role() -> None:
    vocabulary = GGUFVocabulary(byte_level(control=("<a>", "<b>", "<c>"), eot_token_id=1, eom_token_id=9999))
    assert vocabulary.end_ids == [1, 2]


def test_end_tokens_are_control_tokens_whatever_their_type(tmp_path: Path) -> None:
    metadata = byte_level(control=("<eos!>",), user_defined=("<|im_end|>",), eos_token_id=0)
    assert metadata["tokenizer.ggml.token_type"][1] == USER_DEFINED
    model = tokenizer(metadata, tmp_path)
    assert model.is_control(1)


def test_chat_templates_are_written_as_they_are(tmp_path: Path) -> None:
    metadata = byte_level(template="a\r\n{{ messages }}\n")
    metadata["tokenizer.chat_template.tool_use"] = "tools"
    metadata["tokenizer.chat_template.../x"] = "outside"
    write_from_metadata(metadata, tmp_path / "out")
    assert (tmp_path / "out" / "chat_template.jinja").read_bytes() == b"a\r\n{{ messages }}\n"
    assert (tmp_path / "out" / "additional_chat_templates" / "tool_use.jinja").read_text() == "tools"
    written = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json", "tool_use.jinja"]


def test_a_missing_pre_tokenizer_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    metadata = byte_level()
    del metadata["tokenizer.ggml.pre"]
    with caplog.at_level(logging.WARNING):
        GGUFVocabulary(metadata)
    assert "names no pre-tokenizer" in caplog.text


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": "bert"}, UnsupportedModel, "'bert'"),
        ({"model": "t5"}, UnsupportedModel, "'t5'"),
        ({"pre": "of-the-future"}, UnsupportedModel, "'of-the-future'"),
        ({"tokens": []}, BadWeights, "no vocabulary"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, BadWeights, "twice"),
        ({"token_type": [1]}, BadWeights, "token_type"),
    ],
)
def test_what_can_not_be_read_is_refused(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        GGUFVocabulary(byte_level(**change))


def test_merges_must_be_there(tmp_path: Path) -> None:
    metadata = byte_level()
    del metadata["tokenizer.ggml.merges"]
    with pytest.raises(BadWeights, match="merges"):
        write_from_metadata(metadata, tmp_path)


def test_empty_and_unused_entries_do_no_harm(tmp_path: Path) -> None:
    metadata = byte_level()
    metadata["tokenizer.ggml.tokens"] += ["", "[PAD7]"]
    metadata["tokenizer.ggml.token_type"] += [5, 5]
    metadata["tokenizer.ggml.merges"].append("no such")
    model = tokenizer(metadata, tmp_path)
    assert model.vocab_size == len(metadata["tokenizer.ggml.tokens"])
    assert len(model.encode_text("[PAD7]", specials=True)) == 6


def test_torch_stays_out() -> None:
    modules = "mashbox.engine.gguf_tokenizer, mashbox.engine.prompt, mashbox.engine.detokenize"
    script = f"import sys, {modules}; sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=PATIENCE)
