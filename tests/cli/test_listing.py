"""The table of ``mashbox pull --list``: readable at any width, and true to what ``run`` would do."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mashbox import catalog
from mashbox.cli import listing
from mashbox.facts import ModelFacts, gguf_facts, read_facts
from mashbox.gguf_file import GGUFFile, TensorInfo
from mashbox.pull import ensure


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    monkeypatch.setattr("mashbox.memory.available_memory", lambda: 16_000_000_000)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (60, "id quant size ctx here fits"),
        (80, "id quant size ctx here fits tried licence"),
        (120, "id params quant size ctx here fits tried licence"),
        (None, "id params quant size ctx here fits tried licence"),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_whole(width: int | None, columns: str) -> None:
    head, *lines = listing.table(listing.overview(), width)
    assert head.text.split() == columns.split()
    assert all(len(line.text) <= (width or 200) for line in lines)
    licences = {line.text for line in lines if "…" in line.text}
    assert all("Licen" in text or "Communi" in text for text in licences)


def test_a_long_id_stands_whole_on_a_line_of_its_own() -> None:
    rows = listing.overview()
    rows[0]["id"] = "an-organisation/a-model-with-a-long-name:its-file.gguf"
    _, first, second, third = listing.table(rows, 60)[:4]
    assert first.text == rows[0]["id"]
    assert second.text.split()[:2] == ["Q4_1", "98.4"] and second.text.startswith(" ")
    assert third.text.startswith(rows[1]["id"])


def test_what_does_not_fit_is_told_and_marked() -> None:
    lines = {line.text.split()[0]: line for line in listing.table(listing.overview(), None)}
    assert not lines["qwen3-32b"].fits and " no " in lines["qwen3-32b"].text
    assert lines["smollm2-135m"].fits and " 4×8k " in lines["smollm2-135m"].text


@pytest.mark.parametrize(
    ("engine", "kernels", "fits"), [("auto", True, "4×16.2k"), ("exact", True, "no"), ("auto", False, "no")]
)
def test_what_fits_depends_on_the_engine_that_will_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, kernels: bool, fits: str
) -> None:
    library = tmp_path / "kernels"
    if kernels:
        library.touch()
    monkeypatch.setattr("mashbox.capacity.library_path", lambda: library)
    monkeypatch.setenv("MASHBOX_ENGINE", engine)
    (line,) = (line for line in listing.table(listing.overview(), None) if line.text.startswith("qwen3-4b "))
    assert f" {fits} " in line.text


def test_what_does_not_fit_tells_what_it_needs_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mashbox.capacity.library_path", lambda: tmp_path)
    (row,) = (row for row in listing.overview() if row["id"] == "qwen3-32b")
    assert row["fits"] is False
    assert 20e9 < row["memory_bytes"] < 25e9


def test_the_settings_of_run_count(tmp_path: Path) -> None:
    config = tmp_path / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text("[run]\nslots = 3\nctx = 4096\n")
    rows = {row["id"]: row for row in listing.overview()}
    assert (rows["smollm2-135m"]["fits_slots"], rows["smollm2-135m"]["fits_context"]) == (3, 4096)


@pytest.mark.parametrize(
    ("count", "words"), [(512, "512"), (8192, "8k"), (131_072, "128k"), (20_736, "20.2k")]
)
def test_tokens_in_short(count: int, words: str) -> None:
    assert listing.tokens(count) == words


@pytest.mark.real
def test_what_the_catalogue_does_not_know_is_read_from_the_file(starter_gguf: Path) -> None:
    ensure(str(starter_gguf))
    (row,) = (row for row in listing.overview() if row["path"])
    assert (row["quant"], row["parameters"], row["context"]) == ("Q4_1", 134_515_008, 8192)
    assert (row["fits_slots"], row["fits_context"], row["here"]) == (4, 8192, True)


@pytest.mark.real
def test_the_catalogue_s_shapes_are_those_of_the_files(starter_gguf: Path, gemma_gguf: Path) -> None:
    for model, path in (("smollm2-135m", starter_gguf), ("gemma3-270m", gemma_gguf)):
        spec, facts = catalog.load().models[model], read_facts(path, "gguf")
        told = listing._facts_told(spec)
        assert told is not None
        names = ("architecture", "context_length", "hidden", "heads", "head_dim", "vocab")
        names += ("parameters", "kv_numbers", "state_numbers")
        assert [getattr(told, name) for name in names] == [getattr(facts, name) for name in names]
        assert told.packed["auto"] == pytest.approx(facts.packed["auto"], rel=0.06)


PUBLISHED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "published-shapes.json").read_text()
)
"""Metadata of the models' files (or the same from their configurations), with where each was read."""


def published(model: str) -> ModelFacts:
    """What the file would tell of a model, as far as its shape goes."""
    keys = {key: value for key, value in PUBLISHED[model].items() if key not in ("source", "vocab")}
    told = catalog.load().models[model].shape
    architecture = (told and told.architecture) or "unnamed"
    vocab, hidden = PUBLISHED[model]["vocab"], keys["embedding_length"]
    embedding = TensorInfo(
        name="token_embd.weight", shape=(vocab, hidden), type="Q4_K", nbytes=0, n_elements=0, part=0, start=0
    )
    file = SimpleNamespace(
        architecture=architecture,
        metadata={f"{architecture}.{key}": value for key, value in {"context_length": 1, **keys}.items()},
        tensors={embedding.name: embedding},
        paths=[Path("published.gguf")],
        **dict.fromkeys(("n_elements", "file_bytes", "bits_per_weight"), 1),
        quant="Q4_K_M",
    )
    return gguf_facts(cast(GGUFFile, file))


def test_every_untried_model_has_a_published_shape() -> None:
    models = catalog.load().models.values()
    assert set(PUBLISHED) == {spec.id for spec in models if not spec.tried}
    assert all(spec.shape and spec.context for spec in models)


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_shape_is_the_published_one(model: str) -> None:
    spec, facts = catalog.load().models[model], published(model)
    told = listing._facts_told(spec)
    assert told is not None
    for field in ("hidden", "vocab", "kv_numbers", "state_numbers"):
        assert getattr(told, field) == getattr(facts, field), field
    if spec.shape and spec.shape.architecture:
        assert (told.heads, told.head_dim) == (facts.heads, facts.head_dim)
        assert facts.packed and told.packed
    if "context_length" in PUBLISHED[model]:
        assert spec.context == facts.context_length
