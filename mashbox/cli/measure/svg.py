"""A report as an SVG: four small charts of lines, readable on light and dark grounds.

Written by hand: what is drawn are a dozen lines, and a plotting library would be the largest dependency.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from xml.sax.saxutils import escape

from mashbox.cli.measure.report import Decode, Report, Spread
from mashbox.cli.measure.show import number

WIDTH, HEIGHT = 900, 680
PANEL = (340, 200)
COLUMNS, ROWS = (80, 520), (110, 400)

STYLE = """
  svg { --ground: #ffffff; --ink: #1f2328; --soft: #656d76; --grid: #d8dee4; --s0: #0969da; --s1: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #0d1117; --ink: #e6edf3; --soft: #9198a1; --grid: #30363d; --s0: #58a6ff; --s1: #f0883e }
  }
  text { font: 12px system-ui, sans-serif; fill: var(--soft) }
  .title { font-size: 17px; font-weight: 600; fill: var(--ink) }
  .name { font-size: 13px; font-weight: 600; fill: var(--ink) }
  .grid { stroke: var(--grid) }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round }
  .s0 { stroke: var(--s0) } .s1 { stroke: var(--s1) }
  .dot.s0 { fill: var(--s0) } .dot.s1 { fill: var(--s1) }
  .p95 { stroke-dasharray: 5 4 }
"""


@dataclasses.dataclass(frozen=True)
class Series:
    """One line: its name, its style classes, and its points."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class Chart:
    """One panel; ``across`` names the x axis, which is logarithmic where ``doubling``."""

    title: str
    across: str
    series: Sequence[Series]


def draw(report: Report) -> str:
    """The whole file."""
    charts = [chart for chart in _charts(report) if any(series.points for series in chart.series)]
    rows = max(1, math.ceil(len(charts) / 2))
    height = ROWS[1] + PANEL[1] + 80 if rows > 1 else ROWS[0] + PANEL[1] + 80
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{_attribute(_headline(report))}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" style="fill:var(--ground)"/>',
        _text(30, 36, _headline(report), "title"),
        *_legend(report),
    ]
    for place, chart in enumerate(charts):
        parts += _panel(chart, COLUMNS[place % 2], ROWS[place // 2])
    footer = f"mashbox bench {report.mashbox}, {report.created}" + (
        "" if report.complete else ", interrupted"
    )
    parts += [_text(30, height - 16, footer), "</svg>\n"]
    return "\n".join(parts)


def _headline(report: Report) -> str:
    models = list(dict.fromkeys(server.model or "a model" for server in report.servers))
    servers = " and ".join(server.name for server in report.servers)
    return f"{', '.join(models)}: {servers}"


def _charts(report: Report) -> list[Chart]:
    def of_decode(
        value: Callable[[Decode], float | None], kind: str, label: str
    ) -> Iterable[tuple[int, Series]]:
        for place, server in enumerate(report.servers):
            rows = [row for row in report.decode if row.server == server.name]
            points = [(float(row.streams), shown) for row in rows if (shown := value(row)) is not None]
            yield place, Series(f"{server.name}{label}", f"s{place} {kind}".strip(), points)

    def percentiles(spread: Callable[[Decode], Spread | None]) -> list[Series]:
        def median(row: Decode) -> float | None:
            return None if (of := spread(row)) is None else of.p50

        def slow(row: Decode) -> float | None:
            return None if (of := spread(row)) is None else of.p95

        both = [*of_decode(median, "", " p50"), *of_decode(slow, "p95", " p95")]
        return [series for _, series in sorted(both, key=lambda each: each[0])]

    reading = [
        Series(
            server.name,
            f"s{place}",
            [
                (float(row.tokens), row.tokens_per_second)
                for row in report.prefill
                if row.server == server.name
            ],
        )
        for place, server in enumerate(report.servers)
    ]
    rates = [series for _, series in of_decode(lambda row: row.tokens_per_second, "", "")]
    return [
        Chart("Tokens per second, all streams together", "streams", rates),
        Chart("Time to first token, ms", "streams", percentiles(lambda row: row.first_ms)),
        Chart("Time per token, ms", "streams", percentiles(lambda row: row.token_ms)),
        Chart("Prompt tokens read per second", "prompt tokens", reading),
    ]


def _legend(report: Report) -> list[str]:
    parts, x = [], 30
    for place, server in enumerate(report.servers):
        parts.append(f'<path class="line s{place}" d="M{x} 62h28"/>')
        parts.append(_text(x + 36, 66, server.name))
        x += 60 + 7 * len(server.name)
    parts.append(f'<path class="line" style="stroke:var(--soft)" d="M{x} 62h28"/>{_text(x + 36, 66, "p50")}')
    x += 80
    parts.append(
        f'<path class="line p95" style="stroke:var(--soft)" d="M{x} 62h28"/>{_text(x + 36, 66, "p95")}'
    )
    return parts


def _panel(chart: Chart, left: int, top: int) -> list[str]:
    """One chart with its axes; x is logarithmic (streams and lengths double), y begins at zero."""
    wide, high = PANEL
    points = [point for series in chart.series for point in series.points]
    xs = sorted({x for x, _ in points})
    step = nice_step(max(y for _, y in points))
    most = step * math.ceil(max(y for _, y in points) / step)
    low, far = math.log(xs[0]), math.log(xs[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log(x) - low) / (far - low) if far > low else 0.5
        return round(left + along * wide, 1), round(top + high - y / most * high, 1)

    parts = [_text(left - 40, top - 16, chart.title, "name")]
    for tick in range(round(most / step) + 1):
        y = place(xs[0], tick * step)[1]
        parts.append(f'<path class="grid" d="M{left} {y}h{wide}"/>')
        parts.append(_text(left - 8, y + 4, f"{tick * step:,g}", anchor="end"))
    parts += [_text(place(x, 0)[0], top + high + 18, f"{x:,g}", anchor="middle") for x in xs]
    parts.append(_text(left + wide // 2, top + high + 36, chart.across, anchor="middle"))
    for series in chart.series:
        parts += _line(series, [place(*point) for point in series.points])
    return parts


def _line(series: Series, places: Sequence[tuple[float, float]]) -> list[str]:
    values = ", ".join(f"{x:g}: {number(y)}" for x, y in series.points)
    told = f"<title>{escape(series.name)} ({values})</title>"
    path = " L".join(f"{x} {y}" for x, y in places)
    parts = [f'<path class="line {series.style}" d="M{path}">{told}</path>'] if places else []
    colour = series.style.split()[0]
    return parts + [f'<circle class="dot {colour}" cx="{x}" cy="{y}" r="3"/>' for x, y in places]


def nice_step(most: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts ``most`` into three to seven parts."""
    if most <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(most))
    return next(
        step for step in (power / 5, power / 2, power, 2 * power) if most / step <= 7 or step == 2 * power
    )


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "") -> str:
    more = (f' class="{style}"' if style else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x}" y="{y}"{more}>{escape(text)}</text>'


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})
