"""Runs a measurement: finds or starts the servers, shows progress, prints what came out."""

import contextlib
import dataclasses
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from mashbox import settings as configuration
from mashbox.cli import console
from mashbox.cli.client import Client
from mashbox.cli.measure.course import PARTS, Course, streams_up_to, units_of
from mashbox.cli.measure.report import Report
from mashbox.cli.measure.target import Target, choose_model, slots_and_context
from mashbox.cli.spawn import own_server, wait_ready
from mashbox.errors import MashboxError, RemoteError, UsageError

LEAST_SECONDS = 20.0
"""What is left for measuring however long our own server took to start."""

OVERHEAD = 3.0
"""Seconds for the command's own start, and for ending a server of ours."""

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command was told. ``options`` are of ``mashbox run``, for the server that is started."""

    model: str | None
    url: str | None
    key: str | None
    compare: str | None
    compare_model: str | None
    compare_key: str | None
    streams: tuple[int, ...] | None
    prompts: tuple[int, ...]
    parts: tuple[str, ...]
    seconds: float
    rounds: int
    seed: str | None
    chat: bool
    options: Mapping[str, str]


def numbers(text: str, flag: str, most: int) -> tuple[int, ...]:
    """``1,2,4`` in rising order. Raises UsageError."""
    try:
        values = sorted({int(word) for word in text.split(",")})
    except ValueError:
        values = []
    if not values or values[0] < 1 or values[-1] > most:
        raise UsageError(
            f"{flag} {text!r} is no list of whole numbers from 1 to {most:,}.", f"Write it like {flag} 1,4,8."
        )
    return tuple(values)


def parts(text: str | None) -> tuple[str, ...]:
    """The parts to measure, in the course's order. Raises UsageError."""
    wanted = set(PARTS) if text is None else {word.strip() for word in text.split(",")}
    if unknown := sorted(wanted - set(PARTS)):
        raise UsageError(
            f"--only {unknown[0]!r} is no part of the measurement.", f"Parts: {', '.join(PARTS)}."
        )
    return tuple(part for part in PARTS if part in wanted)


def run(wanted: Wanted, *, as_json: bool, plot: Path | None) -> None:
    """Measure and print. What was measured before Ctrl-C or a failure is printed before that is raised."""
    check(wanted, plot)
    began = time.monotonic()
    with _saying() as say, _targets(wanted, say) as targets:
        streams = wanted.streams or streams_up_to(
            min((target.slots for target in targets if target.slots), default=None)
        )
        course = Course(
            targets,
            units_of(streams, wanted.prompts, wanted.parts),
            seconds=_remaining(wanted.seconds, time.monotonic() - began),
            rounds=wanted.rounds,
            seed=wanted.seed or secrets.token_hex(4),
            say=say,
            notes=_notes(targets, streams),
        )
        try:
            course.run()
        except (KeyboardInterrupt, MashboxError) as problem:
            report = course.report()
            if report.decode or report.prefill or report.cache or report.session:
                say("")
                write(report, as_json=as_json, plot=plot)
            if isinstance(problem, RemoteError):
                raise _clearer(problem, wanted) from None
            raise
    write(course.report(), as_json=as_json, plot=plot)


def _remaining(wanted: float, spent: float) -> float:
    """Seconds to measure in, of those that were wanted, when ``spent`` went into the servers' start."""
    return max(min(wanted, LEAST_SECONDS), wanted - OVERHEAD - spent)


def check(wanted: Wanted, plot: Path | None) -> None:
    """Raises UsageError for what can't be done together or can't be written, before any time is spent."""
    if wanted.url and wanted.options:
        flag = configuration.flag(next(iter(wanted.options)))
        raise UsageError(f"{flag} is for a server that bench starts.", "Leave it out, or leave out --url.")
    if wanted.compare is None and wanted.compare_model:
        raise UsageError("--compare-model needs a second server.", "Name it with --compare URL.")
    if plot is not None:
        if plot.suffix.lower() != ".svg":
            raise UsageError(f"--plot writes SVG; {plot} is named otherwise.", "Name a FILE.svg.")
        if plot.is_dir() or not plot.absolute().parent.is_dir():
            raise UsageError(f"{plot} can't be written: there is no such folder.", "Name another --plot.")


def write(report: Report, *, as_json: bool, plot: Path | None) -> None:
    """The report on stdout, and into the file of ``--plot``."""
    if plot is not None:
        from mashbox.cli.measure.svg import draw

        plot.write_text(draw(report), encoding="utf-8")
        console.note(f"Drawn into {plot}.")
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
        sys.stdout.flush()
    else:
        from mashbox.cli.measure.show import show

        show(report, console.output())


@contextlib.contextmanager
def _saying() -> Iterator[Say]:
    """Tells on a terminal what is being done; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.text import Text

    with console.notes().status("", spinner="dots") as status:

        def say(text: str) -> None:
            if text:
                status.update(Text(text, no_wrap=True, overflow="ellipsis"))
            else:
                status.stop()

        yield say


@contextlib.contextmanager
def _targets(wanted: Wanted, say: Say) -> Iterator[list[Target]]:
    """The servers, ready; our own is ended on the way out."""
    with contextlib.ExitStack() as stack:
        own = wanted.url is None
        if wanted.url is None:
            say("Starting a server")
            client = stack.enter_context(own_server(wanted.model, say, _run_options(wanted)))
        else:
            client = stack.enter_context(Client(wanted.url, wanted.key))
            wait_ready(client, say)
        found = [_target(client, None if own else wanted.model, wanted, own=own)]
        if wanted.compare is not None:
            other = stack.enter_context(Client(wanted.compare, wanted.compare_key))
            wait_ready(other, say)
            found.append(_target(other, wanted.compare_model, wanted, own=False))
            if client.url == other.url:
                found[1].salt = " the other"
            if found[0].name == found[1].name:
                found[1].name += " (2)"
        yield found


def _run_options(wanted: Wanted) -> list[str]:
    options = dict(wanted.options)
    if wanted.streams and "slots" not in options:
        options["slots"] = str(wanted.streams[-1])
    return [word for name, value in options.items() for word in (configuration.flag(name), value)]


def _target(client: Client, model: str | None, wanted: Wanted, *, own: bool) -> Target:
    chosen = choose_model(client, model)
    slots, context = slots_and_context(client, chosen)
    return Target(
        client.url.partition("://")[2],
        client.url,
        key=client.key,
        model=chosen.id or None,
        slots=slots,
        context=context,
        own=own,
        chat=wanted.chat,
    )


def _notes(targets: Sequence[Target], streams: Sequence[int]) -> list[str]:
    """What of the wish does not suit a server."""
    return [
        f"{target.name} has {target.slots} slots: of {streams[-1]} streams some wait for others."
        for target in targets
        if target.slots and streams[-1] > target.slots
    ]


def _clearer(problem: RemoteError, wanted: Wanted) -> RemoteError:
    """With the flag that helps, where the error has no better advice."""
    remedy = problem.remedy
    if problem.status == 401 and wanted.compare:
        remedy = "Give --api-key for --url, --compare-key for --compare."
    elif problem.status == 404 and not remedy:
        remedy = "Name another model, or check --url."
    return RemoteError(problem.message, remedy, status=problem.status, code=problem.code)
