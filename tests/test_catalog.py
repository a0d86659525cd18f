"""The shipped catalogue is sound, and a wrong one is refused by entry and field."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mashbox import catalog
from mashbox.catalog import HubSource, WheelSource
from mashbox.errors import UsageError

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    return tmp_path


def entry(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "tiny",
        "family": "t",
        "title": "T",
        "format": "gguf",
        "sources": [{"kind": "url", "url": "https://example.com/w.gguf", "file": {"path": "w.gguf"}}],
        "parameters": 10,
        "licence": "MIT",
    }
    return {key: value for key, value in {**base, **changes}.items() if value is not ...}


def parse(*entries: Any, **document: Any) -> dict[str, catalog.ModelSpec]:
    text = json.dumps({"version": 1, "models": list(entries), **document}).encode()
    return catalog.parse(text, "file.json")[1]


def own(home: Path, *entries: dict[str, Any], **document: Any) -> None:
    (home / "config").mkdir(exist_ok=True)
    text = json.dumps({"version": 1, "models": list(entries), **document})
    (home / "config" / "models.json").write_text(text)


def test_the_starter_is_the_small_one() -> None:
    known = catalog.load()
    assert known.starter == "smollm2-135m"
    spec = known.models[known.starter]
    assert isinstance(spec.sources[0], WheelSource)
    assert (spec.bytes, spec.context, spec.bits_per_weight) == (98_362_432, 8192, 5.85)


def test_every_size_people_serve_is_there() -> None:
    models = catalog.load().models
    assert len(models) >= 15
    assert {"qwen3-8-27b", "gemma3-270m", "gpt-oss-20b", "qwen3-30b-a3b"} <= set(models)
    sizes = [spec.parameters for spec in models.values()]
    assert min(sizes) < 2e8 < 2e10 < max(sizes)
    assert any(spec.active for spec in models.values())


def test_only_what_was_run_is_marked_as_tried() -> None:
    """An entry that is said to be tried has its hash: without one nobody knows which file was tried."""
    for spec in catalog.load().models.values():
        source = spec.sources[0]
        files = source.files if isinstance(source, HubSource) else [getattr(source, "file", None)]
        hashed = bool(files) and all(file is not None and file.sha256 for file in files)
        assert not spec.tried or hashed, spec.id


def test_facts_of_an_entry_agree_with_each_other() -> None:
    for spec in catalog.load().models.values():
        assert spec.active is None or spec.active < spec.parameters, spec.id
        assert spec.bits_per_weight is None or 2 < spec.bits_per_weight < 17, spec.id
        assert spec.tools is None or spec.chat == "tokenizer", spec.id
        recommended = spec.sampling
        if recommended is not None and recommended.thinking is not None:
            assert spec.thinking != "none", spec.id
        source = spec.sources[0]
        if isinstance(source, HubSource) and source.files and spec.quant:
            assert spec.quant.lower() in source.files[0].path.lower(), spec.id


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs" / "models.md").read_text()
    structs = [catalog.ModelSpec, *catalog.Source.__args__, catalog.File, catalog.WheelPart]
    structs += [catalog.Recommended, catalog.Sampling]
    for struct in structs:
        for field in msgspec.structs.fields(struct):
            assert f"`{field.encode_name}`" in text, f"{struct.__name__}.{field.name}"


def test_the_documented_example_is_valid() -> None:
    text = (ROOT / "docs" / "models.md").read_text()
    example = text.split("```json\n")[1].split("```")[0]
    assert catalog.parse(example.encode(), "docs")[1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (entry(parameters="many"), r"file\.json: entry 'tiny': parameters: expected `int`, got `str`"),
        (entry(parameters=0), "parameters: expected `int` >= 1"),
        (entry(title=...), "entry 'tiny': the object missing required field `title`"),
        (entry(colour="red"), "the object contains unknown field `colour`"),
        (entry(thinking="sometimes"), "thinking: invalid enum value 'sometimes'"),
        (entry(sources=[]), r"sources: expected `array` of length >= 1"),
        (entry(sources=[{"kind": "ftp"}]), r"sources\[0\]\.kind: invalid value 'ftp'"),
        (
            entry(sources=[{"kind": "hub", "repo": "org/x", "files": [{"path": "w", "sha256": "12"}]}]),
            r"sources\[0\]\.files\[0\]\.sha256: expected `str` matching regex",
        ),
        (entry(id="Not An Id"), "entry 'Not An Id': id: expected `str` matching regex"),
        (entry(id=7), r"entry number 1: id: expected `str`, got `int`"),
        ("text", "entry number 1: expected `object`, got `str`"),
    ],
)
def test_an_error_names_the_entry_and_the_field(wrong: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(wrong)


@pytest.mark.parametrize("path", ["/etc/w", "../w", "a/../w", "a/..", "C:\\w", "..", "./w"])
def test_a_path_can_not_leave_the_models_folder(path: str) -> None:
    with pytest.raises(UsageError, match="path: expected"):
        parse(entry(sources=[{"kind": "hub", "repo": "org/x", "files": [{"path": path}]}]))


def test_a_file_that_is_no_catalogue() -> None:
    with pytest.raises(UsageError, match=r"file\.json is not JSON"):
        catalog.parse(b"{", "file.json")
    with pytest.raises(UsageError, match="version: invalid enum value 2"):
        parse(version=2)
    with pytest.raises(UsageError, match="'tiny' is there twice"):
        parse(entry(), entry())


def test_own_entries_are_laid_over_the_shipped_ones(home: Path) -> None:
    own(home, entry(), entry(id="smollm2-135m", title="Mine"), starter="tiny")
    known = catalog.load()
    assert known.starter == "tiny"
    assert known.models["smollm2-135m"].title == "Mine"
    assert "qwen3-8b" in known.models


def test_a_change_of_the_own_file_is_seen(home: Path) -> None:
    own(home, entry())
    assert "tiny" in catalog.load().models
    (home / "config" / "models.json").unlink()
    assert "tiny" not in catalog.load().models


def test_a_broken_own_file_is_named(home: Path) -> None:
    own(home, entry(parameters=-1))
    with pytest.raises(UsageError, match=r"config/models\.json: entry 'tiny'"):
        catalog.load()
    own(home, entry(), starter="none")
    with pytest.raises(UsageError, match="starter 'none' is not an entry"):
        catalog.load()


def test_memory_as_stated_or_from_the_weights() -> None:
    small, stated = parse(entry(), entry(id="stated", memory=7)).values()
    assert catalog.memory_need(small) == 40 + catalog.OVERHEAD_BYTES
    assert catalog.memory_need(stated) == 7


def test_a_repository_finds_its_entry() -> None:
    known = catalog.load()
    found = known.by_repo("qwen/qwen3-4b-gguf")
    assert found is not None and found.id == "qwen3-4b"
    assert known.by_repo("org/none") is None


def test_the_catalogue_is_read_without_heavy_imports() -> None:
    code = (
        "import sys; from mashbox import catalog, store, pull; catalog.load();"
        "heavy = {'torch', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
