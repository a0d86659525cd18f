"""Messages through the official anthropic client, against a live server with a scripted engine."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from mashbox.engine.engine import EngineStatus
from mashbox.engine.events import Thinking, ToolCall
from mashbox.engine.request import Conversation, EncodedPrompt, ForcedCall, Request
from mashbox.errors import InvalidRequest, PromptTooLong, WorkerFault
from tests.server.live import Live, live
from tests.server.scripted import Script, ScriptedEngine

# The client alone takes seconds to import.
pytestmark = pytest.mark.slow

TOOL: Any = {
    "name": "add",
    "description": "Adds two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
ASK: Any = {"model": "any", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}


def script(request: Request) -> Script:
    """Calls the tool, then answers with its result; otherwise a thought if one is asked for, and a text."""
    prompt = request.prompt
    assert isinstance(prompt, Conversation)
    if prompt.messages[-1]["role"] == "tool":
        return [f"It is {prompt.messages[-1]['content']}."]
    if prompt.tools:
        return [ToolCall("call_1", "add", '{"a":1}'), ToolCall("call_2", "add", '{"a":[2,{"b":null}]}')]
    return [*([Thinking("let "), Thinking("me")] if prompt.thinking else []), "Hello", " world"]


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(script)


@pytest.fixture(scope="module")
def running(engine: ScriptedEngine) -> Iterator[anthropic.Anthropic]:
    with live(engine) as server, client_of(server) as client:
        yield client


def client_of(server: Live) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0)


def test_a_text_streamed_and_not(running: anthropic.Anthropic) -> None:
    whole = running.messages.create(**ASK)
    with running.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    block = whole.content[0]
    assert block.type == "text"
    assert block.text == text == "Hello world"
    assert (whole.model, whole.stop_reason, whole.role) == ("any", "end_turn", "assistant")
    assert streamed.model_dump(exclude={"id"}) == whole.model_dump(exclude={"id"})
    assert (whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == (3, 2)


def test_raw_events_and_the_beta_route(running: anthropic.Anthropic) -> None:
    kinds = [event.type for event in running.messages.create(**ASK, stream=True)]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    beta = running.beta.messages.create(**ASK, betas=["interleaved-thinking-2025-05-14"])
    assert beta.stop_reason == "end_turn"


def test_thinking_streamed_and_not(running: anthropic.Anthropic, engine: ScriptedEngine) -> None:
    fields: Any = {**ASK, "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    whole = running.messages.create(**fields)
    with running.messages.stream(**fields) as stream:
        streamed = stream.get_final_message()
    thought, text = whole.content
    assert thought.type == "thinking"
    assert (thought.thinking, thought.signature) == ("let me", "mashbox-local")
    assert text.type == "text"
    assert [block.type for block in streamed.content] == ["thinking", "text"]
    assert streamed.content[0] == thought
    history: Any = [*ASK["messages"], {"role": "assistant", "content": whole.content}, *ASK["messages"]]
    running.messages.create(**{**fields, "messages": history})
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, Conversation)
    assert prompt.messages[1] == {
        "role": "assistant",
        "content": "Hello world",
        "reasoning_content": "let me",
    }


def test_a_tool_is_called_and_its_result_answered(
    running: anthropic.Anthropic, engine: ScriptedEngine
) -> None:
    fields: Any = {**ASK, "tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": False}}
    whole = running.messages.create(**fields)
    with running.messages.stream(**fields) as stream:
        streamed = stream.get_final_message()
    assert whole.stop_reason == streamed.stop_reason == "tool_use"
    assert streamed.content == whole.content
    calls = [block for block in whole.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"a": 1}, {"a": [2, {"b": None}]}]
    assert len({call.id for call in calls}) == 2
    assert engine.requests[-1].forced == ForcedCall()
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "3"} for call in calls]
    history: Any = [
        *ASK["messages"],
        {"role": "assistant", "content": whole.content},
        {"role": "user", "content": results},
    ]
    last = running.messages.create(**{**ASK, "tools": [TOOL], "messages": history})
    assert last.content[0].type == "text"
    assert last.content[0].text == "It is 3."


def test_counting(running: anthropic.Anthropic) -> None:
    fields: Any = {key: value for key, value in ASK.items() if key != "max_tokens"}
    counted = running.messages.count_tokens(**fields, system="A", tools=[TOOL], thinking={"type": "adaptive"})
    assert counted.input_tokens == 5


def refuses(error: Exception) -> ScriptedEngine:
    def encode(_: Request) -> EncodedPrompt:
        raise error

    return ScriptedEngine(encode=encode)


@pytest.mark.parametrize(
    ("engine", "kind", "status", "words"),
    [
        (refuses(InvalidRequest("No.")), anthropic.BadRequestError, 400, "No."),
        (
            refuses(PromptTooLong(5000, 4096)),
            anthropic.BadRequestError,
            400,
            "prompt is too long: 5000 tokens > 4096 maximum",
        ),
        (ScriptedEngine([WorkerFault("Died.")]), anthropic.InternalServerError, 500, "Died."),
        (
            ScriptedEngine(status=EngineStatus(state="loading")),
            anthropic.InternalServerError,
            529,
            "loading",
        ),
    ],
)
def test_errors(
    engine: ScriptedEngine, kind: type[anthropic.APIStatusError], status: int, words: str
) -> None:
    with live(engine) as server, client_of(server) as client, pytest.raises(kind) as raised:
        client.messages.create(**ASK)
    assert raised.value.status_code == status
    assert words in str(raised.value)
    assert raised.value.request_id is not None
    assert raised.value.request_id.startswith("req_")


def test_an_error_in_the_middle_of_a_stream() -> None:
    engine = ScriptedEngine(["a", WorkerFault("Died.")])
    with live(engine) as server, client_of(server) as client, client.messages.stream(**ASK) as stream:
        texts = stream.text_stream
        assert next(texts) == "a"
        with pytest.raises(anthropic.APIStatusError, match="Died"):
            next(texts)
