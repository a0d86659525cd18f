"""The body of ``POST /v1/responses`` and the internal request that it becomes."""

from typing import Any

import msgspec
from litestar.types import Scope

from mashbox.engine.request import Conversation, Request
from mashbox.server.body import invalid
from mashbox.server.protocols.common import (
    SharedFields,
    TokenLimit,
    limit_of,
    new_id,
    random_seed,
    refuse_logprobs,
    sampling_of,
    session_of,
    stops_of,
    tenant_of,
)
from mashbox.server.protocols.responses_items import TOOLS_ITEM, Item, as_items, template_messages
from mashbox.server.protocols.responses_tools import ClientTool, Toolbox, choose_tools, read_tools

NO_THINKING = ("none", "minimal")
ENCRYPTED_REASONING = "reasoning.encrypted_content"


class Reasoning(msgspec.Struct):
    """``effort`` other than none and minimal turns thinking on."""

    effort: str | None = None


class ResponsesRequest(SharedFields, kw_only=True):
    """The body. Unknown fields are ignored; the last four are known only to be refused."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = False
    reasoning: Reasoning | None = None
    store: bool | None = None
    client_metadata: dict[str, Any] | None = None
    include: list[Any] | None = None
    top_logprobs: int | None = None
    text: dict[str, Any] | None = None
    max_output_tokens: TokenLimit | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None

    @property
    def carries_thinking(self) -> bool:
        """Whether thoughts are wanted in a form that the client sends back."""
        return ENCRYPTED_REASONING in (self.include or ())


def _refuse_unsupported(body: ResponsesRequest) -> None:
    refuse_logprobs("top_logprobs", body.top_logprobs)
    for index, entry in enumerate(body.include or ()):
        if "logprobs" in str(entry):
            refuse_logprobs(f"include[{index}]", True)
    format = (body.text or {}).get("format")
    if format is not None and not (isinstance(format, dict) and format.get("type") == "text"):
        raise invalid("text.format", 'takes only {"type": "text"}: structured output is not supported.')
    for field in ("previous_response_id", "conversation", "prompt"):
        if getattr(body, field) is not None:
            raise invalid(
                field, "is not supported: nothing is stored here.", "Send the whole conversation as input."
            )
    if body.background:
        raise invalid("background", "is not supported: answers are not stored.", "Leave it out, and stream.")


def _toolbox(body: ResponsesRequest, items: list[Item]) -> Toolbox:
    tools: list[ClientTool] = read_tools(body.tools or [], "tools")
    for index, item in enumerate(items):
        if item.get("type") == TOOLS_ITEM:
            tools += _added_tools(item, f"input[{index}].tools")
    return Toolbox(tools)


def _added_tools(item: Item, at: str) -> list[ClientTool]:
    given = item.get("tools")
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise invalid(at, "must be a list of objects." if given is not None else "is missing.")
    return read_tools(given, at)


def to_request(body: ResponsesRequest, scope: Scope) -> tuple[Request, Toolbox]:
    """The internal request, and what turns its calls back. Raises InvalidRequest naming the field."""
    _refuse_unsupported(body)
    items = as_items(body.input)
    box = _toolbox(body, items)
    shown, forced = choose_tools(body.tool_choice, box)
    effort = body.reasoning.effort if body.reasoning else None
    conversation = Conversation(
        messages=template_messages(body.instructions, items, box),
        tools=box.functions(shown),
        thinking=effort is not None and effort not in NO_THINKING,
    )
    request = Request(
        id=new_id("resp_"),
        prompt=conversation,
        sampling=sampling_of(body, random_seed() if body.seed is None else body.seed),
        max_tokens=limit_of(body) if body.max_output_tokens is None else body.max_output_tokens,
        stop=stops_of(body),
        forced=forced,
        session=session_of(scope, body.prompt_cache_key),
        tenant=tenant_of(scope),
    )
    return request, box
