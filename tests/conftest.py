"""Fixtures shared by all tests: the real models, pulled once into a folder of the checkout."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tests.hypotheses  # noqa: F401  (its profiles)

# A run in the background may have begun with Ctrl-C ignored, and every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

MODEL_HOME = Path(__file__).parent.parent / ".test-models"


LONG = (
    "agents/test_claude_code.py",
    "test_faults_job.py",
    "test_main_job.py",
    "engine/worker/kernels/test_sanitized.py",
    "cli/test_bench.py",
    "engine/test_local.py",
    "server/test_schemathesis.py",
    "ui/test_trouble.py",
    "agents/test_pi.py",
    "agents/test_codex.py",
    "test_load.py",
    "cli/test_run.py",
    "ui/test_access.py",
    "ui/test_conversations.py",
    "ui/test_safety.py",
    "engine/worker/test_footprint.py",
    "engine/worker/test_certify.py",
    "engine/worker/load/test_gguf_real.py",
    "engine/worker/kernels/test_fast_real.py",
    "ui/test_real.py",
    "ui/test_unit.py",
    "cli/test_certifying.py",
    "test_messages_job.py",
    "test_responses_job.py",
    "engine/worker/test_exact.py",
    "engine/worker/kernels/test_agreement.py",
    "cli/test_run_terminal.py",
    "cli/test_terminal.py",
    "pull/test_wheel.py",
    "server/test_patience.py",
)
"""Files that take longest, in order. The first npm install of the agents is not waited for by two of them."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, files that hold no other are not imported: that alone takes seconds."""
    if collection_path.suffix != ".py" or "not slow" not in config.option.markexpr:
        return None
    return True if _ALL_SLOW.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first: processes take file after file, and none shall begin a long one at the end."""
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


_ALL_SLOW = re.compile(r"^pytestmark = (.*mark\.slow|MARKS)", re.MULTILINE)


@contextmanager
def home(folder: Path) -> Iterator[None]:
    """MASHBOX_HOME for the time of the block."""
    before = os.environ.get("MASHBOX_HOME")
    os.environ["MASHBOX_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("MASHBOX_HOME")
        if before is not None:
            os.environ["MASHBOX_HOME"] = before


@pytest.fixture(scope="module", autouse=True)
def no_loop_stays() -> Iterator[None]:
    """A module leaves no event loop running in this thread: no ``asyncio.run`` after it would work."""
    yield
    assert asyncio._get_running_loop() is None, "an event loop still runs: a browser that was not stopped?"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[list[int]]:
    """No engine that a module's tests run has compiled anything after it was ready, when it is stopped.

    Servers in processes of their own are asked by :mod:`tests.real_server`. A test that compiles on purpose
    takes its counts out of this list.
    """
    from mashbox.engine.local import LocalEngine

    counts: list[int] = []
    stop = LocalEngine.stop

    async def counted(engine: LocalEngine) -> None:
        counts.append(engine.status().compiles_after_ready or 0)
        await stop(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEngine, "stop", counted)
        yield counts
    assert not any(counts), "programs were compiled after the engine was ready"


def _pulled(model: str) -> Path:
    from mashbox.pull import Silent, ensure

    with home(MODEL_HOME):
        return ensure(model, Silent()).weights


@pytest.fixture(scope="session")
def model_home() -> Path:
    """A MASHBOX_HOME in which the starter is pulled."""
    _pulled("smollm2-135m")
    return MODEL_HOME


@pytest.fixture(scope="session")
def starter_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    given = os.environ.get("MASHBOX_TEST_STARTER")
    return Path(given) if given else _pulled("smollm2-135m")


@pytest.fixture(scope="session")
def gemma_gguf() -> Path:
    """Gemma 3 270M base, Q4_K_M."""
    given = os.environ.get("MASHBOX_TEST_GEMMA")
    return Path(given) if given else _pulled("gemma3-270m")
