"""Tools for templates that know none: told in the system text, calls and results as turns of text."""

import json

import jinja2
import pytest

from mashbox.engine.events import Text, ToolCall
from mashbox.engine.formats import with_fallback_calls
from mashbox.engine.formats.families import FORMATS
from mashbox.engine.parse import OutputParser
from mashbox.engine.request import Conversation
from mashbox.engine.tools import needs_fallback, with_tools_in_system

PLAIN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "The time",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    ("template", "needed"),
    [
        (PLAIN_TEMPLATE, True),
        (None, True),
        ("{%- if tools %}{{ tools | tojson }}{%- endif %}{{ messages[0].tool_calls }}", False),
        ("{%- for tool in tools %}{{ tool }}{% endfor %}{% if 'tool_calls' in message %}{% endif %}", False),
        ("{%- if tools %}{{ tools | tojson }}{%- endif %}{{ messages[0].content }}", True),
        ("{%- for call in message.tool_calls %}{{ call }}{%- endfor %}", True),
        ("You have tools and tool_calls. {{ messages[0].content }}", True),
        ("{% if message['tools'] %}{{ message.tool_calls }}{% endif %}", True),
        ("{%- set tools = none %}{{ message.tool_calls }}", True),
        ("{%- if not tools is defined %}{%- set tools = none %}{%- endif %}{{ m.tool_calls }}", False),
    ],
)
def test_a_template_needs_the_fallback_when_its_code_never_reads_tools_or_calls(
    template: str | None, needed: bool
) -> None:
    assert needs_fallback(template) is needed


def test_a_model_needs_the_fallback_when_its_calls_can_not_be_read() -> None:
    template = "{% if tools %}{{ tools }}{{ message.tool_calls }}{% endif %}"
    assert not needs_fallback(template, FORMATS["glm"])
    assert needs_fallback(template, FORMATS["thinking"])
    assert needs_fallback(template, None)


def test_tools_join_the_system_prompt_behind_its_text() -> None:
    told = with_tools_in_system(
        Conversation(
            messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            tools=[TOOL],
            thinking=True,
            options={"x": 1},
        )
    )
    assert [message["role"] for message in told.messages] == ["system", "user"]
    system = told.messages[0]["content"]
    assert system.startswith("Be brief.\n\n")
    line = next(line for line in system.splitlines() if line.startswith('{"name": "now"'))
    assert json.loads(line) == TOOL["function"]
    assert told.tools == [] and told.thinking and told.options == {"x": 1}


def test_without_a_system_prompt_one_is_made() -> None:
    told = with_tools_in_system(Conversation(messages=[{"role": "user", "content": "Hi"}], tools=[TOOL]))
    assert [message["role"] for message in told.messages] == ["system", "user"]


def test_a_conversation_without_tools_stays_as_it_is() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    assert with_tools_in_system(Conversation(messages=messages)).messages == messages


def test_history_becomes_turns_of_text() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "now", "arguments": {"zone": "Ü"}}},
        {"id": "c2", "type": "function", "function": {"name": "now", "arguments": '{"zone": "b"}'}},
        {"id": "c3", "type": "function", "function": {"name": "now", "arguments": {}}},
    ]
    told = with_tools_in_system(
        Conversation(
            messages=[
                {"role": "user", "content": "Time?"},
                {"role": "assistant", "content": "Let me look.", "tool_calls": calls},
                {"role": "tool", "tool_call_id": "c1", "content": "42"},
                {"role": "tool", "tool_call_id": "c2", "content": ""},
                {"role": "user", "content": "Thanks"},
            ],
            tools=[TOOL],
        )
    )
    assert told.messages[2:] == [
        {
            "role": "assistant",
            "content": "Let me look.\n"
            '<tool_call>\n{"name": "now", "arguments": {"zone": "Ü"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "now", "arguments": {"zone": "b"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        },
        {
            "role": "user",
            "content": "<tool_response>\n42\n</tool_response>\n<tool_response>\n\n</tool_response>",
        },
        {"role": "user", "content": "Thanks"},
    ]


def test_a_rewritten_call_is_one_that_the_parser_reads() -> None:
    call = {"type": "function", "function": {"name": "now", "arguments": {"zone": 'a"b\n'}}}
    told = with_tools_in_system(
        Conversation(messages=[{"role": "assistant", "content": "Look", "tool_calls": [call]}])
    )
    parser = OutputParser(with_fallback_calls(None), tools=[TOOL])
    text, again = parser.push(told.messages[0]["content"]) + parser.finish()
    assert text == Text("Look")
    assert isinstance(again, ToolCall)
    assert json.loads(again.arguments) == {"zone": 'a"b\n'}


def test_a_plain_template_renders_it() -> None:
    told = with_tools_in_system(Conversation(messages=[{"role": "user", "content": "Hi"}], tools=[TOOL]))
    prompt = jinja2.Template(PLAIN_TEMPLATE).render(messages=told.messages, add_generation_prompt=True)
    assert '"name": "now"' in prompt
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
