"""The optional step of an install: what it does, and what it says when it can't."""

import ctypes
import shutil
from pathlib import Path

import pytest

from mashbox.engine.worker.kernels import compile as step
from mashbox.engine.worker.kernels import cpu
from mashbox.errors import UsageError

ONE = """extern "C" __attribute__((visibility("default"))) int one() {{ return {}; }}\n"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few lines in the place of the kernels."""
    (tmp_path / "one.cpp").write_text(ONE.format(1))
    monkeypatch.setattr(step, "SOURCES", tmp_path)
    return tmp_path


def test_a_library_of_other_sources_is_replaced(sources: Path) -> None:
    assert step.compile_kernels() is None
    first = step.library_path()
    assert ctypes.CDLL(str(first)).one() == 1
    built = first.stat().st_mtime_ns
    assert step.compile_kernels() is None
    assert first.stat().st_mtime_ns == built
    (sources / "one.cpp").write_text(ONE.format(2))
    assert not step.library_path().exists()
    assert step.compile_kernels() is None
    assert [path.name for path in sources.glob("*.so")] == [step.library_path().name]
    assert sorted(path.suffix for path in sources.iterdir()) == [".cpp", ".so"]


def test_a_source_that_does_not_compile_is_told(sources: Path) -> None:
    (sources / "one.cpp").write_text("int one( {\n")
    missing = step.compile_kernels()
    assert missing is not None
    assert "could not be compiled" in missing
    assert not step.library_path().exists()


def test_flags_that_the_compiler_does_not_know_are_left_out_of_an_optional_file(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "_OF_ANY_PROCESSOR", {"one.cpp": ("-mno-such-instructions",)})
    assert "could not be compiled" in str(step.compile_kernels())
    monkeypatch.setattr(step, "_OPTIONAL", ("one.cpp",))
    assert step.compile_kernels() is None
    assert ctypes.CDLL(str(step.library_path())).one() == 1


def test_a_missing_compiler_is_told(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    missing = step.compile_kernels()
    assert missing is not None
    assert "Install g++" in missing


def test_an_install_without_kernels_says_so(sources: Path) -> None:
    cpu.library.cache_clear()
    try:
        with pytest.raises(UsageError, match="not built"):
            cpu.best_instructions()
    finally:
        cpu.library.cache_clear()
