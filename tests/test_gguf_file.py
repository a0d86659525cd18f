"""The GGUF reader: what it reads, how fast, and what it says about files that are not whole."""

import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.errors import GET_ANEW, BadWeights, MashboxError, UnsupportedModel
from mashbox.gguf_file import GGUFFile, is_first_part
from mashbox.gguf_keys import Keys
from tests.gguf_bytes import floats, gguf_bytes, tensor_entry, text
from tests.patience import PATIENCE

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.rope.freq_base": 10000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "general.file_type": 15,
    "negative": -3,
    "yes": True,
    "names": ["a", "", "größe", "\N{GRINNING FACE}"],
    "counts": [1, 2, 3],
    "nested": [[1, 2], [3]],
    "none": [],
}
TENSORS = {
    "token_embd.weight": floats(3, 4),
    "half": ((2, 2), "F16", np.array([1, 2, 3, 4], "<f2").tobytes()),
    "brain": ((2,), "BF16", b"\x80\x3f\x00\x40"),
    "packed": ((2, 64), "Q8_0", bytes(range(136))),
}


def file_of(folder: Path, content: bytes, name: str = "model.gguf") -> GGUFFile:
    (folder / name).write_bytes(content)
    return GGUFFile(folder / name)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_of_every_kind_are_read(version: int, tmp_path: Path) -> None:
    file = file_of(tmp_path, gguf_bytes(METADATA, TENSORS, version=version))
    for key, value in METADATA.items():
        assert file.metadata[key] == (pytest.approx(value) if isinstance(value, float) else value)
    assert file.architecture == "llama"


@pytest.mark.parametrize("alignment", [32, 64])
def test_tensors_are_views_of_the_file(alignment: int, tmp_path: Path) -> None:
    metadata = METADATA if alignment == 32 else {**METADATA, "general.alignment": alignment}
    file = file_of(tmp_path, gguf_bytes(metadata, TENSORS, alignment=alignment))
    assert file.data("token_embd.weight").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert file.data("half").tolist() == [[1, 2], [3, 4]]
    assert file.data("brain").tolist() == [0x3F80, 0x4000]
    packed = file.data("packed")
    assert (packed.shape, packed.dtype) == ((2, 68), np.uint8)
    assert packed.ravel().tolist() == list(range(136))
    assert not packed.flags.writeable
    info = file.tensors["packed"]
    assert (info.shape, info.type, info.nbytes, info.n_elements) == ((2, 64), "Q8_0", 136, 128)


def test_the_whole_is_summed_up(tmp_path: Path) -> None:
    file = file_of(tmp_path, gguf_bytes(METADATA, TENSORS))
    assert file.n_elements == 12 + 4 + 2 + 128
    assert file.bits_per_weight == pytest.approx(8 * (48 + 8 + 4 + 136) / 146)
    assert file.file_bytes == (tmp_path / "model.gguf").stat().st_size
    assert file.quant == "Q4_K_M"


def test_without_a_file_type_the_most_common_one_is_named(tmp_path: Path) -> None:
    metadata = {key: value for key, value in METADATA.items() if key != "general.file_type"}
    assert file_of(tmp_path, gguf_bytes(metadata, TENSORS)).quant == "Q8_0"
    assert file_of(tmp_path, gguf_bytes({**metadata, "general.file_type": 999}, TENSORS)).quant == "Q8_0"


def parts(folder: Path, count: int = 2) -> list[Path]:
    paths = []
    for number in range(count):
        metadata = {"split.no": number, "split.count": count, "split.tensors.count": 2 * count}
        if number == 0:
            metadata = {**METADATA, **metadata}
        tensors = {f"a{number}": floats(2), f"b{number}": floats(number + 1, 2)}
        path = folder / f"big-{number + 1:05d}-of-{count:05d}.gguf"
        path.write_bytes(gguf_bytes(metadata, tensors))
        paths.append(path)
    return paths


def test_a_split_model_is_found_from_any_part(tmp_path: Path) -> None:
    paths = parts(tmp_path)
    for path in paths:
        file = GGUFFile(path)
        assert file.paths == paths
        assert file.architecture == "llama"
        assert sorted(file.tensors) == ["a0", "a1", "b0", "b1"]
        assert file.data("b1").tolist() == [[0, 1], [2, 3]]
    assert [is_first_part(path) for path in paths] == [True, False]
    assert is_first_part(Path("model.gguf"))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first, second = parts(tmp_path)
    second.unlink()
    with pytest.raises(BadWeights, match=r"missing: big-00002-of-00002\.gguf"):
        GGUFFile(first)


def test_a_renamed_part_is_no_model_of_its_own(tmp_path: Path) -> None:
    first, _ = parts(tmp_path)
    first.rename(tmp_path / "model.gguf")
    with pytest.raises(BadWeights, match="one of 2 parts, found 1"):
        GGUFFile(tmp_path / "model.gguf")


def test_parts_of_two_models_are_noticed(tmp_path: Path) -> None:
    first, second = parts(tmp_path)
    second.write_bytes(gguf_bytes({"split.no": 1}, {"a1": floats(2)}))
    with pytest.raises(BadWeights, match="3 tensors instead of 4"):
        GGUFFile(first)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b"PK\x03\x04" + b"\0" * 40, "a zip archive"),
        (struct.pack("<Q", 60) + b'{"a":{"dtype":"F32"}}' + b" " * 40, "a safetensors file"),
        (b"\0" * 100, "not a GGUF model"),
        (b"GGUF", "too short"),
        (b"", "too short"),
    ],
)
def test_something_else_is_recognised(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=said) as caught:
        file_of(tmp_path, content)
    assert str(tmp_path / "model.gguf") in caught.value.message
    assert caught.value.remedy == GET_ANEW


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=r"gone\.gguf: No such file"):
        GGUFFile(tmp_path / "gone.gguf")


@pytest.mark.parametrize(("version", "order"), [(1, "<"), (99, "<"), (3, ">")])
def test_other_versions_are_refused(version: int, order: str, tmp_path: Path) -> None:
    content = gguf_bytes(METADATA, TENSORS)
    with pytest.raises(UnsupportedModel, match=r"GGUF version|a big-endian"):
        file_of(tmp_path, b"GGUF" + struct.pack(f"{order}I", version) + content[8:])


def test_a_file_cut_anywhere_is_refused_with_its_name(tmp_path: Path) -> None:
    content = gguf_bytes(METADATA, TENSORS)
    for length in range(24, len(content), 7):
        with pytest.raises(BadWeights, match=r"model\.gguf: "):
            file_of(tmp_path, content[:length])


def test_missing_data_name_the_tensor_and_the_sizes(tmp_path: Path) -> None:
    content = gguf_bytes(METADATA, TENSORS)
    with pytest.raises(
        BadWeights, match=rf"'packed' ends at byte {len(content)}, the file has {len(content) - 1}"
    ):
        file_of(tmp_path, content[:-1])


HEAD = b"GGUF" + struct.pack("<I", 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD + struct.pack("<QQ", 2**60, 1), "damaged header: 1152921504606846976 tensors"),
        (HEAD + struct.pack("<QQ", 0, 2**40), "1099511627776 metadata pairs"),
        (HEAD + struct.pack("<QQQ", 0, 1, 2**63), "runs beyond the end"),
        (HEAD + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<I", 77), "metadata of type 77"),
        (HEAD + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 2**50), "an array of"),
        (
            HEAD + struct.pack("<QQ", 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 3) + b"\xff" * 64,
            "beyond the end",
        ),
        (HEAD + struct.pack("<QQ", 1, 0) + text("t") + struct.pack("<I", 99) + b"\0" * 64, "99 dimensions"),
        (HEAD + struct.pack("<QQ", 1, 0) + tensor_entry("t", (2**40, 2**40), 0, 0) + b"\0" * 64, "cut short"),
        (
            HEAD + struct.pack("<QQ", 1, 0) + tensor_entry("t", (33,), 8, 0) + b"\0" * 64,
            "no multiple of Q8_0's 32",
        ),
        (
            HEAD + struct.pack("<QQ", 1, 0) + tensor_entry("t", (1,), 0, 5) + b"\0" * 64,
            "multiple of the alignment",
        ),
        (
            HEAD + struct.pack("<QQ", 2, 0) + 2 * tensor_entry("t", (1,), 0, 0) + b"\0" * 64,
            "'t' appears twice",
        ),
        (HEAD + struct.pack("<QQ", 0, 2) + 2 * (text("k") + struct.pack("<IB", 0, 1)), "'k' appears twice"),
        (gguf_bytes({"general.alignment": 0}, {}), "an alignment of 0"),
    ],
)
def test_damage_is_named(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=said):
        file_of(tmp_path, content)


def test_arrays_nested_without_end_are_refused(tmp_path: Path) -> None:
    deep = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 200
    with pytest.raises(BadWeights, match="metadata of type 9"):
        file_of(tmp_path, HEAD + struct.pack("<QQ", 0, 1) + text("k") + deep)


def test_an_unknown_data_type_is_named(tmp_path: Path) -> None:
    content = HEAD + struct.pack("<QQ", 1, 0) + tensor_entry("blk.0.x", (32,), 4, 0) + b"\0" * 64
    with pytest.raises(UnsupportedModel, match=r"'blk\.0\.x' has the unknown data type 4"):
        file_of(tmp_path, content)


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=12))
def test_damaged_headers_never_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, new: bytes
) -> None:
    content = gguf_bytes(METADATA, TENSORS)
    at %= len(content)
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(content[:at] + new + content[at + len(new) :])
    try:
        file = GGUFFile(path)
        for name in file.tensors:
            file.data(name)
    except MashboxError as error:
        assert "model.gguf" in error.message


def test_a_large_vocabulary_is_read_in_well_under_a_second(tmp_path: Path) -> None:
    tokens = [f"▁token{number}" for number in range(262_144)]
    metadata = {**METADATA, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [0.5] * len(tokens)}
    (tmp_path / "model.gguf").write_bytes(gguf_bytes(metadata, TENSORS))
    best = 9.0
    for _ in range(3):
        start = time.process_time()  # other work on the machine does not count
        file = GGUFFile(tmp_path / "model.gguf")
        best = min(best, time.process_time() - start)
    assert file.metadata["tokenizer.ggml.tokens"] == tokens
    assert best < 0.8


def test_reading_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf_bytes(METADATA, TENSORS))
    code = (
        "import sys; from pathlib import Path; import mashbox.facts, mashbox.memory;"
        "from mashbox.gguf_file import GGUFFile; GGUFFile(Path(sys.argv[1])).data('half');"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.gguf")], check=True, timeout=PATIENCE)


def test_keys_are_typed(tmp_path: Path) -> None:
    metadata = {**METADATA, "llama.counts": [4, 8], "llama.word": "x", "tokenizer.ggml.eos_token_id": 7}
    keys = Keys(file_of(tmp_path, gguf_bytes(metadata, TENSORS)))
    assert keys.whole("block_count") == 2
    assert keys.whole("counts") == 8
    assert keys.whole("absent", 5) == 5
    assert keys.wholes("counts", 2) == [4, 8]
    assert keys.wholes("block_count", 3) == [2, 2, 2]
    assert keys.number("attention.layer_norm_rms_epsilon") == 1e-5
    assert keys.flag("absent", True)
    assert keys.text("word") == "x"
    assert keys.token("eos") == 7
    assert keys.token("bos") is None
    assert keys.vocab == 3
    with pytest.raises(BadWeights, match=r"llama\.absent is missing"):
        keys.whole("absent")
    with pytest.raises(BadWeights, match=r"llama\.word is 'x' instead of a whole number"):
        keys.whole("word")
    with pytest.raises(BadWeights, match=r"llama\.counts is '\[4, 8\]' instead of 3 whole numbers"):
        keys.wholes("counts", 3)
    with pytest.raises(BadWeights, match=r"llama\.word is 'x' instead of a number"):
        keys.number("word")
