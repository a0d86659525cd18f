"""Names of what is served change with it, and only with it."""

from pathlib import Path

from mashbox.engine.identity import cache_namespace, component_set_sha, deployment_id
from mashbox.store import LocalFile, LocalModel


def model(folder: Path, sha256: str | None = "ab", template: str = "t") -> LocalModel:
    (folder / "chat_template.jinja").write_text(template)
    file = LocalFile(path=folder / "x.gguf", bytes=1, sha256=sha256)
    return LocalModel(
        id="x", format="gguf", weights=file.path, files=[file], tokenizer=folder, spec=None, source="-"
    )


def test_components_are_named_by_weights_and_template(tmp_path: Path) -> None:
    first = component_set_sha(model(tmp_path))
    assert first == component_set_sha(model(tmp_path)) and first and len(first) == 64
    assert component_set_sha(model(tmp_path, sha256="cd")) != first
    assert component_set_sha(model(tmp_path, template="other")) != first
    assert component_set_sha(model(tmp_path, sha256=None)) is None


def test_a_deployment_is_named_by_its_settings_too() -> None:
    assert deployment_id("a", [1, "cpu"]) != deployment_id("a", [2, "cpu"]) != deployment_id("b", [2, "cpu"])
    assert deployment_id(None, []) is None and cache_namespace(None, "exact", "f32", 16) is None
    names = [("exact", "f32", 16), ("exact", "bf16", 16), ("fast", "auto", 16), ("fast", "auto", 8)]
    assert len({cache_namespace("a", *name) for name in names}) == 4
