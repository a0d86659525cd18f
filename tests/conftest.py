"""Fixtures shared by all tests: the real models, found in the environment or pulled once."""

import os
from pathlib import Path

import pytest


def _real(variable: str, model: str) -> Path:
    given = os.environ.get(variable)
    if given:
        return Path(given)
    pytest.skip(f"{model}: set {variable}")


@pytest.fixture(scope="session")
def starter_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    return _real("MASHBOX_TEST_STARTER", "smollm2-135m")


@pytest.fixture(scope="session")
def gemma_gguf() -> Path:
    """Gemma 3 270M base, Q4_K_M."""
    return _real("MASHBOX_TEST_GEMMA", "gemma3-270m")
