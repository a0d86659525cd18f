"""The running server of ``mashbox run``: what is printed beside it from its start to its end."""

import asyncio
import time

from mashbox.cli import console, recipes
from mashbox.cli.loading import until_ready
from mashbox.cli.watch import Files, watch
from mashbox.engine.local import EngineSettings, LocalEngine
from mashbox.facts import ModelFacts
from mashbox.memory import MemoryPlan
from mashbox.server.app import create_app
from mashbox.server.serve import serve
from mashbox.server.settings import ServerSettings
from mashbox.settings import Settings
from mashbox.store import LocalModel


def engine_settings(chosen: Settings, plan: MemoryPlan, cache_ram: int) -> EngineSettings:
    """How the model is run: what was chosen, with what the memory plan settled; ``cache_ram`` is in MiB."""
    return EngineSettings(
        ctx=plan.ctx,
        slots=plan.slots,
        engine=chosen.engine,
        weights=chosen.weights,
        device="cpu",
        threads=chosen.threads or 0,
        step_timeout=float(chosen.step_timeout),
        cache_ram_mib=cache_ram,
        share_cache=chosen.share_cache,
    )


def serve_model(
    chosen: Settings,
    server: ServerSettings,
    model: LocalModel,
    facts: ModelFacts,
    plan: MemoryPlan,
    cache_ram: int,
) -> None:
    """Load the model and serve it until told to end; ``cache_ram`` is in MiB.

    Raises ModelError, UsageError.
    """
    engine = LocalEngine(
        model,
        facts,
        engine_settings(chosen, plan, cache_ram),
    )
    files = Files([file.path for file in model.files])
    began = time.monotonic()

    async def beside(url: str) -> None:
        try:
            await until_ready(engine)
            console.note(f"Ready after {time.monotonic() - began:.1f} s: {url}")
            for line in recipes.lines(url, model.id, ctx=plan.ctx, keyed=server.keyed):
                console.note(line)
            console.note("Ctrl-C ends the server.")
            await watch(engine, files)
        except asyncio.CancelledError:
            console.note(f"Stopping: running requests get {chosen.drain} s, Ctrl-C again ends them at once.")
            raise

    serve(create_app(engine, server), server, on_listening=beside)
    console.note("Stopped.")
