import re
from datetime import datetime
from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.sandbox import SecurityError

from mashbox.engine import sandbox as module
from mashbox.engine.template import ChatTemplate


def render(source: str, **variables: Any) -> str:
    return ChatTemplate(source).render(variables)


def test_blocks_are_trimmed() -> None:
    assert render("  {% if x %}\na\n  {% endif %}\nb", x=True) == "a\nb"


def test_helpers() -> None:
    assert render("{{ x | tojson }}", x={"ä": "<&'>", "n": [1, True, None]}) == (
        """{"ä": "<&'>", "n": [1, true, null]}"""
    )
    assert render("{{ x | tojson(indent=1) }}", x=[1]) == "[\n 1\n]"
    assert render("{{ x | tojson(ensure_ascii=True) }}", x="ä") == '"ä"'
    assert render("{{ strftime_now('%Y') }}") == datetime.now().strftime("%Y")
    assert render("{% for n in [1, 2, 3] %}{% if n == 2 %}{% break %}{% endif %}{{ n }}{% endfor %}") == "1"
    assert render("{% generation %}a{{ x }}{% endgeneration %}b", x=1) == "a1b"
    assert render("{% set ns = namespace(n=0) %}{% set ns.n = 5 %}{{ ns.n }}") == "5"


def test_a_template_raises_with_its_own_words() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


def test_loops_keep_their_helpers() -> None:
    source = "{% for x in items %}{{ loop.index }}/{{ loop.length }}{{ '!' if loop.last }} {% endfor %}"
    assert render(source, items=["a", "b"]) == "1/2 2/2! "
    assert render(source, items=iter(["a", "b"])) == "1/2 2/2! "
    assert render("{% for k, v in d.items() %}{{ k }}{{ v }}{% else %}none{% endfor %}", d={}) == "none"
    assert render("{% for x in missing %}x{% endfor %}") == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ x.append(1) }}",
        "{{ 10 ** 100000000 }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 1000000000 * [1] }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(SecurityError):
        render(source, x=[])


def test_endless_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STEPS", 1000)
    nested = "{% for a in range(100) %}{% for b in range(100) %}{% endfor %}{% endfor %}"
    with pytest.raises(SecurityError, match="too many steps"):
        render(nested)
    with pytest.raises(SecurityError, match="too many steps"):
        render("{% for a in x %}{% endfor %}", x=iter(int, 1))
    constant = "{% for a in " + str(list(range(40))) + " %}"
    repeated = ChatTemplate(constant * 2 + "{% endfor %}" * 2)
    for _ in range(2):
        with pytest.raises(SecurityError, match="too many steps"):
            repeated.render({})
    assert render("{% for a in range(900) %}{% endfor %}ok") == "ok", "the budget is for one rendering"
    assert render("{% for a in range(900) %}{% endfor %}ok") == "ok"


def test_endless_text_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 1000)
    with pytest.raises(SecurityError, match="too much text"):
        render("{% for a in range(100) %}{{ 'x' * 100 }}{% endfor %}")


def test_literals_are_what_the_template_itself_can_write() -> None:
    found = ChatTemplate("{% if a == '<x>' %}<y>{{ '<z>' + b }}{% endif %}{# <c> #}").literals
    assert [text for text in ("<x>", "<y>", "<z>", "<c>") if text in found] == ["<x>", "<y>", "<z>"]


def test_a_broken_template_fails_only_its_use() -> None:
    broken = ChatTemplate("{% if %}")
    assert broken.literals == ""
    with pytest.raises(TemplateError, match=re.escape("Expected an expression")):
        broken.render({})
