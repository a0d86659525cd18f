"""The other fields of a Responses body."""

from typing import Any

import pytest

from mashbox.engine.request import Conversation
from tests.server.responses_asking import conversation, read, refused


@pytest.mark.parametrize(
    ("reasoning", "thinking"),
    [
        (None, False),
        ({}, False),
        ({"effort": None, "summary": "auto"}, False),
        ({"effort": "none"}, False),
        ({"effort": "minimal"}, False),
        ({"effort": "low"}, True),
        ({"effort": "xhigh"}, True),
    ],
)
def test_effort_turns_thinking_on(reasoning: Any, thinking: bool) -> None:
    assert conversation(reasoning=reasoning).thinking is thinking


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6, "max_output_tokens": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": None, "max_output_tokens": None}, 5),
    ],
)
def test_the_newest_name_of_the_limit_wins(limits: Any, limit: int | None) -> None:
    assert read(**limits)[0].max_tokens == limit


def test_the_request_reaches_the_engine() -> None:
    request, _ = read(
        instructions="Be brief.",
        temperature=1,
        top_k=40,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        seed=-1,
        stop_sequences=["END"],
    )
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}
    assert request.prompt == Conversation(messages=[system, user])
    assert request.id.startswith("resp_")
    assert (request.stop, request.session, request.tenant) == (("END",), "from the header", "t")
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1.0, 40, 0.9, 0.05)
    assert (sampling.repetition_penalty, sampling.presence_penalty) == (1.1, 0.5)
    assert (sampling.frequency_penalty, sampling.seed) == (-0.5, 2**64 - 1)
    assert read(prompt_cache_key="k")[0].session == "k"


def test_what_is_accepted_and_changes_nothing() -> None:
    plain = conversation()
    fields: dict[str, Any] = {
        "store": True,
        "include": ["reasoning.encrypted_content", "file_search_call.results"],
        "metadata": {"a": "b"},
        "client_metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "truncation": "auto",
        "background": False,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "service_tier": "auto",
        "n": 1,
        "previous_response_id": None,
        "what is this": 1,
    }
    assert conversation(**fields) == plain
    assert all(conversation(**{name: None}) == plain for name in fields)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"n": 2}, "n"),
        ({"top_logprobs": 0}, "top_logprobs"),
        ({"include": ["reasoning.encrypted_content", "message.output_text.logprobs"]}, "include[1]"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"format": "text"}}, "text.format"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True}, "background"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 4.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ["a", ""]}, "stop"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"instructions": ["a"]}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"tools": ["f"]}, "tools[0]"),
    ],
)
def test_refusals_name_the_field(fields: Any, param: str) -> None:
    assert refused(**fields).param == param


def test_a_reference_to_what_is_not_stored_is_refused_with_a_remedy() -> None:
    assert "whole conversation" in refused(previous_response_id="resp_1").remedy
