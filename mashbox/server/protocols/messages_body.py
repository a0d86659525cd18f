"""The body of Anthropic's Messages, turned into the conversation that chat templates take.

The shapes of blocks are those of Anthropic's Messages API reference ("Create a Message").
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from mashbox.engine.request import Conversation, ForcedCall
from mashbox.errors import InvalidRequest
from mashbox.server.body import invalid
from mashbox.server.protocols.common import SharedFields
from mashbox.server.protocols.messages_turns import Turns, system_text


class InputMessage(msgspec.Struct):
    """One message; its content is text or a list of blocks."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Any]


class Tool(msgspec.Struct):
    """A tool of the client's. Any ``type`` but custom is one that Anthropic's own servers would run.

    ``defer_loading``: the model is told of it only when a ``tool_reference`` block has named it.
    """

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    defer_loading: bool | None = None


class ToolChoice(msgspec.Struct):
    """``name`` goes with the type ``tool``. ``disable_parallel_tool_use`` is accepted and ignored."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingSwitch(msgspec.Struct):
    """Whether the model thinks; the budget is accepted and ignored."""

    type: Literal["enabled", "adaptive", "disabled"] | None = None
    budget_tokens: int | None = None


class OutputConfig(msgspec.Struct):
    """``effort`` is accepted and ignored, ``format`` (structured output) is refused."""

    effort: Any = None
    format: Any = None


class PromptBody(Protocol):
    """The fields that make the prompt: the same ones to generate with and to count."""

    messages: list[InputMessage]
    system: str | list[Any] | None
    tools: list[Tool] | None
    tool_choice: ToolChoice | None
    thinking: ThinkingSwitch | None


class MessagesRequest(SharedFields, kw_only=True):
    """The body of ``/v1/messages``. Unknown fields are ignored."""

    messages: list[InputMessage]
    system: str | list[Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingSwitch | None = None
    metadata: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    output_format: Any = None
    mcp_servers: list[Any] | None = None
    logprobs: int | bool | None = None
    top_logprobs: int | bool | None = None


class CountTokensRequest(msgspec.Struct, kw_only=True):
    """The body of ``/v1/messages/count_tokens``. Unknown fields are ignored."""

    messages: list[InputMessage]
    model: str | None = None
    system: str | list[Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingSwitch | None = None


def conversation_of(body: PromptBody) -> tuple[Conversation, ForcedCall | None]:
    """What the model is shown, and the call that is asked for. Raises InvalidRequest naming the field."""
    if not body.messages:
        raise InvalidRequest("messages must not be empty.", param="messages")
    turns = Turns(system_text(body.system, "system"))
    for i, message in enumerate(body.messages):
        turns.add(message.role, message.content, f"messages[{i}].content")
    tools, forced = _tools_and_choice(body, turns.referenced)
    return Conversation(messages=turns.all(), tools=tools, thinking=_thinks(body.thinking)), forced


def refuse_prefill(body: PromptBody) -> None:
    """Refuse a conversation that ends in the assistant's words: a template only begins turns."""
    if body.messages and body.messages[-1].role == "assistant":
        raise invalid(
            f"messages[{len(body.messages) - 1}].role",
            "can't be 'assistant' in the last message: this server does not continue an answer's beginning.",
            remedy="End the conversation with a user message.",
        )


def _thinks(thinking: ThinkingSwitch | None) -> bool:
    return thinking is not None and thinking.type in ("enabled", "adaptive")


def _tools_and_choice(
    body: PromptBody, referenced: Sequence[str]
) -> tuple[list[dict[str, Any]], ForcedCall | None]:
    given, choice = body.tools or [], body.tool_choice
    for i, tool in enumerate(given):
        _check_tool(tool, f"tools[{i}]")
    kind = choice.type if choice else "auto"
    if kind == "none":
        return [], None
    wanted = choice.name if choice and kind == "tool" else None
    if kind == "tool" and wanted is None:
        raise invalid("tool_choice.name", "is missing.")
    shown = _shown(given, [*referenced, wanted] if wanted else referenced)
    if wanted is not None and wanted not in {tool.name for tool in shown}:
        raise invalid("tool_choice.name", f"is {wanted!r}, which is none of the tools.")
    if kind == "any" and not shown:
        raise invalid("tool_choice", "can't be of type 'any' without tools.")
    forced = None if kind == "auto" else ForcedCall(name=wanted)
    return [_template_tool(tool) for tool in shown], forced


def _check_tool(tool: Tool, at: str) -> None:
    if tool.type not in (None, "custom"):
        raise invalid(
            f"{at}.type", f"can't be {tool.type!r}: tools that run on the provider's side are not supported."
        )
    if not tool.name:
        raise invalid(f"{at}.name", "must not be empty.")


def _shown(tools: Sequence[Tool], referenced: Sequence[str]) -> list[Tool]:
    """The tools that are not deferred, then the deferred ones in the order in which they were named.

    In this order a tool that is found in mid-session leaves the prompt before its definition as it was.
    """
    shown = [tool for tool in tools if not tool.defer_loading]
    deferred = {tool.name: tool for tool in tools if tool.defer_loading}
    return shown + [deferred.pop(name) for name in referenced if name in deferred]


def _template_tool(tool: Tool) -> dict[str, Any]:
    described = {} if tool.description is None else {"description": tool.description}
    parameters = tool.input_schema or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": parameters}}
