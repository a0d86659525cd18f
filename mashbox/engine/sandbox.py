"""The sandbox that chat templates are compiled in, with the helpers that they count on.

The environment is the one that transformers gives templates (blocks trimmed, ``tojson`` that leaves letters
as they are, ``raise_exception``, ``strftime_now``, loop controls, ``generation`` blocks). Templates come with
a model and are not trusted: besides the sandbox, the steps of their loops and the size of what they build
are limited.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from datetime import datetime
from typing import Any, ClassVar

from jinja2 import Template, TemplateError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS = 5_000_000
MAX_CHARACTERS = 64 << 20

_steps_left: ContextVar[list[int]] = ContextVar("steps_left")


def parsed(source: str) -> nodes.Template:
    """A template's tree. Raises TemplateSyntaxError."""
    return _environment().parse(source)


def compiled(source: str) -> Template:
    """A template that can be rendered. Raises TemplateSyntaxError."""
    return _environment().from_string(source)


def render(template: Template, variables: Mapping[str, Any]) -> str:
    """The text; whatever a template raises (TemplateError, TypeError ...) comes through as it is."""
    token = _steps_left.set([MAX_STEPS])
    try:
        parts: list[str] = []
        size = 0
        for part in template.generate(**variables):
            size += len(part)
            _check_size(size)
            parts.append(part)
        return "".join(parts)
    finally:
        _steps_left.reset(token)


def _check_size(characters: int) -> None:
    if characters > MAX_CHARACTERS:
        raise SecurityError("the template builds too much text")


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with limits on what a template can repeat."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("the operator ** is not allowed in a chat template")
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(count, int):
                _check_size(len(sequence) * count)
        return super().call_binop(context, operator, left, right)

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        for loop in source.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "bounded", [], [], None, None)
            loop.iter.set_environment(self)
        return super()._generate(source, *arguments, **options)


class _Generation(Extension):
    """``{% generation %}`` marks what a model is trained on; here its body stands for itself."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pass_context
def _bounded(context: Context, items: Any) -> Any:
    """The items of a ``for``, counted against the budget of this rendering.

    Taking the context keeps the compiler from working it out once for constant items.
    """
    del context
    if isinstance(items, Sized):
        _take_steps(len(items))
        return items
    return _counted(items)


def _counted(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        _take_steps(1)
        yield item


def _take_steps(count: int) -> None:
    left = _steps_left.get()
    left[0] -= count
    if left[0] < 0:
        raise SecurityError("the template's loops take too many steps")


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML. Escaped letters would hide what markers.py wrapped.
    del ensure_ascii
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.filters["bounded"] = _bounded
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment
