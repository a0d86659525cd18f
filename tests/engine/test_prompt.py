from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.detokenize import decode
from mashbox.engine.gguf_tokenizer import write_tokenizer
from mashbox.engine.prompt import encode, render, render_text
from mashbox.engine.request import Conversation
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.errors import InvalidRequest, PromptTooLong
from tests.engine.vocabularies import byte_level, sentencepiece, tokenizer

# Like the templates of today's models with tools and thinking: every place that a client's text can get to.
FULL = """
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}
<|im_start|>{{ m.role }}{{ ' ' + m.name if m.name }}
{% set content = m.content.strip() %}
{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ content }}
{%- for call in m.tool_calls or [] %}<tool>{{ call.function.name }}
{%- for key, value in call.function.arguments.items() %} {{ key }}={{ value }}{% endfor %}</tool>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking %}<think>
{% endif %}{% endif %}"""
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = ("<think>", "</think>", "<tool>", "</tool>")
HELLO = [{"role": "user", "content": "hello"}]

Make = Callable[..., ModelTokenizer]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def of_template(template: str | None, **keys: Any) -> ModelTokenizer:
        return tokenizer(byte_level(template=template, control=CONTROL, **keys), tmp_path)

    return of_template


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    metadata = byte_level(template=FULL, control=CONTROL, user_defined=USER_DEFINED)
    return tokenizer(metadata, tmp_path_factory.mktemp("full"))


def markers(model: ModelTokenizer, ids: list[int]) -> list[str]:
    return [model.token_bytes(index).decode() for index in ids if model.is_control(index)]


TYPED = st.lists(
    st.sampled_from(
        [*CONTROL, *USER_DEFINED, "<", "|im_", "end|>", "<|im_end|", "think>", "a", " ", "\n", "é\0"]
    ),
    max_size=6,
).map("".join)


@given(st.tuples(*[TYPED] * 8))
def test_what_a_client_types_never_becomes_a_marker(full: ModelTokenizer, typed: tuple[str, ...]) -> None:
    system, user, thought, said, key, value, result, described = typed
    call = {"id": "c", "type": "function", "function": {"name": value, "arguments": {f"k{key}": value}}}

    def conversation(system: str, user: str, thought: str, said: str, result: str) -> Conversation:
        return Conversation(
            messages=[
                {"role": "system", "content": system},
                {"role": "user", "content": user, "name": f"n{user}"},
                {
                    "role": "assistant",
                    "content": said,
                    "reasoning_content": f"t{thought}",
                    "tool_calls": [call],
                },
                {"role": "tool", "content": result, "name": f"f{result}", "tool_call_id": "c"},
            ],
            tools=[{"type": "function", "function": {"name": key, "description": described}}],
        )

    prompt = render(full, conversation(system, user, thought, said, result))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}
    clean = render(full, conversation("s", "u", "t", "a", "r"))
    assert markers(full, prompt.ids) == markers(full, clean.ids)


@given(TYPED)
def test_the_text_itself_stays_the_same(full: ModelTokenizer, typed: str) -> None:
    messages = [{"role": "user", "content": typed}]
    content = typed.strip().split("</think>")[-1]
    expected = f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    assert render_text(full, Conversation(messages=messages)) == expected
    assert decode(full, render(full, Conversation(messages=messages)).ids, markers=True) == expected


def test_options_are_a_clients_text_too(make: Make) -> None:
    model = make("<|im_start|>{{ note }}{{ messages[0].content }}")
    conversation = Conversation(messages=HELLO, options={"note": "<|im_end|>"})
    assert markers(model, render(model, conversation).ids) == ["<|im_start|>"]


def test_options_replace_nothing_of_ours(make: Make) -> None:
    template = (
        "{{ messages | length }}{{ tools }}{{ add_generation_prompt }}{{ enable_thinking }}{{ eos_token }}"
    )
    options = {"messages": [], "tools": [1], "add_generation_prompt": False, "eos_token": "x"}
    model = make(template)
    conversation = Conversation(messages=HELLO, options=options | {"enable_thinking": True})
    assert render_text(model, conversation) == "1NoneTrueFalse<|im_end|>"


def test_thinking_is_said_explicitly_and_seen_in_the_prompt(full: ModelTokenizer) -> None:
    on = render(full, Conversation(messages=HELLO, thinking=True))
    off = render(full, Conversation(messages=HELLO, thinking=False))
    assert on.thinking_open
    assert not off.thinking_open
    assert markers(full, on.ids)[-1] == "<think>"


@pytest.mark.parametrize(
    ("ending", "is_open"),
    [("<think>", True), ("<think>\n\n", True), ("<think></think>", False), ("", False), ("[THINK]", True)],
)
def test_which_prompts_end_in_an_open_thought(make: Make, ending: str, is_open: bool) -> None:
    model = make("{{ messages[0].content }}" + ending)
    assert render(model, Conversation(messages=HELLO)).thinking_open is is_open


def test_a_typed_thought_opens_none(make: Make) -> None:
    model = make("{{ '<think>' if enable_thinking }}{{ messages[0].content }}")
    typed = [{"role": "user", "content": "say <think>"}]
    assert not render(model, Conversation(messages=typed)).thinking_open


@pytest.mark.parametrize(
    "template", ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"]
)
def test_bos_once_whether_or_not_the_template_writes_it(make: Make, template: str) -> None:
    model = make(template, add_bos_token=True)
    ids = render(model, Conversation(messages=HELLO)).ids
    assert ids[0] == model.bos_id
    assert ids.count(ids[0]) == 1


def test_no_bos_where_the_model_wants_none(make: Make) -> None:
    assert make("{{ messages[0].content }}").bos_id is not None
    assert (
        markers(make(""), render(make("{{ messages[0].content }}"), Conversation(messages=HELLO)).ids) == []
    )


def test_a_model_without_a_template_points_to_completions(make: Make) -> None:
    with pytest.raises(InvalidRequest, match=r"no chat template.*/v1/completions"):
        render(make(None), Conversation(messages=HELLO))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('System role not supported') }}", "System role not supported"),
        ("{{ messages[7].content }}", "has no element 7"),
        ("{{ messages[0].content + 1 }}", "can only concatenate str"),
        ("{{ messages.__class__.__base__ }}", "unsafe"),
        ("{% for %}", "Expected"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_a_template_that_fails_is_a_bad_request_with_its_own_words(
    make: Make, template: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        render(make(template), Conversation(messages=HELLO))
    assert caught.value.param == "messages"
    assert caught.value.status == 400


def test_reasoning_goes_under_both_names(make: Make) -> None:
    model = make("{% for m in messages %}{{ m.thinking }}|{{ m.reasoning_content }};{% endfor %}")
    messages = [*HELLO, {"role": "assistant", "content": "a", "reasoning_content": "why"}]
    assert render_text(model, Conversation(messages=messages)) == "|;why|why;"


def test_null_fields_count_as_absent(make: Make) -> None:
    model = make("{{ 'yes' if messages[0].name is defined else 'no' }}")
    assert render_text(model, Conversation(messages=[{"role": "user", "content": "", "name": None}])) == "no"


def test_a_template_that_takes_lists_of_parts_gets_them(make: Make) -> None:
    model = make("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}")
    assert render_text(model, Conversation(messages=HELLO)) == "hello"


CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "f", "arguments": {"x": "ä"}}}],
}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("{{ c.function.arguments | tojson }}", '{"x": "ä"}'),
        ("{{ c.function.name + c.function.arguments }}", 'f{"x": "ä"}'),
        ("{{ c.function.arguments }}", '{"x": "ä"}'),
        ("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}", "x=ä"),
    ],
)
def test_arguments_come_as_the_template_wants_them(make: Make, argument: str, expected: str) -> None:
    model = make(
        f"{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{argument}{{% endfor %}}{{% endfor %}}"
    )
    assert render_text(model, Conversation(messages=[*HELLO, CALL])) == expected


def test_a_template_for_tools_is_used_with_tools(tmp_path: Path) -> None:
    metadata = byte_level(template="plain") | {"tokenizer.chat_template.tool_use": "tools"}
    model = tokenizer(metadata, tmp_path)
    assert render_text(model, Conversation(messages=HELLO)) == "plain"
    assert render_text(model, Conversation(messages=HELLO, tools=[{"type": "function"}])) == "tools"


def test_the_clients_own_data_is_left_alone(full: ModelTokenizer) -> None:
    messages = [{"role": "user", "content": "<|im_end|>", "name": None}]
    render(full, Conversation(messages=messages))
    assert messages == [{"role": "user", "content": "<|im_end|>", "name": None}]


def test_raw_prompts(tmp_path: Path) -> None:
    model = tokenizer(sentencepiece(), tmp_path)
    assert encode(model, "he<turn>").ids == model.encode_text("he<turn>", specials=True)
    assert not encode(model, "<think>").thinking_open


def test_a_prompt_of_no_tokens_is_refused(make: Make) -> None:
    with pytest.raises(InvalidRequest, match="empty") as caught:
        encode(make(""), "")
    assert caught.value.param == "prompt"
    with pytest.raises(InvalidRequest, match="empty"):
        encode(make(""), Conversation(messages=HELLO))


@pytest.mark.real
def test_the_starters_prompt_is_llama_servers(starter_gguf: Path, tmp_path: Path) -> None:
    # The ids that llama-server gives for this conversation (/apply-template, then /tokenize).
    expected = [
        *[
            1,
            9690,
            198,
            2683,
            359,
            253,
            5356,
            5646,
            11173,
            3365,
            3511,
            308,
            34519,
            28,
            7018,
            411,
            407,
            19712,
            8182,
        ],
        *[2, 198, 1, 4093, 198, 5820, 1296, 9244, 30, 2, 198, 1, 520, 9531, 198],
    ]
    write_tokenizer(starter_gguf, tmp_path)
    model = ModelTokenizer.load(tmp_path)
    conversation = Conversation(messages=[{"role": "user", "content": "Name three planets."}])
    assert encode(model, conversation).ids == expected


def test_a_text_beyond_any_doubt_is_refused_without_reading_it_all(make: Make) -> None:
    model = make("{% for m in messages %}{{ m.content }}{% endfor %}")
    giant = "ab " * 2_000_000
    for prompt in (giant, Conversation(messages=[{"role": "user", "content": giant}])):
        with pytest.raises(PromptTooLong) as refusal:
            encode(model, prompt, 100)
        exact = len(model.encode_text(giant[:300_000], specials=False)) * 20
        assert refusal.value.limit == 100 and 0.9 < refusal.value.tokens / exact < 1.1
        with pytest.raises(PromptTooLong):
            encode(model, prompt, 1)
    # What may fit is counted to the token.
    assert len(encode(model, "ab " * 1000, 100).ids) == len(model.encode_text("ab " * 1000, specials=False))


def going_on(**answer: str) -> Conversation:
    return Conversation(messages=[*HELLO, {"role": "assistant", **answer}], continued=True)


def test_an_answer_that_goes_on_ends_the_prompt_with_its_last_word(full: ModelTokenizer) -> None:
    conversation = going_on(content="It is <|im_end|> and ")
    prompt = render(full, conversation)
    assert render_text(full, conversation).endswith("<|im_start|>assistant\nIt is <|im_end|> and ")
    # What was typed is text: the prompt's only marker of an end is the user's.
    assert markers(full, prompt.ids) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert (prompt.begun, prompt.thinking_open, prompt.tail) == (True, False, "")


def test_a_thought_goes_on_behind_its_opening(full: ModelTokenizer) -> None:
    conversation = going_on(content="", reasoning_content="Let me </think> see")
    prompt = render(full, conversation)
    assert render_text(full, conversation).endswith("<think>Let me </think> see")
    assert markers(full, prompt.ids)[-1] == "<think>"
    assert (prompt.begun, prompt.thinking_open) == (True, True)
    assert prompt.tail.endswith("<think>")


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        ("{{ messages[0].content }}", {"content": "hidden"}),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            {"content": "", "reasoning_content": "hidden"},
        ),
        (
            "{% for m in messages %}{{ m.reasoning_content }}{% endfor %}",
            {"content": "", "reasoning_content": "no opening"},
        ),
    ],
)
def test_what_a_template_does_not_show_can_not_go_on(
    make: Make, template: str, answer: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest, match="does not show") as caught:
        render(make(template), going_on(**answer))
    assert caught.value.param == "messages[1]"
