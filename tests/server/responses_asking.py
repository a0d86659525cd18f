"""A Responses body as the server reads it, without a server."""

from typing import Any

import msgspec

from mashbox.engine.request import Conversation, Request
from mashbox.errors import InvalidRequest
from mashbox.server.body import parse
from mashbox.server.protocols.responses_body import ResponsesRequest, to_request
from mashbox.server.protocols.responses_tools import Toolbox

_decoder = msgspec.json.Decoder(ResponsesRequest)
_SCOPE: Any = {"headers": [(b"x-session-id", b"from the header")], "state": {"tenant": "t"}}


def read(**fields: Any) -> tuple[Request, Toolbox]:
    """The internal request of a body; its input is "hi" unless told."""
    return to_request(parse(msgspec.json.encode({"input": "hi", **fields}), _decoder), _SCOPE)


def conversation(**fields: Any) -> Conversation:
    """The conversation of a body."""
    prompt = read(**fields)[0].prompt
    assert isinstance(prompt, Conversation)
    return prompt


def messages(*items: Any, **fields: Any) -> list[dict[str, Any]]:
    """The template's messages of these input items."""
    return conversation(input=list(items), **fields).messages


def refused(**fields: Any) -> InvalidRequest:
    """The refusal of a body."""
    try:
        read(**fields)
    except InvalidRequest as error:
        return error
    raise AssertionError("it was accepted")
