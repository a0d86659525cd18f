"""The local store: only whole, unchanged models are found."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import Timeout

from mashbox import store
from mashbox.errors import BadWeights, UnknownModel
from mashbox.store import LocalModel, identify


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def lay(name: str, content: bytes = b"weights") -> LocalModel:
    """A model in the store, as a pull leaves it."""
    wanted = identify(name)
    (wanted.folder / "tokenizer").mkdir(parents=True)
    (wanted.folder / "tokenizer" / "tokenizer.json").write_text("{}")
    weights = wanted.folder / "w.gguf"
    weights.write_bytes(content)
    return store.add(
        wanted,
        format="gguf",
        weights=weights,
        files=[(weights, store.sha256_of(weights))],
        tokenizer=wanted.folder / "tokenizer",
        source="hub org/x@main",
    )


def test_what_was_added_is_found() -> None:
    model = lay("smollm2-135m")
    assert store.find("smollm2-135m") == model
    assert store.installed() == [model]
    assert model.spec is not None and model.spec.family == "smollm2"
    assert model.bytes == 7
    assert model.weights.read_bytes() == b"weights"


@pytest.mark.parametrize(
    "name", ["org/repo", "org/repo:file.gguf", "Org/Re.po_1:sub/file.gguf", "org/repo:Q8_0"]
)
def test_hub_names(name: str) -> None:
    wanted = identify(name)
    assert f"{wanted.repo}:{wanted.file}" == name if wanted.file else wanted.repo == name
    assert lay(name).id == name
    assert store.find(name).spec is None


def test_names_that_look_alike_have_folders_of_their_own() -> None:
    names = [
        "org/repo",
        "org/repo:a.gguf",
        "org/repo:b.gguf",
        "org--repo/x",
        "org/repo--x",
        "org/repo:A.gguf",
    ]
    assert len({identify(name).slug for name in names}) == len(names)
    for name in names:
        assert Path(identify(name).slug).name == identify(name).slug


def test_a_store_that_was_moved_still_works(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay("org/repo")
    moved = home.with_name("moved")
    home.rename(moved)
    monkeypatch.setenv("MASHBOX_HOME", str(moved))
    assert store.find("org/repo").weights.is_relative_to(moved)


def test_a_folder_without_a_manifest_is_not_a_model(home: Path) -> None:
    model = lay("org/repo")
    (model.weights.parent / "manifest.json").unlink()
    assert store.installed() == []
    assert store.lookup("org/repo") is None
    with pytest.raises(UnknownModel, match=r"not on this machine.*mashbox pull org/repo"):
        store.find("org/repo")


def test_a_damaged_manifest_is_named() -> None:
    model = lay("org/repo")
    (model.weights.parent / "manifest.json").write_text('{"version": 1')
    with pytest.raises(BadWeights, match=r"manifest\.json is damaged"):
        store.find("org/repo")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: path.write_bytes(b"short"), "has 5 bytes, 7 when it was pulled"),
        (lambda path: path.write_bytes(b"w3ights"), "has changed since it was pulled"),
    ],
)
def test_a_change_of_the_weights_is_noticed(change: Callable[[Path], object], said: str) -> None:
    model = lay("org/repo")
    os.utime(model.weights, ns=(1, 1))
    change(model.weights)
    with pytest.raises(BadWeights, match=said) as caught:
        store.find("org/repo")
    assert caught.value.remedy == "Pull it again: mashbox pull org/repo"


def test_a_lost_tokenizer_is_noticed() -> None:
    model = lay("org/repo")
    (model.tokenizer / "tokenizer.json").unlink()
    with pytest.raises(BadWeights, match=r"tokenizer\.json is gone"):
        store.find("org/repo")


def test_copied_files_with_other_times_are_accepted() -> None:
    model = lay("org/repo")
    os.utime(model.weights, ns=(5, 5))
    assert store.find("org/repo").files[0].mtime_ns == 5
    manifest = json.loads((model.weights.parent / "manifest.json").read_text())
    assert manifest["files"][0]["mtime_ns"] == 5


def test_remove_deletes_whole_models_and_unfinished_ones(home: Path) -> None:
    model = lay("org/repo")
    assert store.remove("org/repo") > 7
    assert not model.weights.parent.exists()
    part = identify("org/other").folder / "w.gguf.part"
    part.parent.mkdir()
    part.write_bytes(b"123")
    assert store.remove("org/other") == 3
    with pytest.raises(UnknownModel, match="not on this machine"):
        store.remove("org/other")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smolm2-135m", "Did you mean smollm2-135m"),
        ("Qwen3-8B", "Did you mean qwen3-8b"),
        ("zzzzzzz", "mashbox pull --list"),
        ("./none.gguf", r"There is no model at './none\.gguf'"),
        ("/none/at/all", "There is no model at '/none/at/all'"),
        ("../..", "There is no model at"),
        (__file__, "test_store.py' is no model's file"),
        ("", "There is no model ''"),
        ("org/repo/more", "There is no model 'org/repo/more'"),
    ],
)
def test_unknown_names_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(UnknownModel, match=hint):
        store.find(name)


def test_the_lock_holds_between_processes() -> None:
    wanted = identify("org/repo")
    code = (
        "import sys; from mashbox import store; from filelock import Timeout\n"
        "try: store.lock(store.identify('org/repo')).acquire(timeout=0)\n"
        "except Timeout: sys.exit(7)"
    )
    with store.lock(wanted):
        assert subprocess.run([sys.executable, "-c", code]).returncode == 7
        with pytest.raises(Timeout):
            store.lock(wanted).acquire(timeout=0)
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
