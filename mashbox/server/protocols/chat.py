"""``POST /v1/chat/completions``: OpenAI's Chat Completions."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import post
from litestar.datastructures import State
from litestar.types import ASGIApp, Scope

from mashbox.engine.events import Event, Finished, Text, Thinking, ToolCall, Usage
from mashbox.engine.request import Conversation, ForcedCall, Request
from mashbox.server import sse
from mashbox.server.body import invalid, parse
from mashbox.server.failure import Failure
from mashbox.server.protocols.common import (
    SamplingFields,
    chat_usage_json,
    limit_of,
    new_id,
    random_seed,
    refuse_logprobs,
    sampling_of,
    session_of,
    stops_of,
    tenant_of,
    timings_json,
    usage_json,
)
from mashbox.server.protocols.conversation import (
    ChatMessage,
    ChatTool,
    template_messages,
    template_tools,
)
from mashbox.server.respond import Respond
from mashbox.server.service import Service


class StreamOptions(msgspec.Struct):
    """``include_usage``: end the stream with a chunk that holds the usage. ``continuous_usage_stats`` (as
    in vLLM): chunks of text and thought hold the usage so far."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatCompletionRequest(SamplingFields, kw_only=True):
    """The body. Unknown fields are ignored."""

    messages: list[ChatMessage]
    tools: list[ChatTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    stream_options: StreamOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    continue_final_message: bool | None = None
    store: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(ChatCompletionRequest)

OWN_VARIABLES = frozenset(
    {"messages", "tools", "enable_thinking", "add_generation_prompt", "bos_token", "eos_token"}
)
"""Template variables that ``chat_template_kwargs`` can't set: the request's own fields and ours."""


def _thinking(body: ChatCompletionRequest) -> bool:
    asked = (body.chat_template_kwargs or {}).get("enable_thinking")
    if asked is None:
        return bool(body.enable_thinking)
    if not isinstance(asked, bool):
        raise invalid("chat_template_kwargs.enable_thinking", "must be true or false.")
    return asked


def _tools_and_choice(body: ChatCompletionRequest) -> tuple[list[dict[str, Any]], ForcedCall | None]:
    """The tools that are shown to the model, and the call that is asked for."""
    tools = template_tools(body.tools)
    choice = body.tool_choice
    kind = choice.get("type") or "" if isinstance(choice, dict) else choice
    if kind == "none":
        return [], None
    if kind in (None, "auto"):
        return tools, None
    if kind == "required":
        return tools, ForcedCall()
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if kind != "function" or not isinstance(name, str):
        raise invalid(
            "tool_choice",
            'takes "auto", "none", "required" or {"type": "function", "function": {"name": …}}.',
        )
    return tools, ForcedCall(name=name)


def _refuse_unsupported(body: ChatCompletionRequest) -> None:
    refuse_logprobs("logprobs", body.logprobs)
    refuse_logprobs("top_logprobs", body.top_logprobs)
    if body.response_format is not None and body.response_format.get("type") != "text":
        raise invalid("response_format", 'takes only {"type": "text"}: structured output is not supported.')


def conversation_of(body: ChatCompletionRequest) -> tuple[Conversation, ForcedCall | None]:
    """What the model is shown, and the call that is asked for. Raises InvalidRequest naming the field."""
    options = body.chat_template_kwargs or {}
    tools, forced = _tools_and_choice(body)
    conversation = Conversation(
        messages=template_messages(body.messages),
        tools=tools,
        thinking=_thinking(body),
        options={name: value for name, value in options.items() if name not in OWN_VARIABLES},
        continued=bool(body.continue_final_message),
    )
    if conversation.continued:
        _check_continued(conversation, forced)
    return conversation, forced


def _check_continued(conversation: Conversation, forced: ForcedCall | None) -> None:
    """Refuse to go on with what is no beginning of an answer."""
    last = conversation.messages[-1]
    words = last.get("content") or last.get("reasoning_content")
    if last["role"] != "assistant" or not words or last.get("tool_calls"):
        raise invalid(
            "continue_final_message",
            "needs a last message of the assistant's that has text or reasoning_content, and no tool calls.",
        )
    if forced is not None:
        raise invalid("continue_final_message", "can't go with a tool_choice that forces a call.")


def to_request(body: ChatCompletionRequest, scope: Scope) -> Request:
    """The internal request. Raises InvalidRequest naming the field."""
    _refuse_unsupported(body)
    conversation, forced = conversation_of(body)
    options = body.stream_options or StreamOptions()
    return Request(
        id=new_id("chatcmpl-"),
        prompt=conversation,
        sampling=sampling_of(body, random_seed() if body.seed is None else body.seed),
        max_tokens=limit_of(body),
        stop=stops_of(body),
        forced=forced,
        session=session_of(scope, body.prompt_cache_key),
        tenant=tenant_of(scope),
        counted=bool(options.continuous_usage_stats),
    )


class ChatAnswer:
    """Events in Chat Completions' words; a :class:`mashbox.server.respond.CountsPrompt`."""

    keep_alive = sse.KEEP_ALIVE
    prompt_field = "messages"

    def __init__(self, request_id: str, model: str, *, include_usage: bool) -> None:
        self._id = request_id
        self._created = int(time.time())
        self._model = model
        self._include_usage = include_usage
        self._calls = 0
        self._prompt_tokens = 0
        # Most chunks differ in one string: what stands around it is encoded once.
        frame = sse.json_bytes(self._head("chat.completion.chunk"))[:-1]
        before = b"data: " + frame + b',"choices":[{"index":0,"delta":{'
        self._content = before + b'"content":'
        self._reasoning = before + b'"reasoning_content":'
        self._after = b'},"finish_reason":null}]'

    def encoded(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return self._data(choices, **more)

    def _data(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return sse.data({**self._head("chat.completion.chunk"), "choices": choices, **more})

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: Event) -> bytes:
        if isinstance(event, Text):
            return self._content + sse.json_bytes(event.text) + self._after + self._so_far(event.tokens)
        if isinstance(event, Thinking):
            return self._reasoning + sse.json_bytes(event.text) + self._after + self._so_far(event.tokens)
        if isinstance(event, ToolCall):
            call = {"index": self._calls, **_call_json(event)}
            self._calls += 1
            return self._chunk({"tool_calls": [call]})
        return self._end(event)

    def _so_far(self, tokens: int) -> bytes:
        """The end of a piece's chunk, with the usage so far where that is told."""
        if not tokens:
            return b"}\n\n"
        usage = usage_json(Usage(prompt_tokens=self._prompt_tokens, completion_tokens=tokens))
        return b',"usage":' + sse.json_bytes(usage) + b"}\n\n"

    def _end(self, finished: Finished) -> bytes:
        timings = timings_json(finished.usage, finished.timings)
        out = self._chunk({}, finished.reason, timings=timings)
        if self._include_usage:
            out += self._data([], usage=chat_usage_json(finished.usage), timings=timings)
        return out + sse.DONE

    def failed(self, failure: Failure) -> bytes:
        return sse.data(failure.event("openai", self._id))

    def whole(self, events: Sequence[Event]) -> bytes:
        finished = events[-1]
        assert isinstance(finished, Finished)
        text = "".join(event.text for event in events if isinstance(event, Text))
        thinking = "".join(event.text for event in events if isinstance(event, Thinking))
        calls = [_call_json(event) for event in events if isinstance(event, ToolCall)]
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
        if thinking:
            message["reasoning_content"] = thinking
        if calls:
            message["tool_calls"] = calls
        return sse.json_bytes(
            {
                **self._head("chat.completion"),
                "choices": [{"index": 0, "message": message, "finish_reason": finished.reason}],
                "usage": chat_usage_json(finished.usage),
                "timings": timings_json(finished.usage, finished.timings),
            }
        )


def _call_json(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


@post("/v1/chat/completions", status_code=200)
async def create_chat_completion(request: HttpRequest[Any, Any, Any], state: State) -> ASGIApp:
    """OpenAI Chat Completions with function tools, thinking and streaming."""
    service: Service = state.service
    service.check_ready()
    body = parse(await request.body(), _decoder)
    service.check_model(body.model)
    asked = to_request(body, request.scope)
    options = body.stream_options or StreamOptions()
    answer = ChatAnswer(asked.id, service.engine.card.id, include_usage=bool(options.include_usage))
    return Respond(service, asked, answer, stream=bool(body.stream))
