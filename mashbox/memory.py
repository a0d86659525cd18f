"""How much memory a model will need, and how much there is."""

from pathlib import Path

import msgspec
import psutil

from mashbox.errors import DoesNotFit
from mashbox.facts import ModelFacts

RUNTIME_BYTES = 400 << 20
"""What the worker holds before any weight: the interpreter, torch and transformers (measured)."""

FAST_RUNTIME_BYTES = 180 << 20
"""The same for the fast engine, which does without torch and transformers (measured: half of it, most of
that for what grammars know of a vocabulary)."""

FOLDER_RUNTIME_BYTES = 280 << 20
"""The same where a folder of safetensors is loaded, which takes torch and transformers (measured)."""

_FAST_ROWS = 64
"""Rows of a prompt that the fast engine reads in one step."""

_SPAN, _SPAN_ROWS = 128, 16
"""Positions whose attention the fast engine computes as one part, and the rows of a step that have each part
of their own (the kernels' kSpan and kApart)."""

_RUN_ROWS = 32
"""Rows of a step with guesses in it, each with its logits."""

_DRAWN = 8
"""Copies of a row that drawing its token takes at most."""

_ATTENTION_BYTES = 128 << 20
"""Masks and scores: attention reads long prompts in blocks, whose size is bounded."""

_WIDE = 24
"""Rows as wide as the hidden size that a layer has alive at once while it reads a piece of a prompt."""


_NAME = 1024
"""What the comparison at a model's first start holds for each token of the vocabulary (measured)."""


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes, for ``slots`` slots of ``ctx`` tokens: weights, keys and values with states, and the rest."""

    ctx: int
    slots: int
    weights: int
    kv: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.working


def plan_memory(
    facts: ModelFacts,
    ctx: int,
    slots: int,
    dtype_bytes: int,
    *,
    weight_bytes: float | None = None,
    chunk: int = 1024,
    packed: int | None = None,
) -> MemoryPlan:
    """What serving a model takes.

    ``dtype_bytes`` is the size of a number in the caches, ``weight_bytes`` that of a weight in memory (the
    same, if not given); ``chunk`` are the tokens of a prompt that are read at once. ``packed``, if given, are
    the bytes of all weights as the fast engine holds them: the plan is then for that engine.
    """
    if packed is not None:
        return _plan_fast(facts, ctx, slots, packed)
    per_weight = dtype_bytes if weight_bytes is None else weight_bytes
    rows = chunk * facts.hidden * _WIDE * dtype_bytes
    logits = slots * facts.vocab * 4 * 4
    return MemoryPlan(
        ctx=ctx,
        slots=slots,
        weights=int(facts.parameters * per_weight),
        kv=slots * (ctx * facts.kv_bytes_per_token(dtype_bytes) + facts.state_bytes_per_slot()),
        working=RUNTIME_BYTES + _ATTENTION_BYTES + rows + logits,
    )


def _plan_fast(facts: ModelFacts, ctx: int, slots: int, packed: int) -> MemoryPlan:
    """The fast engine keeps keys and values in half precision, and works in float32 on few rows."""
    # Two rotary tables where layers differ, of half a head each for cosine and sine.
    tables = ctx * 4 * 2 * facts.fast_head_dim
    # Of each span for each head: its answer, and eight numbers more.
    parts = _SPAN_ROWS * facts.heads * (ctx // _SPAN + 1) * (facts.fast_head_dim + 8) * 4
    rows = _FAST_ROWS * facts.hidden * _WIDE * 4
    logits = (max(slots, _RUN_ROWS) + _DRAWN) * facts.vocab * 4
    return MemoryPlan(
        ctx=ctx,
        slots=slots,
        weights=packed,
        kv=slots * ctx * facts.fast_kv_bytes_per_token,
        working=(FOLDER_RUNTIME_BYTES if facts.folder else FAST_RUNTIME_BYTES)
        + tables
        + parts
        + rows
        + logits,
    )


def comparison_bytes(facts: ModelFacts) -> int:
    """What comparing the fast engine with transformers' modules takes, in a process of its own.

    One layer is there in float32, and room to make it once more.
    """
    layer = facts.parameters // max(facts.layers, 1)
    return RUNTIME_BYTES + facts.vocab * _NAME + 2 * 4 * layer


def check_fits(plan: MemoryPlan, available: int, *, limit: str = "this machine") -> None:
    """Raise DoesNotFit, saying what to lower, if ``plan`` needs more than the ``available`` bytes."""
    if plan.total <= available:
        return
    need = (
        f"{_gb(plan.total)} are needed (weights {_gb(plan.weights)}, {plan.slots} slots of {plan.ctx} tokens "
        f"{_gb(plan.kv)}, working memory {_gb(plan.working)}), {limit} has {_gb(available)} free."
    )
    raise DoesNotFit(need, _remedy(plan, available))


def _remedy(plan: MemoryPlan, available: int) -> str:
    room = available - plan.weights - plan.working
    if room <= 0:
        return "Lowering --ctx or --slots is not enough: choose a smaller model, or free memory."
    ctx = plan.ctx * room // plan.kv // 256 * 256
    slots = plan.slots * room // plan.kv
    ways = []
    if ctx:
        ways.append(f"--ctx to {ctx}")
    if slots:
        ways.append(f"--slots to {slots}")
    return f"Lower {' or '.join(ways)}." if ways else "Lower --ctx and --slots, or choose a smaller model."


def available_memory(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes that this process may still take: free on the machine, and within its control groups' limits."""
    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_group_room(cgroups, own)]))


def _group_room(cgroups: Path, own: Path) -> list[int]:
    """What each control group above this process leaves (versions 1 and 2 name the files differently)."""
    rooms = []
    for folder in _groups(cgroups, own):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        if limit is not None and used is not None:
            # Pages of files that were read are given back when memory is short.
            rooms.append(limit - used + _cached(folder / "memory.stat"))
    return rooms


def _groups(cgroups: Path, own: Path) -> list[Path]:
    folders = [cgroups, cgroups / "memory"]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            base = cgroups / controllers
            group = base / path.lstrip("/")
            folders += [group, *(parent for parent in group.parents if base in parent.parents)]
    return folders


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _cached(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    return int(values.get("inactive_file") or values.get("total_inactive_file") or 0)


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
