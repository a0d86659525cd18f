"""A local engine over a saved tiny model, with a real worker process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mashbox.engine.local import LocalEngine
from mashbox.engine.settings import EngineSettings
from mashbox.facts import read_facts
from mashbox.store import LocalModel
from tests.engine.letters import Letters
from tests.engine.running import running
from tests.engine.worker.load.test_safetensors import save

CTX, SLOTS = 64, 2


@asynccontextmanager
async def tiny_engine(folder: Path, model_type: str, weights: str = "auto") -> AsyncIterator[LocalEngine]:
    """Ready, over ``model_type`` as transformers saves it."""
    save(folder, model_type)
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    model = LocalModel(
        id="tiny",
        format="safetensors",
        weights=folder,
        files=[],
        tokenizer=Letters().save(tokenizer),
        spec=None,
        source="-",
    )
    settings = EngineSettings(ctx=CTX, slots=SLOTS, weights=weights, threads=1, engine="exact")
    async with running(LocalEngine(model, read_facts(folder, "safetensors"), settings)) as engine:
        assert engine.status().state == "ok", engine.failure
        yield engine
