"""Responses on the real starter: `mashbox run`, asked by the official openai client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.real_server import serving
from tests.test_main_job import ANSWER, EXACT

pytestmark = [pytest.mark.real, pytest.mark.slow]

ASK: Any = {"model": "smollm2-135m", "input": "Name three planets."}
WEATHER = {
    "type": "function",
    "name": "look_up",
    "description": "Tells the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOTE: Any = {"type": "custom", "name": "note", "description": "Keeps a text."}
TOOLS: Any = [
    {**WEATHER, "description": "Looks a word up."},
    {"type": "namespace", "name": "weather", "description": "", "tools": [WEATHER]},
    NOTE,
]


@pytest.fixture(scope="module")
def client(model_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    log = tmp_path_factory.mktemp("run") / "log"
    with serving(model_home, log, *EXACT, "--ctx", "2048", "--slots", "2") as server:
        url = f"{server.url}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120) as client:
            yield client


def test_the_starter_names_three_planets_streamed_and_not(client: openai.OpenAI) -> None:
    whole = client.responses.create(**ASK)
    with client.responses.stream(**ASK) as stream:
        streamed = stream.until_done().get_final_response()
    assert whole.output_text == streamed.output_text == ANSWER
    assert whole.status == streamed.status == "completed"
    assert whole.usage and streamed.usage
    assert whole.usage.output_tokens == streamed.usage.output_tokens == 12


def test_a_limit_ends_a_stream_as_incomplete(client: openai.OpenAI) -> None:
    *_, last = client.responses.create(**ASK, max_output_tokens=3, stream=True)
    assert last.type == "response.incomplete"
    assert last.response.output_text == "1. Mars"


def test_a_forced_call_of_a_namespace_and_its_result(client: openai.OpenAI) -> None:
    question: Any = {"role": "user", "content": "How is the weather in Paris?"}
    choice: Any = {"type": "function", "name": "look_up", "namespace": "weather"}
    fields: Any = {"model": "smollm2-135m", "tools": TOOLS, "max_output_tokens": 64}
    called = client.responses.create(**fields, input=[question], tool_choice=choice)
    (call,) = called.output
    assert call.type == "function_call"
    assert (call.namespace, call.name) == ("weather", "look_up")
    assert '"city"' in call.arguments
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny, 21 degrees"}
    answered = client.responses.create(
        **fields, input=[question, call.model_dump(exclude_none=True), result], tool_choice="none"
    )
    assert [item.type for item in answered.output] == ["message"]


def test_a_forced_call_of_a_custom_tool(client: openai.OpenAI) -> None:
    answer = client.responses.create(
        model="smollm2-135m",
        input="Keep this note: buy milk",
        tools=[NOTE],
        tool_choice={"type": "custom", "name": "note"},
        max_output_tokens=48,
    )
    (call,) = answer.output
    assert call.type == "custom_tool_call"
    assert (call.name, answer.status) == ("note", "completed")
    assert call.input
