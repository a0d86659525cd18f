"""The text of an answer, piece by piece, into events: thoughts, text, tool calls.

Built on transformers' ``response_template`` schema and its ``ResponseParser``, which parses the text of each
tool-call region and casts arguments by the tools' schemas. Finding the regions is done here, because a
server needs more than the library's own streaming gives:

- The library raises in the middle of an answer when a call is not valid, and what came with it is lost.
  Here the text of a region, markers included, is kept until it has been read as calls of known tools;
  when it can't be, its first character is text and what follows is looked at afresh, so that nothing is
  lost and a good call behind a bad one is found.
- The library ends a region at the first closing marker. Here one inside a JSON string does not count (an
  agent writes files that name markers).
- A thought opens only where nothing was said before: elsewhere its marker is prose.
- Text before, between and behind calls comes in order, white space at a region's borders trimmed by one
  rule whatever the pieces were.
- The library keeps and copies all text so far at every piece. Here only what is undecided is kept, so the
  cost of a token does not grow with the answer.

The events' fold depends on the text alone, never on how it was cut into pieces.
"""

import secrets
import string
from typing import Any

from mashbox.engine.events import Text, Thinking, ToolCall
from mashbox.engine.formats.base import Hit, OutputFormat, Region
from mashbox.engine.formats.calls import Tools, read_calls
from mashbox.engine.formats.collect import Collector

Piece = Text | Thinking | ToolCall

_CONTEXT = 32
"""Characters before the undecided text that an opening's pattern can look back at."""

_MAX_SPACE = 16
"""A longer run of white space is said at once: a stop string of line ends must not wait for ever."""

_MAX_FAILED = 400_000
"""Characters of regions that turned out not to be calls, after which an answer has none: each may be as long
as the answer, so a model in a loop could make them cost the square of it."""

_STRIDE = 1024
"""Characters that are looked at in one go."""

_ID_LETTERS = string.ascii_letters + string.digits


class OutputParser:
    """One answer's parser.

    ``format`` None: all is text. ``prefix`` is the end of the rendered prompt since the assistant's turn
    began: a thought or a call that it opened is open. ``tools`` are OpenAI function tools; a call of any
    other name is text, so with an empty list all calls are. ``tools`` None: names are not checked.
    ``begun``: words of the text, or of the thought that ``prefix`` opened, stand before this answer's.
    """

    def __init__(
        self,
        format: OutputFormat | None,
        prefix: str = "",
        tools: list[dict[str, Any]] | None = None,
        *,
        begun: bool = False,
    ) -> None:
        self._format = format
        self._tools = Tools(tools)
        calls = tools is None or bool(tools)
        regions = format.regions if format else ()
        self._anywhere = [r for r in regions if not r.first and (calls or r.kind != "call")]
        self._at_start = [r for r in regions if r.first and (calls or r.kind != "call")]
        self._voice = _Voice()
        self._undecided = ""
        self._ahead = ""
        self._context = ""
        self._inside: Region | None = None
        self._call: Collector | None = None
        self._failed = 0
        self._ended = False
        if format and prefix:
            self._read_prefix(format, prefix)
        if begun:
            self._voice.go_on()

    def push(self, text: str) -> list[Piece]:
        """The events that are certain with this text; markers are in it, end-of-turn tokens are not."""
        if self._format is None:
            return [Text(text)] if text else []
        self._ahead += text
        self._run()
        return self._voice.take()

    def finish(self) -> list[Piece]:
        """The last events: the answer has ended, by the model or by a limit."""
        self._ended = True
        self._run()
        if self._inside is None:
            self._voice.say_space()
        return self._voice.take()

    @property
    def thinking(self) -> bool:
        """Whether a thought is open."""
        return self._inside is not None and self._inside.kind == "thinking"

    def _run(self) -> None:
        """Read all that is there, a little at a time: looking for one opening must not pass over the next."""
        while True:
            while self._step():
                pass
            if not self._ahead:
                return
            self._undecided += self._ahead[:_STRIDE]
            self._ahead = self._ahead[_STRIDE:]

    @property
    def _at_end(self) -> bool:
        return self._ended and not self._ahead

    def _step(self) -> bool:
        """Decide something about the undecided text; False when that takes more of it."""
        if self._call:
            return self._step_call(self._call)
        if not self._undecided:
            return False
        if self._inside:
            return self._step_inside(self._inside)
        return self._step_outside()

    def _step_outside(self) -> bool:
        text, at_start = self._undecided, not self._voice.spoke or self._voice.after_call
        if not at_start and all(region.open.absent(text) for region in self._anywhere):
            self._say(len(text))
            return False
        if self._voice.at_border:
            self._say(len(self._undecided) - len(self._undecided.lstrip()))
        region, hit, certain = self._next_opening()
        self._say(certain)
        if region is None or hit is None:
            return False
        size = hit.end - hit.start
        if region.kind == "frame":
            self._drop(size)
        elif region.kind != "call":
            self._drop(size)
            self._inside = region
            self._voice.open(Thinking if region.kind == "thinking" else Text)
        elif self._tools.know(hit.groups.get("name", "")) or "name" not in hit.groups:
            self._call = Collector(region, self._undecided, size)
            self._undecided = ""
        else:
            self._refuse()
        return True

    def _next_opening(self) -> tuple[Region | None, Hit | None, int]:
        """The next region's opening if it is certain, and how many characters before it are certain text."""
        text, start = self._context + self._undecided, len(self._context)
        best: tuple[Region, Hit] | None = None
        hold = len(text)
        behind = self._format.after_call if self._format else None
        for region in self._watched():
            if region.first or region is behind:
                hit = region.open.at(text, start, end_of_text=self._at_end)
            else:
                hit = region.open.search(text, start, end_of_text=self._at_end)
            if hit is None:
                continue
            if hit.pending:
                hold = min(hold, hit.start)
            elif (hit.end > hit.start or self._may_be_empty(region, hit, text)) and (
                best is None or (hit.start, -hit.end) < (best[1].start, -best[1].end)
            ):
                best = region, hit
        # One that is pending at the same place may turn out to be the longer one.
        if best is None or best[1].start >= hold:
            return None, None, hold - start
        return *best, best[1].start - start

    def _watched(self) -> list[Region]:
        regions = self._anywhere if self._voice.spoke else self._at_start + self._anywhere
        if self._voice.after_call and self._format and self._format.after_call:
            regions = [self._format.after_call, *regions]
        if self._failed >= _MAX_FAILED:
            regions = [region for region in regions if region.kind != "call"]
        return regions

    def _may_be_empty(self, region: Region, hit: Hit, text: str) -> bool:
        """An opening of no characters (the answer's start itself) counts once, so that parsing goes on."""
        return hit.end < len(text) and (region.kind == "call" or not self._context)

    def _step_inside(self, region: Region) -> bool:
        text = self._undecided
        if region.close and region.close.absent(text):
            self._say(len(text))
            return False
        hit = region.close.search(text, end_of_text=self._at_end) if region.close else None
        if hit is None or hit.pending:
            self._say(hit.start if hit else len(text))
            return False
        self._say(hit.start)
        self._drop(hit.end - hit.start)
        if hit.end == 0 and not self._context:
            self._context = "\n"
        self._voice.close()
        self._inside = None
        return True

    def _step_call(self, call: Collector) -> bool:
        call.push(self._undecided, end_of_text=self._at_end)
        self._undecided = ""
        if not call.closed and not self._at_end:
            return False
        self._call = None
        raw, rest = call.take()
        split = self._format.split if self._format else None
        whole = call.closed or call.region.shows_its_end
        calls = read_calls(call.region, raw, self._tools, split) if whole else None
        if calls is None:
            self._undecided, self._ahead = raw[:1], raw[1:] + rest + self._ahead
            self._failed += len(raw)
            self._refuse()
            return True
        self._voice.call([ToolCall(_new_id(), one.name, one.arguments) for one in calls])
        self._context = raw[-_CONTEXT:]
        self._undecided = rest
        return True

    def _refuse(self) -> None:
        """What looked like an opening is none: its first character is text, the rest is looked at again."""
        self._say(1)

    def _say(self, length: int) -> None:
        if length:
            self._voice.say(self._undecided[:length])
            self._drop(length)

    def _drop(self, length: int) -> None:
        if self._voice.spoke or self._undecided[:length].strip():
            self._context = (self._context + self._undecided[:length])[-_CONTEXT:]
        self._undecided = self._undecided[length:]

    def _read_prefix(self, format: OutputFormat, prefix: str) -> None:
        """Take up where the template left off: inside a thought, inside a call, or outside."""
        text = format.compiled.truncate_past_last_anchor(prefix)
        self._context = text[-_CONTEXT:] if text.strip() else ""
        last: tuple[Region, Hit] | None = None
        for region in self._at_start + self._anywhere:
            at = 0
            while (hit := region.open.search(text, at, end_of_text=True)) and hit.start < len(text):
                if (
                    hit.end > hit.start
                    and region.kind != "frame"
                    and (not last or hit.start >= last[1].start)
                ):
                    last = region, hit
                at = max(hit.end, hit.start + 1)
        if last:
            self._take_up(*last, text)
        if not self._inside and not self._call:
            self._hold_half_opening(text)

    def _take_up(self, region: Region, hit: Hit, text: str) -> None:
        if region.kind == "call":
            self._call = Collector(region, text[hit.start :], hit.end - hit.start)
            if self._call.closed:
                self._call = None
        elif region.close is None or region.close.search(text, hit.end, end_of_text=True) is None:
            self._inside = region
            self._voice.open(Thinking if region.kind == "thinking" else Text)
        else:
            self._voice.lead()

    def _hold_half_opening(self, text: str) -> None:
        """A call's opening that the prompt began and the answer completes."""
        for region in self._at_start + self._anywhere:
            if region.kind != "call":
                continue
            hit = region.open.search(text)
            if hit and hit.pending and text[hit.start :].strip():
                self._undecided = text[hit.start :]
                self._context = text[: hit.start][-_CONTEXT:]
                return


class _Voice:
    """What is said, with the white space at the borders of regions trimmed.

    ``spoke``: there is text or a call. ``at_border``: only white space since a region or the start.
    """

    def __init__(self) -> None:
        self._events: list[Piece] = []
        self._kind: type[Text] | type[Thinking] = Text
        self._last: type[Text] | type[Thinking] | None = None
        self._space = ""
        self._long_space = False
        self._skip_space = False
        self._joint = ""
        self.spoke = False
        self.at_border = True

    @property
    def after_call(self) -> bool:
        """Whether the last that was said is a call."""
        return self.spoke and self._last is None

    def take(self) -> list[Piece]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def say(self, text: str) -> None:
        """Say a text; white space at its end waits for what comes behind it."""
        if self._skip_space:
            text = text.lstrip()
            self._skip_space = not text
        body = text.rstrip()
        if body:
            self._emit(self._space + body)
            self._space = text[len(body) :]
            self._long_space = self.at_border = False
            # A thought is no answer: a second one may open behind it.
            self.spoke = self.spoke or self._kind is Text
        else:
            self._space += text
        self._long_space = self._long_space or len(self._space) > _MAX_SPACE
        if self._long_space:
            self.say_space()

    def say_space(self) -> None:
        """Say the white space that waited."""
        if self._space:
            self._emit(self._space)
            self._space = ""

    def go_on(self) -> None:
        """Words of what is being said were said before: white space between them and the next counts."""
        self._skip_space = self.at_border = False
        self._last = self._kind
        self.spoke = self._kind is Text

    def open(self, kind: type[Text] | type[Thinking]) -> None:
        """A region of its own begins; two of a kind, one behind the other, are kept apart by a blank line."""
        self._joint = "\n\n" if self._last is kind else ""
        self._kind = kind
        self.lead()

    def close(self) -> None:
        """The region ends, and text comes again."""
        self._kind = Text
        self._joint = ""
        self.lead()

    def call(self, calls: list[ToolCall]) -> None:
        self._events += calls
        self._last = None
        self.spoke = True
        self.lead()

    def lead(self) -> None:
        """White space before this place, and behind it, is the format's."""
        self._space = ""
        self._long_space = False
        self._skip_space = self.at_border = True

    def _emit(self, text: str) -> None:
        text, self._joint = self._joint + text, ""
        self._last = self._kind
        if self._events and isinstance(last := self._events[-1], self._kind):
            self._events[-1] = self._kind(last.text + text)
        else:
            self._events.append(self._kind(text))


def _new_id() -> str:
    return "call_" + "".join(secrets.choice(_ID_LETTERS) for _ in range(24))
