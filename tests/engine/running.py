"""An engine for the time of a block."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mashbox.engine.local import LocalEngine
from tests.patience import PATIENCE


@asynccontextmanager
async def running(engine: LocalEngine) -> AsyncIterator[LocalEngine]:
    """Started, and ready or failed for good; stopped afterwards."""
    await engine.start()
    try:
        await asyncio.wait_for(engine.wait_ready(), PATIENCE)
        yield engine
    finally:
        await engine.stop()
