"""Messages on the real starter: `mashbox run`, asked by the official anthropic client."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.real_server import serving
from tests.test_main_job import EXACT

pytestmark = [pytest.mark.real, pytest.mark.slow]

ASK: Any = {"model": "claude-any", "messages": [{"role": "user", "content": "Name three planets."}]}
TOOL: Any = {
    "name": "weather",
    "description": "Tells the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def client(model_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[anthropic.Anthropic]:
    log = tmp_path_factory.mktemp("run") / "log"
    with (
        serving(model_home, log, *EXACT, "--ctx", "2048", "--slots", "2") as server,
        anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120) as client,
    ):
        yield client


def test_the_starter_names_three_planets_streamed_and_not(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**ASK, max_tokens=32)
    with client.messages.stream(**ASK, max_tokens=32) as stream:
        streamed = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert whole.content[0].text == "1. Mars\n2. Venus\n3. Earth"
    assert (whole.stop_reason, whole.usage.output_tokens) == ("end_turn", 12)
    assert streamed.content[0].type == "text"
    assert streamed.content[0].text == whole.content[0].text
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens


def test_a_stop_sequence_and_a_limit(client: anthropic.Anthropic) -> None:
    stopped = client.messages.create(**ASK, max_tokens=32, stop_sequences=["3."])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "3.")
    assert client.messages.create(**ASK, max_tokens=3).stop_reason == "max_tokens"


def test_a_system_message_among_the_messages(client: anthropic.Anthropic) -> None:
    late: Any = {"role": "system", "content": "B"}
    plain = client.messages.count_tokens(**ASK, system="A").input_tokens
    messages = [*ASK["messages"], late]
    both = client.messages.count_tokens(model="any", system="A", messages=messages).input_tokens
    assert both > plain
    client.messages.create(model="any", system="A", messages=messages, max_tokens=1)


@pytest.mark.parametrize(
    "fields",
    [{}, {"system": "Be brief."}, {"system": "Be brief.", "tools": [TOOL], "thinking": {"type": "adaptive"}}],
)
def test_a_count_equals_what_the_answer_uses(client: anthropic.Anthropic, fields: dict[str, Any]) -> None:
    counted = client.messages.count_tokens(**ASK, **fields).input_tokens
    usage = client.messages.create(**ASK, **fields, max_tokens=1).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_a_forced_call_and_its_result(client: anthropic.Anthropic) -> None:
    fields: Any = {"model": "any", "max_tokens": 64, "tools": [TOOL]}
    ask: Any = {"role": "user", "content": "How is the weather in Paris?"}
    choice: Any = {"type": "tool", "name": "weather"}
    called = client.messages.create(**fields, messages=[ask], tool_choice=choice)
    (call,) = [block for block in called.content if block.type == "tool_use"]
    assert called.stop_reason == "tool_use"
    assert call.name == "weather"
    assert list(call.input) == ["city"]
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 21 degrees"}
    history: Any = [
        ask,
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [result]},
    ]
    answered = client.messages.create(**fields, messages=history, tool_choice={"type": "none"})
    assert answered.usage.input_tokens > called.usage.output_tokens
    assert all(block.type == "text" for block in answered.content)


def test_a_prompt_that_is_too_long(client: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "word " * 3000}]
    counted = client.messages.count_tokens(model="any", messages=messages).input_tokens
    with pytest.raises(
        anthropic.BadRequestError, match=f"prompt is too long: {counted} tokens > 2048 maximum"
    ):
        client.messages.create(model="any", messages=messages, max_tokens=8)


def test_a_clients_header_in_the_system_text_does_not_void_the_cache(client: anthropic.Anthropic) -> None:
    def ask(nonce: str) -> Any:
        header = f"x-anthropic-billing-header: cc_version=2.1; cch={nonce};"
        system: Any = [{"type": "text", "text": header}, {"type": "text", "text": "Remember this. " * 400}]
        return client.messages.create(**ASK, system=system, max_tokens=1).usage

    first, second = ask("36ee5"), ask("0aaa9")
    prompt = first.input_tokens + (first.cache_read_input_tokens or 0)
    assert prompt == second.input_tokens + second.cache_read_input_tokens > 1200
    assert second.cache_read_input_tokens >= 0.95 * prompt


def test_the_command_line_counts_as_the_server_does(
    client: anthropic.Anthropic, model_home: Path, tmp_path: Path
) -> None:
    body: Any = {**ASK, "system": "Be brief.", "tools": [TOOL]}
    path = tmp_path / "body.json"
    path.write_text(json.dumps(body))
    counted = subprocess.run(
        [sys.executable, "-m", "mashbox", "count-tokens", "--messages", str(path)],
        env=os.environ | {"MASHBOX_HOME": str(model_home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(counted.stdout.split()[0]) == client.messages.count_tokens(**body).input_tokens
