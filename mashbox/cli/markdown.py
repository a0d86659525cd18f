"""Markdown that appears on a terminal while it is being written.

The text is cut into its top-level blocks. A block that is followed by another is complete: it is printed
once, for good, and scrolls away like any output. Only the last block is drawn anew as it grows, and of it
no more lines than the screen holds, so that nothing flickers and nothing is lost.
"""

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment, Segments
from rich.spinner import Spinner
from rich.text import Text

_blocks = MarkdownIt().enable("table")

CODE_THEME = "ansi_dark"
"""The terminal's own colours, readable on light and dark grounds alike."""


def split_complete(text: str) -> tuple[str, str]:
    """Cut ``text`` before its last top-level block: what is in front can't change any more."""
    starts = [
        token.map[0] for token in _blocks.parse(text) if token.level == 0 and token.nesting >= 0 and token.map
    ]
    if len(starts) < 2:
        return "", text
    lines = text.split("\n")
    return "\n".join(lines[: starts[-1]]), "\n".join(lines[starts[-1] :])


class Tail:
    """The last lines of a renderable that are sure to fit the screen."""

    def __init__(self, inner: RenderableType, spare: int = 3, most: int | None = None) -> None:
        self._inner = inner
        self._spare = spare
        self._most = most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._inner, options.update(height=None), pad=False)
        room = max(1, console.size.height - self._spare)
        shown = lines[-min(room, self._most or room) :]
        yield Segments(segment for line in shown for segment in [*line, Segment.line()])


class Trimmed:
    """A renderable without blank lines above and below it and without the blanks that fill its lines.

    The gap between blocks is ours to make, and blanks would be copied along, or wrap in a narrower window.
    """

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [_stripped(line) for line in console.render_lines(self._inner, options.update(height=None))]
        while lines and not _visible(lines[0]):
            lines = lines[1:]
        while lines and not _visible(lines[-1]):
            lines = lines[:-1]
        yield Segments(segment for line in lines for segment in [*line, Segment.line()])


def _stripped(line: list[Segment]) -> list[Segment]:
    """The line without blanks at its end, unless they have a colour."""
    kept = list(line)
    while kept and not (kept[-1].style and kept[-1].style.bgcolor):
        text = kept[-1].text.rstrip()
        if text:
            kept[-1] = Segment(text, kept[-1].style)
            break
        kept.pop()
    return kept


def _visible(line: list[Segment]) -> bool:
    return any(segment.text.strip() for segment in line)


FOLDED_LINES = 5
"""Of a thought that is folded when it ends, so many lines are seen while it comes."""


class AnswerView:
    """Shows one answer: dim thought first, then markdown. Used as a ``with`` block.

    A spinner with ``waiting`` stands where the answer will be until its first piece comes. With ``fold`` of a
    thought only its last lines are seen, and when it ends one that tells how long it was.
    """

    def __init__(
        self,
        console: Console,
        waiting: str = "",
        *,
        fold: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._waiting: RenderableType | None = Spinner("dots", Text(waiting, style="dim"))
        self._fold = fold
        self._clock = clock
        self._thinks_since: float | None = None
        self._thought = ""
        self._text = ""
        self._gap = False
        self._live = Live(
            console=console,
            get_renderable=self._last_block,
            refresh_per_second=12,
            transient=True,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting = None
        thought, text, self._thought, self._text = self._thought, self._text, "", ""
        self._live.stop()
        self._end_thought(thought)
        self._commit(_markdown(text), text)

    def think(self, piece: str) -> None:
        """Another piece of the thought."""
        self._waiting = None
        if self._thinks_since is None:
            self._thinks_since = self._clock()
        self._thought += clean(piece)
        done, mark, rest = self._thought.rpartition("\n")
        if mark and not self._fold:
            self._thought = rest
            self._commit(_dim(done), done, gap=False)

    def write(self, piece: str) -> None:
        """Another piece of the answer."""
        self._waiting = None
        if self._thinks_since is not None:
            thought, self._thought = self._thought, ""
            self._end_thought(thought)
        self._text += clean(piece)
        if "\n" in piece:
            done, self._text = split_complete(self._text)
            self._commit(_markdown(done), done)

    def _end_thought(self, rest: str) -> None:
        """Print what is left of the thought, or what stands for all of it when it is folded."""
        if self._thinks_since is None:
            return
        seconds, self._thinks_since = self._clock() - self._thinks_since, None
        if self._fold:
            line = f"▸ thought for {seconds:.1f} s (Ctrl-T or /think show unfolds it)"
            self._commit(_dim(line), line)
        else:
            self._commit(_dim(rest), rest, gap=False)
        self._gap = True

    def note(self, text: str) -> None:
        """A line of its own between the answer's parts."""
        self._waiting = None
        self._commit(Text(clean(text), style="dim"), text)

    def _commit(self, block: RenderableType, source: str, *, gap: bool = True) -> None:
        if not source.strip():
            return
        if self._gap and gap:
            self._console.print()
        self._console.print(block)
        self._gap = gap

    def _last_block(self) -> RenderableType:
        return Group(*self._parts())

    def _parts(self) -> Iterator[RenderableType]:
        thought, text = self._thought, self._text
        if self._waiting is not None:
            yield self._waiting
        if thought.strip():
            yield Tail(_dim(thought), most=FOLDED_LINES if self._fold else None)
        if text.strip():
            if self._gap:
                yield Text()
            yield Tail(_markdown(text))


_CONTROL = {code: None for code in [*range(32), *range(127, 160)] if code not in (9, 10)}


def clean(text: str) -> str:
    """``text`` without control characters: a model must not be able to drive the terminal."""
    return text.translate(_CONTROL)


def _markdown(text: str) -> RenderableType:
    return Trimmed(Markdown(text, code_theme=CODE_THEME))


def _dim(text: str) -> Text:
    return Text(text, style="dim italic")
