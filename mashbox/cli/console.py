"""Where the commands write: data on stdout, all else on stderr; colours only on a terminal."""

import contextlib
import io
import os
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def prepare() -> None:
    """Before anything else: standard streams that were closed lead nowhere, and none fails over an encoding.

    A character that the terminal's or the pipe's encoding lacks is printed as ``?``.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number is free: a file that is opened later would be taken for the stream.
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def text_of(raw: bytes) -> str:
    """Bytes from outside as text: what is not UTF-8 becomes U+FFFD, as it could be sent to nobody."""
    return raw.decode("utf-8", "replace")


def output() -> "Console":
    """Data for the user or the next program in a pipe."""
    from rich.console import Console

    return Console(highlight=False)


def notes() -> "Console":
    """Everything that is not data: progress, warnings, how to go on."""
    if _live is not None:
        return _live
    from rich.console import Console

    # Lines of JSON are for programs, on a terminal too: nothing is drawn between them.
    return Console(stderr=True, highlight=False, force_terminal=False if _as_json else None)


_as_json = False
_live: "Console | None" = None


def as_json(wanted: bool) -> None:
    """Write errors, warnings and notes as JSON, a line each, like the log lines between which they stand."""
    global _as_json
    _as_json = wanted


@contextlib.contextmanager
def kept(live: "Console") -> Iterator[None]:
    """Let all that is written to stderr meanwhile go through ``live``, which keeps a line at the bottom."""
    global _live
    _live = live
    try:
        yield
    finally:
        _live = None


def _say(label: str, style: str, message: str) -> None:
    line = " ".join(message.split())
    if _as_json:
        _json(label, line)
        return
    from rich.text import Text

    where = notes()
    text = Text(wrapped(f"{label}: {line}", where))
    text.stylize(style, 0, len(label) + 1)
    where.print(text, soft_wrap=True)


def wrapped(text: str, where: "Console") -> str:
    """Prose as it is printed: broken between words on a terminal, as it is elsewhere.

    A word that is longer than the terminal is wide (an address, a path) stays whole, to be copied.
    """
    if not where.is_terminal:
        return text
    return "\n".join(
        textwrap.fill(
            line,
            where.width,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


def error(message: str) -> None:
    """One line that says what went wrong and what to do."""
    _say("error", "bold red", message)


def warn(message: str) -> None:
    """One line about something the user should know, while the command goes on."""
    _say("warning", "bold yellow", message)


def note(message: str = "") -> None:
    """A line of prose on stderr."""
    where = notes()
    verbatim(message if _as_json else wrapped(message, where))


def verbatim(message: str) -> None:
    """A line on stderr that is there to be copied: never wrapped."""
    if _as_json:
        _json("info", message.strip())
        return
    notes().print(message, soft_wrap=True, markup=False)


class Stream:
    """A text stream for log lines: stderr, above the line that :func:`kept` keeps."""

    def write(self, text: str) -> int:
        where = notes()
        where.print(wrapped(text.removesuffix("\n"), where), soft_wrap=True, markup=False)
        return len(text)

    def flush(self) -> None:
        """Every line is written at once."""


def foreign(line: str) -> None:
    """A line of another process of ours: above the line that is kept, or as JSON."""
    if _as_json:
        _json("warning", line)
    else:
        Stream().write(line)


def _json(level: str, message: str) -> None:
    from mashbox.server.logs import json_line

    sys.stderr.write(json_line(level, event="message", message=message) + "\n")
    sys.stderr.flush()


def interactive() -> bool:
    """A person sits at both ends: keys come in and text can be redrawn."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def held_keys() -> Iterator[None]:
    """Keep what is typed for the next prompt, instead of echoing it into what is being printed.

    The terminal's usual mode would also turn an early Enter into a line feed. Ctrl-C works on.
    """
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    mode = termios.tcgetattr(descriptor)
    mode[0] &= ~termios.ICRNL
    mode[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
