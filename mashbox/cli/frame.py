"""What surrounds every command: how an error becomes one line on stderr and an exit status.

Statuses: 0 done, 1 failed, 2 used wrongly, 130 interrupted.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from typer import Abort, TyperException
from typer.core import TyperGroup

from mashbox.cli import console
from mashbox.cli.words import read_plainly
from mashbox.errors import MashboxError

INTERRUPTED = 130


class CommandLine(TyperGroup):
    """The group of all commands, with mashbox's own way to report errors.

    ``--debug`` may stand before or behind the command's name: it is taken out before anything is parsed.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        del standalone_mode, prog_name
        read_plainly(self.params)
        words, debug = take_debug(sys.argv[1:] if args is None else args)

        def command() -> Any:
            return super(CommandLine, self).main(
                args=words,
                prog_name="mashbox",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        sys.exit(exit_status(command, debug=debug))


def take_debug(args: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments without ``--debug``, and whether it was there (or MASHBOX_DEBUG is set)."""
    end = args.index("--") if "--" in args else len(args)
    words = [word for word in args[:end] if word != "--debug"]
    return [*words, *args[end:]], len(words) < end or os.environ.get("MASHBOX_DEBUG", "") not in ("", "0")


def exit_status(command: Callable[[], Any], *, debug: bool = False) -> int:
    """Run ``command`` and return the exit status; errors are reported, never raised."""
    try:
        result = command()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter's own flush at exit must not complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as problem:
        if debug:
            traceback.print_exc()
        console.error(describe(problem))
        return status_of(problem)


def status_of(problem: Exception) -> int:
    """The exit status that belongs to an error."""
    return problem.exit_code if isinstance(problem, MashboxError | TyperException) else 1


def describe(problem: Exception) -> str:
    """The line that the user reads: what happened and what to do about it."""
    if isinstance(problem, MashboxError):
        return f"{problem.message} {problem.remedy}".strip()
    if isinstance(problem, TyperException):
        context = getattr(problem, "ctx", None)
        hint = f" Try '{context.command_path} --help'." if context is not None else ""
        said = problem.format_message()
        return (said if said.endswith((".", "?", "!")) else f"{said}.") + hint
    if isinstance(problem, Abort):
        return "Aborted."
    if isinstance(problem, OSError):
        said = problem.strerror or str(problem)
        return f"{problem.filename}: {said}." if problem.filename else f"{said}."
    return f"{type(problem).__name__}: {problem} (a fault in mashbox; --debug shows where)"
