"""System messages behind the first turn, with templates that show, refuse, drop or move them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.late_system import has_late_system, in_neighbours
from mashbox.engine.prompt import render_text
from mashbox.engine.request import Conversation
from tests.engine.vocabularies import byte_level, tokenizer

EACH = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
STRICT = """{% for m in messages %}
{% if m.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}
<{{ m.role }}>{{ m.content }}{% endfor %}"""
DROPS = """{% for m in messages %}
{% if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"""
GATHERS = (
    "{% for m in messages if m.role == 'system' %}<system>{{ m.content }}{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
A = {"role": "system", "content": "A"}
B = {"role": "system", "content": "B"}
C = {"role": "developer", "content": "C"}
USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "so"}
RESULT = {"role": "tool", "content": "1", "tool_call_id": "c"}


@pytest.mark.parametrize(
    "template", [EACH, STRICT, DROPS, GATHERS], ids=["each", "strict", "drops", "gathers"]
)
def test_the_text_is_shown_in_its_place_whatever_the_template(tmp_path: Path, template: str) -> None:
    model = tokenizer(byte_level(template=template, control=("<|im_end|>",)), tmp_path)
    text = render_text(model, Conversation(messages=[A, USER, B, SAID, USER]))
    shown = text.replace("\n", "")
    turn = "<system>B" if template == EACH else "B"
    assert shown == f"<system>A<user>hi{turn}<assistant>so<user>hi"


def test_without_late_system_messages_nothing_changes(tmp_path: Path) -> None:
    model = tokenizer(byte_level(template=STRICT, control=("<|im_end|>",)), tmp_path)
    text = render_text(model, Conversation(messages=[A, USER, SAID, USER]))
    assert text.replace("\n", "") == "<system>A<user>hi<assistant>so<user>hi"


@pytest.mark.parametrize(
    ("messages", "contents"),
    [
        ([A, USER, B], ["A", "hi\n\nB"]),
        ([USER, B, C, SAID], ["hi\n\nB\n\nC", "so"]),
        ([USER, SAID, B, USER], ["hi", "so", "B\n\nhi"]),
        ([USER, SAID, RESULT, B, SAID], ["hi", "so", "1\n\nB", "so"]),
        ([USER, SAID, RESULT, B], ["hi", "so", "1\n\nB"]),
        ([USER, SAID, RESULT, B, USER], ["hi", "so", "1", "B\n\nhi"]),
        ([USER, SAID, B], ["hi", "so", "B"]),
        ([A, B, SAID], ["A", "B", "so"]),
        ([USER, {**B, "content": ""}, SAID], ["hi", "so"]),
        ([{**USER, "content": ""}, B], ["B"]),
        ([B], ["B"]),
        ([], []),
    ],
)
def test_where_the_text_goes(messages: list[dict[str, Any]], contents: list[str]) -> None:
    before = [dict(message) for message in messages]
    moved = in_neighbours(messages)
    assert [message["content"] for message in moved] == contents
    assert not has_late_system(moved)
    assert messages == before


@given(st.lists(st.sampled_from([USER, SAID, RESULT, B, C]), max_size=9))
def test_nothing_is_lost_or_reordered(messages: list[dict[str, Any]]) -> None:
    numbered = [{**message, "content": f"[{i}]"} for i, message in enumerate(messages)]
    moved = in_neighbours(numbered)
    assert "".join(message["content"] for message in moved).replace("\n", "") == "".join(
        message["content"] for message in numbered
    )
    kept = [message["role"] for message in messages if message["role"] in ("assistant", "tool")]
    assert [message["role"] for message in moved if message["role"] in ("assistant", "tool")] == kept
