"""A format is a ``response_template`` of transformers plus the two things that its schema can't say.

The schema: https://huggingface.co/docs/transformers/main/chat_response_parsing. A template names regions
of an answer by an opening and a closing (literal or pattern), a parser for what lies between, and a
transform that brings it into an assistant message's shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import regex  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from transformers.utils.chat_parsing.response_templates import ResponseTemplate, ResponseTemplateField

Kind = Literal["thinking", "text", "call", "frame"]

_THOUGHTS = {"thinking", "reasoning", "reasoning_content", "tool_plan"}

MAX_OPENING = 4096
"""Characters of the longest opening or closing; what only looks like one is text when it gets longer."""

_SHORT = 256


@dataclass(frozen=True, eq=False)
class Hit:
    """Where an opening or closing lies in a text. ``pending``: more text is needed to know."""

    start: int
    end: int
    pending: bool
    groups: dict[str, str]


@dataclass(frozen=True, eq=False)
class Anchor:
    """An opening or closing. ``final``: a match at the text's very end can't change with more text."""

    pattern: Any
    final: bool
    _idle: set[str] = field(default_factory=set)

    def absent(self, text: str) -> bool:
        """A cheap look at a short text: whether none of its characters can begin the anchor.

        False may be wrong.
        """
        if len(text) > _SHORT:
            return False
        if self._idle.issuperset(text):
            return True
        if "(?<" in self.pattern.pattern.replace("(?P<", ""):
            return False
        for letter in set(text) - self._idle:
            # Behind another letter: what opens at an answer's start only is not meant.
            if self.pattern.match(f"\0{letter}", 1, partial=True):
                return False
            self._idle.add(letter)
        return True

    def search(self, text: str, start: int = 0, *, end_of_text: bool = False) -> Hit | None:
        """The first place at or behind ``start`` that is this anchor, or might become it."""
        while match := self.pattern.search(text, start, partial=not end_of_text):
            hit = self._hit(match, text, end_of_text)
            if hit is not None:
                return hit
            start = match.start() + 1
            if start > len(text):
                break
        return None

    def at(self, text: str, start: int, *, end_of_text: bool = False) -> Hit | None:
        """The anchor at exactly ``start``."""
        match = self.pattern.match(text, start, partial=not end_of_text)
        return self._hit(match, text, end_of_text) if match else None

    def _hit(self, match: Any, text: str, end_of_text: bool) -> Hit | None:
        at_edge = match.end() == len(text) and not (self.final and match.end() > match.start())
        pending = not end_of_text and (match.partial or at_edge)
        if (len(text) if pending else match.end()) - match.start() > MAX_OPENING:
            return None
        groups = {key: value for key, value in match.groupdict().items() if value is not None}
        return Hit(match.start(), match.end(), pending, groups)


@dataclass(frozen=True, eq=False)
class Region:
    """One kind of region of an answer, compiled.

    ``first``: it opens only where nothing but white space was said before. ``alone`` is a template of this
    region only, whose closing counts at the end of the text only, see :mod:`mashbox.engine.formats.calls`.
    ``close`` None: it goes on to the end of the answer.
    """

    name: str
    kind: Kind
    open: Anchor
    close: Anchor | None
    first: bool
    content: str
    content_args: dict[str, Any]
    alone: ResponseTemplate | None

    @property
    def is_json(self) -> bool:
        """Whether the region holds plain JSON, whose strings can be told from its structure."""
        return self.content == "json" and not self.content_args

    @property
    def shows_its_end(self) -> bool:
        """Whether what the region holds can be told from a part of it without the closing."""
        return self.close is None or self.content in ("json", "python-call-list")


@dataclass(frozen=True, eq=False)
class OutputFormat:
    """How a family writes its answers.

    ``template`` is a ``response_template``. Its regions called ``thinking``, ``content`` and
    ``tool_calls`` (or a name that starts so: a family may write calls in several ways) are used; others
    stay text. ``first`` names regions that open only at the start of an answer, since anywhere else their
    opening is prose. ``group_end`` is a marker that may follow a call and then belongs to it. ``split``
    cuts the text of one tool-call region into several, for families that write calls one behind the other.
    """

    name: str
    template: dict[str, Any]
    first: frozenset[str] = frozenset({"thinking"})
    group_end: str | None = None
    split: Callable[[str], list[str]] | None = None

    @functools.cached_property
    def compiled(self) -> ResponseTemplate:
        """The template as transformers loads it. Raises ValueError when it is not a valid one."""
        return _load(self.template)

    @functools.cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions that the parser looks for."""
        return tuple(self._regions())

    def _regions(self) -> Iterator[Region]:
        for one in self.compiled.fields.values():
            kind = _kind(one.name)
            if one.open_re is not None and kind:
                yield Region(
                    name=one.name,
                    kind=kind,
                    open=Anchor(one.open_re, _final(one.open_literals, one.open_literal_can_extend)),
                    close=_close(one),
                    first=one.name in self.first,
                    content=one.content,
                    content_args=one.content_args,
                    alone=_alone(one.name, self.template["fields"][one.name]) if kind == "call" else None,
                )
            elif one.open_re is None and one.close_re is not None:
                # A closing of the text outside all regions: a marker that no client should see.
                yield _frame(one.close_re)
        if self.compiled.implicit is None:
            # All text has regions of its own here, and between them the turn's opening comes again.
            yield _frame(self.compiled.start_anchor_re)

    @property
    def writes_calls(self) -> bool:
        """Whether tool calls are part of the format."""
        return any(region.kind == "call" for region in self.regions)

    @functools.cached_property
    def after_call(self) -> Region | None:
        """The region that is looked for right behind a call only."""
        return _frame(regex.compile(regex.escape(self.group_end)), final=True) if self.group_end else None


def _load(template: dict[str, Any]) -> ResponseTemplate:
    # Imported here: transformers takes most of a second, which a server has while its model loads.
    from transformers.utils.chat_parsing.response_templates import load_response_template

    return load_response_template(template)


def _kind(name: str) -> Kind | None:
    if name.startswith("tool_calls"):
        return "call"
    if name in _THOUGHTS:
        return "thinking"
    return "text" if name.startswith("content") else None


def _final(literals: list[str] | None, can_extend: bool) -> bool:
    return literals is not None and not can_extend


def _close(one: ResponseTemplateField) -> Anchor | None:
    if one.close_re is None:
        return None
    return Anchor(one.close_re, _final(one.close_literals, one.close_literal_can_extend))


def _frame(pattern: Any, *, final: bool = False) -> Region:
    anchor = Anchor(pattern, final)
    return Region(
        name="",
        kind="frame",
        open=anchor,
        close=None,
        first=False,
        content="text",
        content_args={},
        alone=None,
    )


def _alone(name: str, given: dict[str, Any]) -> ResponseTemplate:
    """A template of one region that is the whole text: from its opening at the start to its end."""
    one = {key: value for key, value in deepcopy(given).items() if key not in ("repeats", "join")}
    for side, anchored in (("open", r"\A(?:{})"), ("close", r"(?:{})\Z")):
        pattern = one.pop(f"{side}_pattern", None)
        if (literal := one.pop(side, None)) is not None:
            literals = [literal] if isinstance(literal, str) else sorted(literal, key=len, reverse=True)
            pattern = "|".join(regex.escape(text) for text in literals)
        if pattern is not None:
            one[f"{side}_pattern"] = anchored.format(pattern)
    return _load({"start_anchor_pattern": r"\A", "fields": {name: one}})
