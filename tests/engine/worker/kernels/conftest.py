"""The kernels' tests run on the sources at hand: compiled first where that is not done."""

import shutil

import pytest

from mashbox.engine.worker import build
from mashbox.engine.worker.kernels.compile import compile_kernels


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("no C++ compiler: this install has no fast engine")
    missing = compile_kernels()
    assert missing is None, missing


@pytest.fixture(autouse=True)
def not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each build would ask another process whether the model agrees; ``test_agreement`` holds that."""
    monkeypatch.setattr(build, "check_agreement", lambda *_, **__: "")
