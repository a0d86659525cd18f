"""Responses against a live server with a scripted engine."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from mashbox.engine.events import Thinking, ToolCall
from mashbox.engine.request import Conversation, Request
from mashbox.errors import InvalidRequest, PromptTooLong, WorkerFault
from tests.server.live import Live, live
from tests.server.scripted import Hold, Script, ScriptedEngine

RESPONSES = "/v1/responses"
GOLDEN = Path(__file__).parent.parent / "data" / "responses-stream.txt"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
    {"type": "namespace", "name": "shop", "tools": [{"type": "function", "name": "buy"}]},
]
EVERY_KIND: Script = [
    Thinking("let me "),
    Thinking("see"),
    "so",
    " be it",
    ToolCall("call_1", "f", '{"x":1}'),
    ToolCall("call_2", "patch", '{"input":"+ a \\"line\\""}'),
    ToolCall("call_3", "buy", "{}"),
    "done",
]


def ask(server: Live, **fields: Any) -> httpx.Response:
    with server.client() as client:
        return client.post(RESPONSES, json={"input": "hi", **fields})


def events_of(stream: str) -> list[Any]:
    """The events' data."""
    return [json.loads(line[6:]) for line in stream.split("\n") if line.startswith("data: ")]


def neutral(stream: str) -> str:
    """A stream without what differs from run to run: ids are numbered as they appear."""
    seen: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        prefix = match[0].partition("_")[0]
        return seen.setdefault(match[0], f"{prefix}_{len(seen) + 1}")

    return re.sub(r'"created_at":\d+', '"created_at":0', re.sub(r"[a-z]+_[0-9a-f]{32}", number, stream))


def test_a_stream_is_word_for_word_the_golden_one() -> None:
    with live(ScriptedEngine(EVERY_KIND)) as server:
        answer = ask(server, stream=True, tools=TOOLS)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert neutral(answer.text) == GOLDEN.read_text()


def test_events_are_named_and_numbered_and_the_final_output_is_what_was_done() -> None:
    with live(ScriptedEngine(["one", ToolCall("call_1", "f", "{}")])) as server:
        text = ask(server, stream=True, tools=TOOLS).text
    names = re.findall(r"^event: (.*)$", text, re.MULTILINE)
    events = events_of(text)
    assert names == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(1, len(events) + 1))
    assert [name.removeprefix("response.") for name in names] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done
    assert len({item["id"] for item in done}) == 2


def test_a_whole_answer_has_every_field_of_the_schema() -> None:
    with live(ScriptedEngine(["Hello", " world"])) as server:
        answer = ask(server, tools=TOOLS, tool_choice="auto", parallel_tool_calls=True, model="scripted")
    assert answer.status_code == 200
    body = answer.json()
    assert body.pop("id").startswith("resp_")
    assert body.pop("created_at") > 0
    assert body["output"][0].pop("id").startswith("msg_")
    part = {"type": "output_text", "text": "Hello world", "annotations": []}
    assert body == {
        "object": "response",
        "status": "completed",
        "model": "scripted",
        "output": [{"type": "message", "role": "assistant", "status": "completed", "content": [part]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": TOOLS,
        "usage": {
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 7,
        },
    }


def test_what_a_response_repeats_has_defaults() -> None:
    with live(ScriptedEngine()) as server:
        body = ask(server, tools=None, tool_choice=None, parallel_tool_calls=None).json()
    assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == ([], "auto", False)


def test_an_answer_that_meets_its_limit_is_incomplete() -> None:
    with live(ScriptedEngine(["a", "b", "c"])) as server:
        whole = ask(server, max_output_tokens=2).json()
        last = events_of(ask(server, max_output_tokens=2, stream=True).text)[-1]
    assert last["type"] == "response.incomplete"
    for body in (whole, last["response"]):
        assert body["status"] == "incomplete"
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}
        assert body["output"][0]["content"][0]["text"] == "ab"


def test_the_state_is_repeated_in_a_silence_and_keeps_the_count() -> None:
    hold = Hold()
    script: Script = ["a", hold, "b"]
    with (
        live(ScriptedEngine(script), keep_alive_s=0.05) as server,
        server.client() as client,
        client.stream("POST", RESPONSES, json={"input": "hi", "stream": True}) as answer,
    ):
        text = ""
        for piece in answer.iter_text():
            text += piece
            if text.count("event: response.in_progress") > 2:
                hold.release()
    events = events_of(text)
    assert [event["sequence_number"] for event in events] == list(range(1, len(events) + 1))
    repeated = [event["response"] for event in events if event["type"] == "response.in_progress"]
    assert len(repeated) > 2
    assert all(response == {**repeated[0], "output": []} for response in repeated)
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "ab"


def test_a_fault_in_mid_stream_is_an_error_and_a_failed_response() -> None:
    with live(ScriptedEngine(["a", WorkerFault("The worker died.")])) as server:
        events = events_of(ask(server, stream=True).text)
    error, failed = events[-2:]
    assert error["type"] == "error"
    assert error["request_id"] == events[0]["response"]["id"]
    assert "The worker died." in error["message"]
    assert error["error"]["type"] == "server_error"
    assert failed["type"] == "response.failed"
    assert failed["sequence_number"] == error["sequence_number"] + 1 == len(events)
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": error["message"]}


def test_the_official_client_streamed_and_not() -> None:
    with (
        live(ScriptedEngine(EVERY_KIND)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any") as client,
    ):
        tools: Any = TOOLS
        whole = client.responses.create(model="scripted", input="hi", tools=tools)
        with client.responses.stream(model="scripted", input="hi", tools=tools) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        with pytest.raises(openai.NotFoundError) as refused:
            client.responses.create(model="other", input="hi")
    assert whole.output_text == final.output_text == "".join(deltas) == "so be itdone"
    assert [item.type for item in final.output] == [item.type for item in whole.output]
    reasoning, _, call, custom, named, _ = whole.output
    assert reasoning.type == "reasoning"
    assert reasoning.content and reasoning.content[0].text == "let me see"
    assert call.type == "function_call" and (call.name, call.arguments) == ("f", '{"x":1}')
    assert custom.type == "custom_tool_call" and custom.input == '+ a "line"'
    assert named.type == "function_call" and (named.namespace, named.name) == ("shop", "buy")
    assert whole.usage is not None and whole.usage.output_tokens == 8
    assert refused.value.code == "model_not_found"


def test_the_official_client_raises_on_a_fault_in_mid_stream() -> None:
    with (
        live(ScriptedEngine(["a", WorkerFault("The worker died.")])) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client,
        client.responses.create(model="scripted", input="hi", stream=True) as stream,
        pytest.raises(openai.APIError, match="The worker died"),
    ):
        list(stream)


def test_a_thought_is_carried_for_clients_that_ask_for_it() -> None:
    engine = ScriptedEngine([Thinking("hm"), ToolCall("call_1", "f", "{}")])
    with live(engine) as server:
        first = ask(server, tools=TOOLS, include=["reasoning.encrypted_content"]).json()["output"]
        assert "encrypted_content" not in ask(server, tools=TOOLS).json()["output"][0]
        # Codex sends a thought's text not back, only what was encrypted
        reasoning = {key: value for key, value in first[0].items() if key != "content"}
        result = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
        ask(server, tools=TOOLS, input=[{"role": "user", "content": "hi"}, reasoning, first[1], result])
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, Conversation)
    assert prompt.messages[1]["reasoning_content"] == "hm"


@pytest.mark.parametrize("error", [PromptTooLong(5000, 4096), InvalidRequest("No.", param="messages")])
def test_a_refused_prompt_is_called_by_its_name_in_the_body(error: Exception) -> None:
    def refuse(request: Request) -> Any:
        raise error

    with live(ScriptedEngine(encode=refuse)) as server:
        answer = ask(server, stream=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input"


def test_another_model_is_not_found() -> None:
    with live(ScriptedEngine()) as server:
        answer = ask(server, model="gpt-5")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_items_of_a_real_agents_second_turn() -> None:
    """What Codex sends: hosted tools, an empty namespace, a result in parts."""
    engine = ScriptedEngine()
    tools = [TOOLS[0], {"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}]
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = [{"type": "output_text", "text": "ok"}]
    result = {"type": "function_call_output", "call_id": "c1", "output": output}
    with live(engine) as server:
        answer = ask(
            server,
            input=[call, result],
            tools=tools,
            store=False,
            include=["reasoning.encrypted_content"],
            client_metadata={"k": "v"},
            prompt_cache_key="session",
            reasoning={"summary": "auto"},
        )
    assert answer.status_code == 200
    (request,) = engine.requests
    assert isinstance(request.prompt, Conversation)
    assert [tool["function"]["name"] for tool in request.prompt.tools] == ["f"]
    assert request.prompt.messages[-1]["content"] == "ok"
    assert request.session == "session"
    assert json.loads(answer.text)["tools"] == tools
