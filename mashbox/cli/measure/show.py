"""A report in the terminal: tables, a plot of bars, and what each figure means in plain words."""

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleRenderable
from rich.table import Table
from rich.text import Text

from mashbox.cli.measure.report import Report, Spread

BAR = 40

MEANINGS = {
    "decode": (
        "Answers given at the same time. tokens/s: of all streams together, while all were at work (each: "
        "for one of them). First token: what a user waits before the first word, prompt included; next "
        "token: the time between two tokens of an answer. p50: half of them were as fast or faster; p95, "
        "p99: all but the slowest 5 or 1 in 100."
    ),
    "prefill": (
        "New prompts that no cache knew: how fast they are read, from the time to the first token of the "
        "answer, which is in it."
    ),
    "cache": (
        "A prompt with the same long beginning as the one before it. Cold: read for the first time; warm: "
        "the beginning is remembered; saved: how many times sooner the first token came; cached: tokens "
        "that were not read again."
    ),
    "session": (
        "A scripted agent's session: each turn sends all that was said before and a little more, and gets "
        "at most 16 tokens. Total: what the agent waited in all."
    ),
    "ratios": (
        "How many times faster A is than B (below 1: slower): the median of the "
        "pairs that were taken in turn, and their range."
    ),
}


def show(report: Report, output: Console) -> None:
    """Print all there is."""
    several = len(report.servers) > 1
    for server in report.servers:
        letter = f"{_letters(report)[server.name]} = " if several else ""
        about = [server.model or "its only model", server.url]
        about += [f"{server.slots} slots"] if server.slots else []
        about += [f"context {server.context:,}"] if server.context else []
        output.print(Text(f"{letter}{server.name}: {' · '.join(about)}"), soft_wrap=True)
    for meaning, parts in _sections(report):
        output.print()
        for part in parts:
            output.print(part)
        output.print(Text(MEANINGS[meaning], style="dim"))
    if report.left_out or report.notes:
        output.print()
    for line in report.left_out:
        output.print(Text(f"Left out: {line}."), soft_wrap=True)
    for line in report.notes:
        output.print(Text(f"Note: {line}"), soft_wrap=True)


def _sections(report: Report) -> Iterator[tuple[str, list[ConsoleRenderable]]]:
    if report.decode:
        yield "decode", [_decode(report), Text(), _bars(report)]
    if report.prefill:
        yield "prefill", [_prefill(report)]
    if report.cache:
        yield "cache", [_cache(report)]
    if report.session:
        yield "session", [_session(report)]
    if report.ratios:
        yield "ratios", [_ratios(report)]


def _table(report: Report, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    if len(report.servers) > 1:
        table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _letters(report: Report) -> dict[str, str]:
    """Short names for tables: A and B."""
    return {server.name: letter for server, letter in zip(report.servers, "AB", strict=False)}


def _add(table: Table, report: Report, server: str, *cells: str) -> None:
    letter = [_letters(report)[server]] if len(report.servers) > 1 else []
    table.add_row(*letter, *cells)


FIRST = ("first\np50", "token\np95", "\np99")
NEXT = ("next\np50", "token\np95", "\np99")


def _decode(report: Report) -> Table:
    table = _table(report, "streams", "tokens\nper s", "each", *FIRST, *NEXT)
    for row in report.decode:
        rate = row.tokens_per_second
        rates = (number(rate), number(rate / row.streams if rate else None))
        _add(
            table, report, row.server, str(row.streams), *rates, *_three(row.first_ms), *_three(row.token_ms)
        )
    return table


def _prefill(report: Report) -> Table:
    table = _table(report, "prompt\ntokens", "tokens\nper s", *FIRST, "prompts")
    for row in report.prefill:
        rate, count = number(row.tokens_per_second), str(row.first_ms.samples)
        _add(table, report, row.server, f"{row.tokens:,}", rate, *_three(row.first_ms), count)
    return table


def _cache(report: Report) -> Table:
    table = _table(report, "prompt tokens", "cold", "warm", "saved", "cached")
    for row in report.cache:
        cells = (milliseconds(row.cold_ms), milliseconds(row.warm_ms), f"{row.ratio:.1f} ×")
        _add(table, report, row.server, f"{row.prompt_tokens:,}", *cells, _known(row.cached_tokens))
    return table


def _session(report: Report) -> Table:
    table = _table(report, "turns", "total", *FIRST, "prompt\ntokens", "cached", "answered")
    for row in report.session:
        counts = (f"{row.prompt_tokens:,}", _known(row.cached_tokens), str(row.tokens))
        total = milliseconds(1e3 * row.seconds)
        _add(table, report, row.server, str(row.turns), total, *_three(row.first_ms), *counts)
    return table


def _known(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _ratios(report: Report) -> Table:
    table = _table(report, "ratio", "from", "to", "pairs")
    table.columns[0].header = "A by B"
    for row in report.ratios:
        table.add_row(row.figure, f"{row.median:.2f}", f"{row.low:.2f}", f"{row.high:.2f}", str(row.pairs))
    return table


def _bars(report: Report) -> Text:
    """tokens/s by streams, a bar for each server."""
    rows = [row for row in report.decode if row.tokens_per_second]
    most = max((row.tokens_per_second or 0.0 for row in rows), default=1.0)
    letters = _letters(report)
    text = Text()
    for row in sorted(rows, key=lambda row: (row.streams, letters[row.server])):
        rate = row.tokens_per_second or 0.0
        letter = f"{letters[row.server]} " if len(letters) > 1 else ""
        text.append(f"{row.streams:>4} stream{'s' if row.streams > 1 else ' '} {letter}")
        text.append(bar(rate / most), style="magenta" if letter == "B " else "cyan")
        text.append(f" {number(rate)} tokens/s\n")
    text.rstrip()
    return text


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float) -> str:
    """A bar of ``share`` of the full width, to an eighth of a character."""
    whole, part = divmod(round(share * BAR * 8), 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def _three(spread: Spread | None) -> Sequence[str]:
    if spread is None:
        return ("-", "-", "-")
    return [milliseconds(each) for each in (spread.p50, spread.p95, spread.p99)]


def milliseconds(value: float) -> str:
    """With the unit that reads best."""
    if value >= 10_000:
        return f"{value / 1e3:.1f} s"
    if value >= 1_000:
        return f"{value / 1e3:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def number(value: float | None) -> str:
    """Three digits that count, or a dash."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
