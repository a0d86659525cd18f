"""How a model is run, and what its worker is told of that."""

from typing import Literal

import msgspec

from mashbox.engine.wire import Start
from mashbox.engine.worker.kernels.compile import library_path
from mashbox.store import LocalModel


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is run; ``ctx`` and ``slots`` are already chosen, see ``capacity.plan``.

    ``ctx_auto``, ``slots_auto`` and ``cache_ram_auto``: nobody asked for it. Where the engine that runs in
    the end is not the one that was planned for, such a choice is made anew.
    """

    ctx: int
    slots: int
    ctx_auto: bool = False
    slots_auto: bool = False
    engine: Literal["auto", "exact", "fast"] = "auto"
    weights: str = "auto"
    activations: int = 16
    device: str = "cpu"
    threads: int = 0
    step_timeout: float = 60.0
    cache_ram_mib: int = 0
    cache_ram_auto: bool = False
    share_cache: bool = False
    speculation: Literal["auto", "off"] = "auto"

    @property
    def deployment(self) -> list[object]:
        """What results depend on. Not the prompt cache: states come back from it to the bit. Nor speculation:
        it changes no token. The kernels are part of it: without them, auto is the exact engine."""
        kernels = library_path()
        built = kernels.name if kernels.exists() and self.engine != "exact" else ""
        how = [self.engine, self.weights, self.activations, self.device, self.threads]
        return [self.ctx, self.slots, *how, built]


def start_message(model: LocalModel, settings: EngineSettings) -> Start:
    """What a worker is told to serve ``model`` so."""
    return Start(
        model=str(model.weights),
        format=model.format,
        tokenizer=str(model.tokenizer),
        ctx=settings.ctx,
        slots=settings.slots,
        ctx_auto=settings.ctx_auto,
        slots_auto=settings.slots_auto,
        engine=settings.engine,
        weights=settings.weights,
        activations=settings.activations,
        device=settings.device,
        threads=settings.threads,
        cache_bytes=settings.cache_ram_mib << 20,
        cache_auto=settings.cache_ram_auto,
        share_cache=settings.share_cache,
        speculation=settings.speculation,
    )
