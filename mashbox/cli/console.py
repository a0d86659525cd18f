"""Where the commands write: data on stdout, all else on stderr; colours only on a terminal."""

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def output() -> "Console":
    """Data for the user or the next program in a pipe."""
    from rich.console import Console

    return Console(highlight=False)


def notes() -> "Console":
    """Everything that is not data: progress, warnings, how to go on."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


_as_json = False


def as_json(wanted: bool) -> None:
    """Write errors, warnings and notes as JSON, a line each, like the log lines between which they stand."""
    global _as_json
    _as_json = wanted


def _say(label: str, style: str, message: str) -> None:
    from rich.text import Text

    line = " ".join(message.split())
    if _as_json:
        _json(label, line)
        return
    notes().print(Text.assemble((f"{label}:", style), " ", line), soft_wrap=True)


def error(message: str) -> None:
    """One line that says what went wrong and what to do."""
    _say("error", "bold red", message)


def warn(message: str) -> None:
    """One line about something the user should know, while the command goes on."""
    _say("warning", "bold yellow", message)


def note(message: str = "") -> None:
    """A plain line on stderr, as it is: no wrapping, no markup."""
    if _as_json:
        _json("info", message.strip())
        return
    notes().print(message, soft_wrap=True, markup=False)


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
