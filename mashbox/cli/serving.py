"""The running server of ``mashbox run``: what is printed beside it from its start to its end."""

import asyncio
import os
import sys
import time
from collections.abc import Iterable

from mashbox.cli import console, recipes, statusline
from mashbox.cli.loading import until_ready
from mashbox.cli.watch import Files, watch
from mashbox.engine.engine import EngineStatus, ModelCard
from mashbox.engine.local import LocalEngine
from mashbox.engine.process import WorkerProcess
from mashbox.engine.settings import EngineSettings
from mashbox.facts import ModelFacts
from mashbox.memory import MemoryPlan
from mashbox.server.app import create_app, service_of
from mashbox.server.page import NoBundle
from mashbox.server.serve import serve
from mashbox.server.service import Service
from mashbox.server.settings import ServerSettings
from mashbox.settings import Settings
from mashbox.store import LocalModel


def serve_model(
    chosen: Settings,
    server: ServerSettings,
    model: LocalModel,
    facts: ModelFacts,
    plan: MemoryPlan,
    settings: EngineSettings,
    worker: WorkerProcess,
) -> None:
    """Serve the model that ``worker`` loads with these settings until told to end.

    Raises ModelError, UsageError.
    """
    engine = LocalEngine(
        model,
        facts,
        settings,
        on_words=console.foreign if worker.stderr else None,
        first=worker,
    )
    files = Files([file.path for file in model.files])

    async def beside(url: str) -> None:
        try:
            await until_ready(engine)
            console.note(f"Ready after {time.monotonic() - worker.began:.1f} s: {url}")
            tell_what_fits(engine.card, plan)
            tell(recipes.recipes(url, model, ctx=engine.card.max_model_len, keyed=server.keyed))
            console.note("Ctrl-C ends the server.")
            if chosen.open:
                await asyncio.to_thread(open_page, url)
            with statusline.shown(statusline.Gauge(Serving(service_of(app)))) as draw:
                await watch(engine, files, draw)
        except asyncio.CancelledError:
            console.note(f"Stopping: running requests get {chosen.drain} s, Ctrl-C again ends them at once.")
            raise

    app = create_app(engine, server)
    if isinstance(app.state.page, NoBundle):
        console.warn(
            f"The chat page is not built. {app.state.page} `make ui`, or installing again, builds it."
        )
    serve(app, server, on_listening=beside)
    console.note("Stopped.")


def tell_what_fits(card: ModelCard, plan: MemoryPlan) -> None:
    """Say how much the engine has that runs in place of the one the memory was planned for."""
    if card.engine_why and (card.max_model_len, card.slots) != (plan.ctx, plan.slots):
        console.note(
            f"The memory was planned for the fast engine: beside the {card.engine} one, {card.slots} slots "
            f"of {card.max_model_len:,} tokens fit."
        )


def tell(recipes_: Iterable[recipes.Recipe]) -> None:
    """Print how to use the server; a line too long for the terminal is laid out in several."""
    notes = console.notes()
    for recipe in recipes_:
        if notes.is_terminal:
            for line in recipe.laid_out(notes.width):
                console.verbatim(line)
        else:
            console.verbatim(recipe.line)


def open_page(url: str) -> None:
    """Show the page in the user's browser. A text browser would take the terminal away: that is none."""
    import webbrowser

    shown = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    try:
        opened = shown and webbrowser.open(url)
    except webbrowser.Error:
        opened = False
    if not opened:
        console.note(f"There is no browser to open here. The page is at {url}")


class Serving:
    """The figures of a running server, for the status line."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def slots(self) -> int:
        return self._service.line.slots

    @property
    def running(self) -> int:
        return self._service.line.running

    @property
    def waiting(self) -> int:
        return self._service.line.waiting

    @property
    def generated(self) -> int:
        return self._service.metrics.generated

    @property
    def prompt_tokens(self) -> int:
        return self._service.metrics.looked_up[0]

    @property
    def cached_tokens(self) -> int:
        return self._service.metrics.looked_up[1]

    def status(self) -> EngineStatus:
        return self._service.engine.status()
