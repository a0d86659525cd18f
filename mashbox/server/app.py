"""The application: routes, errors, and the engine's life, behind the boundary."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException

from mashbox.engine.engine import Engine
from mashbox.server import page, page_state, status
from mashbox.server.boundary import Boundary, Routes, too_large
from mashbox.server.describe import openapi
from mashbox.server.failure import failure_of, family_of
from mashbox.server.keys import Keys, keys_of
from mashbox.server.metrics import metrics
from mashbox.server.origin import HostNames
from mashbox.server.protocols.chat import create_chat_completion
from mashbox.server.protocols.completions import create_completion
from mashbox.server.protocols.messages import count_tokens, create_message
from mashbox.server.protocols.responses import create_response
from mashbox.server.record import record_of
from mashbox.server.service import Service
from mashbox.server.settings import ServerSettings


def create_app(engine: Engine, settings: ServerSettings, keys: Keys | None = None) -> Litestar:
    """The server of one engine. ``keys`` default to the settings' own; none at all: no key is checked.

    The engine is started and stopped with the application; routes answer 503 until it is ready.
    """
    service = Service(engine, settings)

    @asynccontextmanager
    async def running(_: Litestar) -> AsyncIterator[None]:
        try:
            await engine.start()
        except Exception as error:
            service.start_error = error
            raise
        try:
            yield
        finally:
            await engine.stop()

    app = Litestar(
        route_handlers=[
            page.root,
            page.asset,
            page_state.state_of_page,
            status.health,
            status.list_models,
            status.get_model,
            metrics,
            openapi,
            create_chat_completion,
            create_completion,
            create_response,
            create_message,
            count_tokens,
        ],
        state=State({"service": service, "page": _page() if settings.ui else None}),
        lifespan=[running],
        exception_handlers={Exception: _to_response},
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    if keys is None:
        keys = keys_of(settings)
    hosts = HostNames(settings.host, settings.allow_hosts)
    app.asgi_handler = Boundary(app.asgi_handler, service, Routes(app), hosts, keys)
    return app


def _page() -> page.Page | page.NoBundle:
    try:
        return page.load()
    except page.NoBundle as reason:
        return reason


def service_of(app: Litestar) -> Service:
    """The running server behind an application."""
    service: Service = app.state.service
    return service


def _to_response(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    family = family_of(request.url.path)
    if isinstance(error, HTTPException) and error.status_code == 413:
        error = too_large(service_of(request.app).settings.max_body_bytes)
    record_of(request.scope).failed(error)
    failure = failure_of(error, family)
    body = failure.body(family, request.scope["state"]["request_id"])
    return Response(body, status_code=failure.status, headers=dict(failure.headers))
