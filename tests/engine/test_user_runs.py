"""Several user messages in a row reach the model under every template."""

from pathlib import Path

import pytest

from mashbox.engine.prompt import render_text
from mashbox.engine.request import Conversation
from mashbox.engine.tokenizer import ModelTokenizer
from tests.engine.test_prompt import CONTROL, tokenizer
from tests.engine.vocabularies import byte_level

PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
TURNS = [
    {"role": "user", "content": "a"},
    {"role": "user", "content": "b"},
    {"role": "assistant", "content": "c"},
    {"role": "user", "content": ""},
    {"role": "user", "content": "d"},
]


@pytest.mark.parametrize(
    ("template", "text"),
    [(PLAIN, "[user]a[user]b[assistant]c[user][user]d"), (STRICT, "[user]a\n\nb[assistant]c[user]d")],
)
def test_runs_are_joined_only_where_the_template_wants_it(tmp_path: Path, template: str, text: str) -> None:
    model: ModelTokenizer = tokenizer(byte_level(template=template, control=CONTROL), tmp_path)
    assert render_text(model, Conversation(messages=TURNS)) == text
