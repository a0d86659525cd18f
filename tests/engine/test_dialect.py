"""A model's words, token by token, into what a client gets."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.dialect import Dialect, Output, joined
from mashbox.engine.events import FinishReason, Text, Thinking, ToolCall
from mashbox.engine.request import Conversation, ForcedCall, Request
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.errors import InvalidRequest
from tests.engine.letters import Letters
from tests.hypotheses import examples

MARKERS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
TOOLS = "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
OPEN = "{% if enable_thinking %}<think>\n{% endif %}"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}
USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def letters() -> Letters:
    return Letters(MARKERS)


def dialect(folder: Path, letters: Letters, template: str) -> Dialect:
    letters.save(folder)
    config = {"chat_template": template, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Dialect(ModelTokenizer.load(folder), "hermes" if "think" in template else None)


@pytest.fixture(scope="module")
def qwen(letters: Letters, tmp_path_factory: pytest.TempPathFactory) -> Dialect:
    return dialect(tmp_path_factory.mktemp("qwen"), letters, TOOLS + CHATML + OPEN)


@pytest.fixture(scope="module")
def toolless(letters: Letters, tmp_path_factory: pytest.TempPathFactory) -> Dialect:
    return dialect(tmp_path_factory.mktemp("toolless"), letters, CHATML.replace("tool_calls", "nothing"))


def request(
    *, tools: Sequence[dict[str, Any]] = (), thinking: bool = False, raw: str | None = None, **more: Any
) -> Request:
    conversation = Conversation(messages=[USER], tools=list(tools), thinking=thinking)
    return Request(id="r", prompt=conversation if raw is None else raw, **more)


def read(
    model: Dialect, letters: Letters, asked: Request, script: str, end: FinishReason = "stop"
) -> tuple[list[Output], str, str | None]:
    """The joined output, the reason and the stop string of a scripted answer."""
    reader = model.reader(asked, model.encode(asked))
    output: list[Output] = []
    for token in letters.encode(script):
        output += reader.push(token)
    output += reader.finish()
    return joined(output), reader.reason(end), reader.stop_sequence


def call(output: Output) -> tuple[str, str]:
    assert isinstance(output, ToolCall)
    return output.name, output.arguments


def test_thought_text_and_call_come_in_order(qwen: Dialect, letters: Letters) -> None:
    script = (
        '<think>\na\n</think>\n\nb<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>'
    )
    output, reason, _ = read(qwen, letters, request(tools=[TOOL]), script)
    assert output[:2] == [Thinking("a"), Text("b")]
    assert call(output[2]) == ("f", '{"x": 1}') and len(output) == 3
    assert reason == "tool_calls"


def test_a_thought_that_the_template_opened(qwen: Dialect, letters: Letters) -> None:
    asked = request(thinking=True, stop=("\n\n",))
    assert read(qwen, letters, asked, "abc def", "length")[:2] == ([Thinking("abc def")], "length")
    output, _, stopped = read(qwen, letters, asked, "x\n\ny</think>z")
    assert output == [Thinking("x\n\ny"), Text("z")] and stopped is None


def test_stop_strings_end_the_text_only(qwen: Dialect, letters: Letters) -> None:
    asked = request(tools=[TOOL], stop=("END",))
    output, reason, stopped = read(qwen, letters, asked, "<think>END</think>one END two")
    assert output == [Thinking("END"), Text("one ")] and (reason, stopped) == ("stop", "END")
    script = 'EN<tool_call>{"name": "f", "arguments": {"x": 2}}</tool_call>D'
    output, reason, stopped = read(qwen, letters, asked, script)
    assert output[0] == Text("EN") and stopped is None and reason == "tool_calls"


def test_without_tools_a_call_is_text(qwen: Dialect, letters: Letters) -> None:
    script = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    output, reason, _ = read(qwen, letters, request(), script)
    assert output == [Text(script)] and reason == "stop"


def test_tokens_of_thoughts_are_counted(qwen: Dialect, letters: Letters) -> None:
    for script, count in (("<think>abc</think>de", 4), ("abc", 0), ("<think>ab", 3)):
        asked = request()
        reader = qwen.reader(asked, qwen.encode(asked))
        for token in letters.encode(script):
            reader.push(token)
        assert reader.thinking_tokens == count


def test_a_raw_prompt_is_continued_as_it_is(qwen: Dialect, letters: Letters) -> None:
    output, _, _ = read(qwen, letters, request(raw="x"), "a<think>b</think>c<|im_end|>")
    assert output == [Text("abc")]


def test_a_template_without_tools_gets_them_as_text(toolless: Dialect, letters: Letters) -> None:
    asked = request(tools=[TOOL])
    prompt = letters.decode(toolless.encode(asked).ids)
    assert '"name":"f"' in prompt.replace(" ", "") and prompt.startswith("<|im_start|>system")
    output, reason, _ = read(
        toolless, letters, asked, '<tool_call>{"name": "f", "arguments": {"x": 3}}</tool_call>'
    )
    assert call(output[0]) == ("f", '{"x": 3}') and reason == "tool_calls"


def test_a_forced_call_has_a_grammar(qwen: Dialect, toolless: Dialect) -> None:
    forced = ForcedCall(name="f")
    for model in (qwen, toolless):
        assert model.encode(request(tools=[TOOL], forced=forced)).grammar
        assert model.encode(request(tools=[TOOL])).grammar is None
    with pytest.raises(InvalidRequest, match="tool_choice"):
        qwen.encode(request(tools=[TOOL], forced=ForcedCall(name="g")))


def test_ignored_end_tokens_go_on(qwen: Dialect, letters: Letters) -> None:
    output, _, _ = read(qwen, letters, request(raw="x", ignore_end=True), "a<|im_end|>b")
    assert output == [Text("ab")]


PIECES = st.lists(
    st.sampled_from(
        [*MARKERS, "a", "\n", "END", "E", "<", '{"name": "f", "arguments": {"x": 1}}', "é", "🙂", " "]
    ),
    max_size=12,
)


def cut(output: list[Output], stops: tuple[str, ...]) -> list[Output]:
    """What stop strings leave of a whole answer: the first one complete ends it, within one text."""
    kept: list[Output] = []
    for piece in output:
        if isinstance(piece, Text):
            text = piece.text
            ends = [(text.index(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
            if ends:
                end, length = min(ends)
                return [*kept, Text(text[: end + length])] if end + length else kept
        kept.append(piece)
    return kept


@settings(max_examples=examples(150), deadline=None)
@given(PIECES, st.booleans(), st.booleans(), st.sampled_from([(), ("END",), ("a", "\n"), ("E", "END")]))
def test_stop_strings_cut_what_would_have_come_without_them(
    qwen: Dialect, letters: Letters, pieces: list[str], tools: bool, thinking: bool, stop: tuple[str, ...]
) -> None:
    def plain(output: list[Output]) -> list[Any]:
        return [call(o) if isinstance(o, ToolCall) else o for o in output]

    script = "".join(pieces)
    options: dict[str, Any] = {"tools": [TOOL] if tools else [], "thinking": thinking}
    whole, _, _ = read(qwen, letters, request(**options), script)
    stopped, _, matched = read(qwen, letters, request(**options, stop=stop), script)
    assert plain(stopped) == plain(cut(whole, stop))
    assert (matched is None) == (plain(stopped) == plain(whole))


def test_an_answer_that_goes_on_keeps_the_space_between_its_words(qwen: Dialect, letters: Letters) -> None:
    messages = [USER, {"role": "assistant", "content": "one"}]
    asked = Request(id="r", prompt=Conversation(messages=messages, continued=True))
    assert read(qwen, letters, asked, " two <think>is no mark here<|im_end|>")[0] == [
        Text(" two <think>is no mark here")
    ]


def test_a_call_may_follow_in_an_answer_that_goes_on(qwen: Dialect, letters: Letters) -> None:
    messages = [USER, {"role": "assistant", "content": "I will"}]
    asked = Request(id="r", prompt=Conversation(messages=messages, tools=[TOOL], continued=True))
    script = ' look.<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>'
    output, reason, _ = read(qwen, letters, asked, script)
    assert output[0] == Text(" look.") and call(output[1]) == ("f", '{"x": 1}') and reason == "tool_calls"


def test_a_thought_that_goes_on(letters: Letters, tmp_path: Path) -> None:
    thoughts = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}{{ m.content }}"
        "<|im_end|>\n{% endfor %}"
    )
    model = dialect(tmp_path, letters, thoughts)
    messages = [USER, {"role": "assistant", "content": "", "reasoning_content": "one"}]
    asked = Request(id="r", prompt=Conversation(messages=messages, thinking=True, continued=True))
    assert read(model, letters, asked, " two</think>\n\nthree<|im_end|>")[0] == [
        Thinking(" two"),
        Text("three"),
    ]
