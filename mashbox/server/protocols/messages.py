"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's Messages."""

from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Response, post
from litestar.datastructures import State
from litestar.types import ASGIApp, Scope

from mashbox.engine.request import Request
from mashbox.errors import InvalidRequest, PromptTooLong
from mashbox.server.body import invalid, parse
from mashbox.server.protocols.common import (
    limit_of,
    new_id,
    random_seed,
    refuse_logprobs,
    sampling_of,
    session_of,
    stops_of,
    tenant_of,
)
from mashbox.server.protocols.messages_answer import MessageAnswer
from mashbox.server.protocols.messages_body import (
    CountTokensRequest,
    MessagesRequest,
    conversation_of,
    refuse_prefill,
)
from mashbox.server.respond import Respond
from mashbox.server.service import Service

_decoder = msgspec.json.Decoder(MessagesRequest)
_count_decoder = msgspec.json.Decoder(CountTokensRequest)


def _refuse_unsupported(body: MessagesRequest) -> None:
    refuse_logprobs("logprobs", body.logprobs)
    refuse_logprobs("top_logprobs", body.top_logprobs)
    structured = "is not supported: this server gives no structured output."
    if body.output_config is not None and body.output_config.format is not None:
        raise invalid("output_config.format", structured)
    if body.output_format is not None:
        raise invalid("output_format", structured)
    if body.mcp_servers:
        raise invalid("mcp_servers", "is not supported: tools run on the client's side.")


def to_request(body: MessagesRequest, scope: Scope) -> Request:
    """The internal request. Raises InvalidRequest naming the field."""
    _refuse_unsupported(body)
    conversation, forced = conversation_of(body)
    refuse_prefill(body)
    return Request(
        id=new_id("msg_"),
        prompt=conversation,
        sampling=sampling_of(body, random_seed() if body.seed is None else body.seed),
        max_tokens=limit_of(body),
        stop=stops_of(body),
        forced=forced,
        session=session_of(scope, body.prompt_cache_key),
        tenant=tenant_of(scope),
    )


@post("/v1/messages", status_code=200)
async def create_message(request: HttpRequest[Any, Any, Any], state: State) -> ASGIApp:
    """Anthropic Messages with client tools, thinking and streaming. Any model id is taken and echoed."""
    service: Service = state.service
    service.check_ready()
    body = parse(await request.body(), _decoder)
    asked = to_request(body, request.scope)
    answer = MessageAnswer(asked.id, body.model or service.engine.card.id)
    return Respond(service, asked, answer, stream=bool(body.stream))


@post("/v1/messages/count_tokens", status_code=200)
async def count_tokens(request: HttpRequest[Any, Any, Any], state: State) -> Response[dict[str, int]]:
    """The prompt tokens that ``/v1/messages`` would use. Does not wait in the line, and knows no limit."""
    service: Service = state.service
    service.check_ready()
    body = parse(await request.body(), _count_decoder)
    conversation, forced = conversation_of(body)
    asked = Request(id=new_id("count_"), prompt=conversation, forced=forced, tenant=tenant_of(request.scope))
    try:
        tokens = len((await service.engine.encode(asked)).ids)
    except PromptTooLong as error:
        tokens = error.tokens
    except RecursionError:
        raise InvalidRequest("messages is nested too deeply.", param="messages") from None
    return Response({"input_tokens": tokens})
