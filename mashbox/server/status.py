"""``/health`` and ``/v1/models``."""

from typing import Any, Literal

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State

from mashbox.engine.engine import ModelCard
from mashbox.errors import EngineLoading, ModelNotFound
from mashbox.server.service import Service


class Loading(msgspec.Struct, frozen=True):
    """What is being done, in words, and the share of it that is done, 0 to 1."""

    stage: str
    share: float


class Health(msgspec.Struct, kw_only=True, omit_defaults=False):
    """The ``Health`` schema; what an engine without a worker process does not know is left out, and so is
    ``loading`` once requests are taken."""

    status: Literal["ok", "loading"]
    loading: Loading | msgspec.UnsetType = msgspec.UNSET
    live_rows: int | None
    waiting: int
    cache_bytes: int = 0
    host_cache_bytes: int = 0
    snapshot_bytes: int = 0
    host_cache_cap_bytes: int = 0
    host_cache_evictions: int = 0
    cache_namespace: str | None = None
    deployment_id: str | None = None
    component_set_sha: str | None = None
    certification: Literal["certified", "not_certified"] = "not_certified"
    compiles_after_ready: int | None = None
    routed_experts: dict[str, Any] | None = None
    engine: str | None = None
    engine_why: str | None = None
    worker_pid: int | msgspec.UnsetType = msgspec.UNSET
    worker_restarts: int = 0


def health_of(service: Service) -> Health:
    """A snapshot of engine and line."""
    status = service.engine.status()
    return Health(
        status="ok" if service.ready else "loading",
        loading=msgspec.UNSET if service.ready else Loading(status.stage, status.progress),
        live_rows=status.live_rows if status.state == "ok" else None,
        waiting=service.line.waiting,
        cache_bytes=status.host_cache_bytes + status.snapshot_bytes,
        host_cache_bytes=status.host_cache_bytes,
        snapshot_bytes=status.snapshot_bytes,
        host_cache_cap_bytes=service.engine.card.cache_ram_mib << 20,
        host_cache_evictions=status.host_cache_evictions,
        cache_namespace=status.cache_namespace,
        deployment_id=status.deployment_id,
        component_set_sha=status.component_set_sha,
        certification="certified" if status.certified else "not_certified",
        compiles_after_ready=status.compiles_after_ready,
        routed_experts=status.routed_experts,
        engine=status.engine,
        engine_why=status.engine_why,
        worker_pid=msgspec.UNSET if status.worker_pid is None else status.worker_pid,
        worker_restarts=status.worker_restarts,
    )


@get(["/health", "/v1/health"])
async def health(state: State) -> Response[Health]:
    """200 when requests are taken, 503 while the model loads."""
    return health_response(state.service)


def health_response(service: Service) -> Response[Health]:
    """The health of a server, in its body and in its status."""
    report = health_of(service)
    if report.status == "ok":
        return Response(report, status_code=200)
    return Response(report, status_code=503, headers={"retry-after": str(EngineLoading().retry_after)})


def model_of(card: ModelCard) -> dict[str, Any]:
    """One object with OpenAI's and Anthropic's fields, which satisfies the clients of both."""
    return {
        "id": card.id,
        "object": "model",
        "owned_by": "mashbox-labs",
        "created": 0,
        "max_model_len": card.max_model_len,
        "weights": card.weights,
        "gb": card.gb,
        "bpw": card.bpw,
        "prefix_cache": card.prefix_cache,
        "slots": card.slots,
        "cache_ram_mib": card.cache_ram_mib,
        "engine": card.engine,
        "engine_why": card.engine_why,
        "type": "model",
        "display_name": card.id,
        "created_at": "1970-01-01T00:00:00Z",
    }


@get("/v1/models")
async def list_models(state: State) -> dict[str, Any]:
    """The one model that is served, while it loads too."""
    card = state.service.engine.card
    page = {"first_id": card.id, "last_id": card.id, "has_more": False}
    return {"object": "list", "data": [model_of(card)], **page}


@get("/v1/models/{model:path}")
async def get_model(request: Request[Any, Any, Any], state: State) -> dict[str, Any]:
    """The model, when the rest of the path is its id; slashes may be percent-encoded."""
    card = state.service.engine.card
    asked = str(request.path_params["model"]).removeprefix("/")
    if asked != card.id:
        raise ModelNotFound(asked, card.id)
    return model_of(card)
