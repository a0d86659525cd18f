"""``POST /v1/responses``: OpenAI's Responses. Nothing is stored: a request holds its whole conversation."""

from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import post
from litestar.datastructures import State
from litestar.types import ASGIApp

from mashbox.server.body import parse
from mashbox.server.protocols.responses_answer import Echo, ResponsesAnswer
from mashbox.server.protocols.responses_body import ResponsesRequest, to_request
from mashbox.server.respond import Respond
from mashbox.server.service import Service

_decoder = msgspec.json.Decoder(ResponsesRequest)


@post("/v1/responses", status_code=200)
async def create_response(request: HttpRequest[Any, Any, Any], state: State) -> ASGIApp:
    """OpenAI Responses with function, custom and namespace tools, reasoning and streaming."""
    service: Service = state.service
    service.check_ready()
    body = parse(await request.body(), _decoder)
    service.check_model(body.model)
    asked, box = to_request(body, request.scope)
    echo = Echo(
        parallel_tool_calls=bool(body.parallel_tool_calls),
        tool_choice=body.tool_choice or "auto",
        tools=body.tools or [],
    )
    answer = ResponsesAnswer(asked.id, service.engine.card.id, echo, box, carry=body.carries_thinking)
    return Respond(service, asked, answer, stream=bool(body.stream))
