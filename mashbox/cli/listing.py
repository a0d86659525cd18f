"""What ``mashbox pull --list`` shows: which models there are, and which of them this machine can run."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from mashbox.cli.fetching import size

if TYPE_CHECKING:
    from mashbox.catalog import ModelSpec
    from mashbox.facts import ModelFacts
    from mashbox.memory import MemoryPlan
    from mashbox.settings import Settings
    from mashbox.store import LocalModel


def overview() -> list[dict[str, Any]]:
    """One object a model: the catalogue, then what else is here. What is not known is null.

    Raises UsageError for a catalogue or settings that can't be read.
    """
    from mashbox import catalog, settings, store
    from mashbox.memory import available_memory

    known = catalog.load()
    models = store.installed()
    here = {model.spec.id: model for model in models if model.spec is not None}
    plans = Plans(settings.load({}), available_memory())
    rows = [_row(spec, here.get(spec.id), plans) for spec in known.models.values()]
    rows += [_row(None, model, plans) for model in models if model.spec is None]
    return [{**row, "starter": row["id"] == known.starter} for row in rows]


@dataclasses.dataclass(frozen=True)
class Plans:
    """What ``mashbox run`` would choose now for a model, without options."""

    settings: "Settings"
    available: int

    def of(self, facts: "ModelFacts") -> "MemoryPlan | None":
        """None where nothing fits, or where ``run`` refuses the context that the settings name."""
        from mashbox import capacity
        from mashbox.errors import DoesNotFit, UsageError

        try:
            return capacity.plan(facts, self.settings, self.available)
        except (DoesNotFit, UsageError):
            return None

    def least(self, facts: "ModelFacts") -> int:
        """Bytes of memory without which no choice of context and slots is of use."""
        from mashbox import capacity

        ctx = min(capacity.LEAST_TOKENS, facts.context_length)
        smallest = dataclasses.replace(self.settings, ctx=ctx, slots=1)
        return capacity.plan(facts, smallest, sys.maxsize).total


def _row(spec: "ModelSpec | None", local: "LocalModel | None", plans: Plans) -> dict[str, Any]:
    from mashbox import catalog

    facts = (local and _facts_here(local)) or (spec and _facts_told(spec))
    plan = plans.of(facts) if facts else None
    need = (
        plan.total if plan else plans.least(facts) if facts else catalog.memory_need(spec) if spec else None
    )
    if facts:
        fits: bool | None = plan is not None
    else:
        fits = None if need is None else need <= plans.available
    return {
        "id": spec.id if spec else local.id if local else "",
        "title": spec.title if spec else local.source if local else "",
        "family": spec.family if spec else facts.architecture if facts else None,
        "format": spec.format if spec else local.format if local else None,
        "parameters": spec.parameters if spec else facts.parameters if facts else None,
        "active_parameters": spec.active if spec else None,
        "quant": spec.quant if spec else facts.quant if facts else None,
        "bpw": spec.bits_per_weight if spec else round(facts.bpw, 2) if facts else None,
        "bytes": local.bytes if local else spec.bytes if spec else None,
        "context": spec.context if spec and spec.context else facts.context_length if facts else None,
        "licence": spec.licence if spec else None,
        "chat": spec.chat != "none" if spec else None,
        "tools": spec.tools if spec else None,
        "thinking": spec.thinking if spec else None,
        "memory_bytes": need,
        "fits": fits,
        "fits_slots": plan.slots if plan else None,
        "fits_context": plan.ctx if plan else None,
        "here": local is not None,
        "path": str(local.weights) if local else None,
        "tried": spec.tried if spec else False,
        "note": spec.note if spec else "",
    }


def _facts_here(local: "LocalModel") -> "ModelFacts | None":
    from mashbox.errors import ModelError
    from mashbox.facts import read_facts

    try:
        return read_facts(local.weights, local.format)
    except (ModelError, OSError):
        return None


def _facts_told(spec: "ModelSpec") -> "ModelFacts | None":
    """As much of a model's facts as a memory plan needs, from the catalogue."""
    from mashbox.facts import ModelFacts
    from mashbox.packing import told_bytes

    if spec.shape is None or spec.context is None:
        return None
    packed = None
    if spec.format == "gguf" and spec.active is None:
        packed = told_bytes(spec.shape.architecture, spec.parameters, spec.bytes, spec.quant)
    return ModelFacts(
        architecture=spec.shape.architecture or spec.family,
        context_length=spec.context,
        layers=0,
        hidden=spec.shape.hidden,
        heads=spec.shape.heads,
        kv_heads=0,
        head_dim=spec.shape.head_dim,
        value_head_dim=0,
        vocab=spec.shape.vocab,
        parameters=spec.parameters,
        weight_file_bytes=spec.bytes or 0,
        bpw=spec.bits_per_weight or 0.0,
        quant=spec.quant or "",
        kv_numbers=spec.shape.kv,
        state_numbers=spec.shape.state,
        packed={} if packed is None else {"auto": packed},
    )


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of the table; ``fits`` tells whether its model does (or whether that is not known)."""

    text: str
    fits: bool = True


COLUMNS = ("id", "params", "quant", "size", "ctx", "here", "fits", "tried", "licence")
NUMBERS = ("params", "size", "ctx", "fits")
LESS_NEEDED = ("params", "licence", "tried", "quant", "size")
"""Columns that a narrow terminal goes without, the first first; what is in an id anyway goes at once."""

LONGEST_ID = 24
"""A longer id stands on a line of its own, whole."""

LEAST_LICENCE = 10
"""Fewer letters of a licence than these say nothing."""


def table(rows: list[dict[str, Any]], width: int | None) -> list[Line]:
    """A heading and a line a model, in columns as many as ``width`` holds (None: all)."""
    cells = [dict(zip(COLUMNS, _cells(row), strict=True)) for row in rows]
    heading = dict(zip(COLUMNS, COLUMNS, strict=True))
    sizes = {
        name: max(
            len(line[name]) for line in (heading, *cells) if name != "id" or len(line[name]) <= LONGEST_ID
        )
        for name in COLUMNS
    }
    shown = _shown(sizes, width)
    lines = [Line(_aligned(heading, sizes, shown, width))]
    for row, line in zip(rows, cells, strict=True):
        fits = row["fits"] is not False
        if len(line["id"]) > LONGEST_ID:
            lines.append(Line(line["id"], fits))
            line = {**line, "id": ""}
        lines.append(Line(_aligned(line, sizes, shown, width), fits))
    return lines


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["id"],
        _parameters(row["parameters"], row["active_parameters"]),
        row["quant"] or "?",
        size(row["bytes"]) if row["bytes"] else "?",
        tokens(row["context"]) if row["context"] else "?",
        "yes" if row["here"] else "-",
        _fits(row),
        "yes" if row["tried"] else "-",
        row["licence"] or "?",
    )


def _fits(row: dict[str, Any]) -> str:
    if row["fits_slots"]:
        return f"{row['fits_slots']}×{tokens(row['fits_context'])}"
    return "?" if row["fits"] is None else "yes" if row["fits"] else "no"


def _shown(sizes: dict[str, int], width: int | None) -> list[str]:
    shown = list(COLUMNS)
    least = {**sizes, "licence": min(sizes["licence"], LEAST_LICENCE)}
    for name in LESS_NEEDED:
        if width is None or sum(least[column] + 1 for column in shown) - 1 <= width:
            break
        shown.remove(name)
    return shown


def _aligned(line: dict[str, str], sizes: dict[str, int], shown: list[str], width: int | None) -> str:
    text = " ".join(
        line[name].rjust(sizes[name]) if name in NUMBERS else line[name].ljust(sizes[name]) for name in shown
    ).rstrip()
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def legend(rows: list[dict[str, Any]]) -> str:
    """What the columns mean, for stderr."""
    from mashbox.memory import available_memory

    free = size(available_memory())
    text = f"fits: slots × context that `mashbox run` would choose now, with {free} of memory free."
    if not all(row["tried"] for row in rows):
        text += " tried: run by us; the others were written from public sources."
    return text


def tokens(count: int) -> str:
    """``8k`` for 8,192; a number that is no multiple of 1,024 to a tenth of it."""
    if count < 1024:
        return str(count)
    return f"{count / 1024:.1f}".removesuffix(".0") + "k"


def _parameters(total: int | None, active: int | None) -> str:
    if total is None:
        return "?"
    return f"{_count(total)}-A{_count(active)}" if active else _count(total)


def _count(number: int) -> str:
    if number < 1_000_000_000:
        return f"{number / 1e6:.0f}M"
    return f"{number / 1e9:.1f}".removesuffix(".0") + "B"
