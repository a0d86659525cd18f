"""Qwen3's real tokenizer and chat template: our ids are those of transformers, for every kind of history."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from mashbox.engine.dialect import Dialect
from mashbox.engine.prompt import render
from mashbox.engine.request import Conversation, Request
from mashbox.engine.tokenizer import ModelTokenizer

pytestmark = [pytest.mark.agents, pytest.mark.slow]

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL: Any = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Zürich"}},
}
USER: Any = {"role": "user", "content": "How is the weather in Zürich?\n\n  😀 1234567"}
CALLED: Any = {"role": "assistant", "content": "", "reasoning_content": "I ask.", "tool_calls": [CALL]}
RESULT: Any = {"role": "tool", "content": "sunny", "tool_call_id": "call_1", "name": "weather"}
EMPTY: Any = {**RESULT, "content": ""}
HISTORIES: dict[str, list[Any]] = {
    "a question": [USER],
    "a system text": [{"role": "system", "content": "Be brief."}, USER],
    "a thought of an earlier turn": [
        USER,
        {"role": "assistant", "content": "Sunny.", "reasoning_content": "Hm."},
        {"role": "user", "content": "And tomorrow?"},
    ],
    "a call and its result": [USER, CALLED, RESULT],
    "two results, one empty": [USER, {**CALLED, "tool_calls": [CALL, CALL]}, RESULT, EMPTY],
    "text beside a call": [USER, {**CALLED, "content": "Let me see."}, RESULT],
}


@pytest.fixture(scope="module")
def ours(qwen3: Path) -> ModelTokenizer:
    return ModelTokenizer.load(qwen3)


@pytest.fixture(scope="module")
def theirs(qwen3: Path) -> Any:
    return AutoTokenizer.from_pretrained(qwen3)


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", HISTORIES)
def test_ids_are_those_of_transformers(
    theirs: Any, ours: ModelTokenizer, name: str, tools: list[Any], thinking: bool
) -> None:
    conversation = Conversation(messages=HISTORIES[name], tools=tools, thinking=thinking)
    expected = theirs.apply_chat_template(
        HISTORIES[name], tools=tools or None, add_generation_prompt=True, enable_thinking=thinking
    )
    ids = expected["input_ids"] if hasattr(expected, "keys") else expected
    assert render(ours, conversation).ids == list(ids)


def test_its_own_words_for_tools_are_used(ours: ModelTokenizer) -> None:
    prompt = Conversation(messages=[USER], tools=[TOOL])
    # Not the words of the fallback for templates that know no tools.
    assert Dialect(ours).encode(Request(id="r", prompt=prompt)).ids == render(ours, prompt).ids
