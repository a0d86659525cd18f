"""``/openapi.json``: the OpenAPI description of this server.

The document is data beside this module (``openapi.json``); what changes from server to server is filled in
here. Tests hold it equal to the structs that read requests, and answers to it.
"""

import functools
from importlib import resources
from typing import Any

import msgspec
from litestar import Response, get
from litestar.datastructures import State
from litestar.enums import MediaType

from mashbox import __version__
from mashbox.server.service import Service

JsonObject = dict[str, Any]


def _written() -> JsonObject:
    """A fresh copy of the document as it is written."""
    raw = resources.files("mashbox.server").joinpath("openapi.json").read_bytes()
    return msgspec.json.decode(raw, type=JsonObject)


def description(model: str) -> JsonObject:
    """The description of a server of ``model``: this version, and examples that name the model."""
    document = _written()
    document["info"]["version"] = __version__
    for operations in document["paths"].values():
        for operation in operations.values():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                media["example"] = {"model": model, **media["example"]}
    return document


@functools.lru_cache(maxsize=1)
def _encoded(model: str) -> bytes:
    return msgspec.json.encode(description(model))


@get("/openapi.json")
async def openapi(state: State) -> Response[bytes]:
    """The description, while the model loads too."""
    service: Service = state.service
    return Response(_encoded(service.engine.card.id), media_type=MediaType.JSON)
