"""What the server talks to: prepare a prompt, then stream the events that answer it."""

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from mashbox.engine.events import Event
from mashbox.engine.request import EncodedPrompt, Request


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the served model for ``/v1/models``.

    ``gb`` is the size of the weights in memory (10^9 bytes), ``bpw`` the bits per weight of the file.
    ``engine`` and ``engine_why`` are those of :class:`EngineStatus`.
    """

    id: str
    max_model_len: int
    weights: str
    gb: float
    bpw: float
    slots: int
    prefix_cache: bool = False
    cache_ram_mib: int = 0
    engine: str | None = None
    engine_why: str | None = None


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the engine for ``/health`` and the terminal.

    ``progress`` is the share of loading that is done, 0 to 1; ``stage`` says in words what is being done.
    Speculation: ``drafts`` are runs of guesses, ``drafted`` their tokens, ``accepted`` how many runs had
    their first guess, their second … accepted.
    ``engine`` names the one that runs (None before ready), ``engine_why`` tells why it is not the fast one,
    where the choice was open.
    """

    state: Literal["loading", "ok", "failed", "stopped"]
    stage: str = ""
    progress: float = 0.0
    live_rows: int = 0
    worker_pid: int | None = None
    worker_restarts: int = 0
    host_cache_bytes: int = 0
    snapshot_bytes: int = 0
    host_cache_evictions: int = 0
    compiles_after_ready: int | None = None
    cache_namespace: str | None = None
    deployment_id: str | None = None
    component_set_sha: str | None = None
    certified: bool = False
    routed_experts: dict[str, Any] | None = None
    drafts: int = 0
    drafted: int = 0
    accepted: tuple[int, ...] = ()
    engine: str | None = None
    engine_why: str | None = None


class Engine(Protocol):
    """The seam between server and engine. Tests of the server pass a scripted one."""

    @property
    def card(self) -> ModelCard: ...

    def status(self) -> EngineStatus: ...

    async def start(self) -> None:
        """Start loading and return at once; ``status().state`` tells when it is ready."""
        ...

    async def stop(self) -> None:
        """End the worker; requests still running end with :class:`~mashbox.errors.WorkerFault`."""
        ...

    async def encode(self, request: Request) -> EncodedPrompt:
        """Render and tokenise off the event loop.

        Works while the engine loads. Raises InvalidRequest (the template refused, no tokens, or a forced
        call that can't be) or PromptTooLong.
        """
        ...

    def generate(
        self, request: Request, prompt: EncodedPrompt, queue_ms: float = 0.0
    ) -> AsyncIterator[Event]:
        """Events of one request; the caller holds a slot of the waiting line.

        While the worker is started again, it is waited for. Closing the iterator cancels the request: its
        slot is free within one step. Raises EngineLoading (the engine has ended) or WorkerFault.
        """
        ...
