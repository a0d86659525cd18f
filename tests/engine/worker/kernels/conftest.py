"""The kernels' tests run on the sources at hand: compiled first where that is not done."""

import shutil

import pytest

from mashbox.engine.worker.kernels.compile import compile_kernels


@pytest.fixture(scope="session", autouse=True)
def compiled_kernels() -> None:
    if not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("no C++ compiler: this install has no fast engine")
    missing = compile_kernels()
    assert missing is None, missing
