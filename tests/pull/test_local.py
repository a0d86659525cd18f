"""Models that lie on this machine already."""

import hashlib
import os
from pathlib import Path

import pytest

from mashbox import store
from mashbox.errors import BadWeights, UnknownModel, UnsupportedModel
from mashbox.pull import ensure
from tests.pull.models import tiny_gguf, tiny_safetensors, tiny_split


@pytest.fixture
def file(tmp_path: Path, gguf: bytes) -> Path:
    path = tmp_path / "mine" / "my-model.gguf"
    path.parent.mkdir()
    path.write_bytes(gguf)
    return path


def folder_of(tmp_path: Path, files: dict[str, bytes]) -> Path:
    folder = tmp_path / "checkpoint"
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_a_gguf_is_used_where_it_lies(file: Path, gguf: bytes, home: Path) -> None:
    model = ensure(str(file))
    assert (model.id, model.weights, model.source) == ("my-model", file, f"local {file}")
    assert model.files[0].sha256 == hashlib.sha256(gguf).hexdigest()
    assert (model.tokenizer / "tokenizer.json").is_file()
    assert model.tokenizer.is_relative_to(home)
    assert not list(home.rglob("*.gguf"))
    assert store.find(str(file)) == store.find("my-model") == ensure("my-model") == model


def test_a_relative_path_is_the_same_model(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ensure(str(file))
    monkeypatch.chdir(file.parent)
    assert ensure("my-model.gguf") == ensure("./my-model.gguf") == model
    assert len(store.installed()) == 1


def test_files_of_one_name_in_two_places_are_two_models(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "my-model.gguf"
    other.write_bytes(tiny_gguf(tmp_path, seed=3))
    assert ensure(str(file)).weights != ensure(str(other)).weights
    assert len(store.installed()) == 2
    with pytest.raises(UnknownModel, match="2 models here are called 'my-model'") as caught:
        store.find("my-model")
    assert str(file) in caught.value.remedy and str(other) in caught.value.remedy


def test_a_file_called_like_an_entry_is_not_that_entry(file: Path) -> None:
    mine = file.rename(file.with_name("qwen3-4b.gguf"))
    assert ensure(str(mine)).spec is None
    with pytest.raises(UnknownModel, match="not on this machine"):
        store.find("qwen3-4b")


def test_a_link_is_used_by_its_own_name(file: Path, gguf: bytes, tmp_path: Path) -> None:
    blob = file.rename(tmp_path / "0123abcd")
    file.symlink_to(blob)
    model = ensure(str(file))
    assert (model.id, model.weights) == ("my-model", file)
    assert model.weights.read_bytes() == gguf


def test_a_change_is_noticed_and_pulling_again_takes_it_up(file: Path, tmp_path: Path) -> None:
    ensure(str(file))
    file.write_bytes(tiny_gguf(tmp_path, seed=3))
    with pytest.raises(BadWeights, match="has changed since it was pulled") as caught:
        store.find(str(file))
    assert f"mashbox pull {file}" in caught.value.remedy
    assert ensure(str(file), repair=True) == store.find(str(file))


def test_removing_leaves_the_file(file: Path, home: Path) -> None:
    ensure(str(file))
    store.remove(str(file))
    assert file.is_file()
    assert store.installed() == []


def test_a_file_that_has_gone(file: Path) -> None:
    ensure(str(file))
    file.unlink()
    with pytest.raises(BadWeights, match=r"my-model\.gguf is gone"):
        store.find("my-model")
    with pytest.raises(UnknownModel, match="There is no model at"):
        store.find(str(file))


def test_a_split_gguf_may_be_named_by_any_part(tmp_path: Path) -> None:
    folder = tmp_path / "split"
    folder.mkdir()
    tiny_split(folder)
    model = ensure(str(folder / "split-Q4_0-00002-of-00003.gguf"))
    assert model.weights == folder / "split-Q4_0-00001-of-00003.gguf"
    assert len(model.files) == 3
    assert ensure(str(folder)).files == model.files


def test_a_folder_of_safetensors(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, tiny_safetensors(2))
    model = ensure(str(folder))
    assert (model.format, model.weights, model.tokenizer) == ("safetensors", folder, folder)
    assert "model-00002-of-00002.safetensors" in {entry.path.name for entry in model.files}
    assert store.find(str(folder)) == model


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_folder_that_lacks_what_is_needed(tmp_path: Path, missing: str) -> None:
    files = tiny_safetensors()
    del files[missing]
    with pytest.raises(UnsupportedModel, match=f"no {missing}"):
        ensure(str(folder_of(tmp_path, files)))


def test_a_folder_that_lacks_a_shard(tmp_path: Path) -> None:
    files = tiny_safetensors(3)
    del files["model-00002-of-00003.safetensors"]
    with pytest.raises(BadWeights, match="lacks model-00002-of-00003"):
        ensure(str(folder_of(tmp_path, files)))


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_safetensors_that_are_cut_short(tmp_path: Path, keep: int) -> None:
    files = tiny_safetensors()
    files["model.safetensors"] = files["model.safetensors"][:keep]
    with pytest.raises(BadWeights, match=r"model\.safetensors"):
        ensure(str(folder_of(tmp_path, files)))


def test_a_folder_of_several_ggufs_asks_which(tmp_path: Path, gguf: bytes) -> None:
    folder = folder_of(tmp_path, {"a-Q4_0.gguf": gguf, "b-Q4_0.gguf": gguf})
    with pytest.raises(UnsupportedModel, match="has 2 GGUF models"):
        ensure(str(folder))


def test_a_file_that_is_no_gguf_stays_untouched(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(BadWeights):
        ensure(str(path))
    assert path.is_file()
    assert store.installed() == []


def test_a_touched_file_is_hashed_once_and_accepted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure(str(file))
    os.utime(file, (1, 1))
    assert store.find(str(file)).files[0].mtime_ns == 1_000_000_000
    monkeypatch.setattr(store, "sha256_of", lambda path: pytest.fail("hashed again"))
    store.find(str(file))
