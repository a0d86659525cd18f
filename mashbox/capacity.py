"""How long a context and how many slots a server gets, where the user left the choice to us."""

import functools
from collections.abc import Callable

from mashbox.engine.worker.kernels.compile import library_path
from mashbox.errors import DoesNotFit, UsageError
from mashbox.facts import ModelFacts
from mashbox.memory import MemoryPlan, check_fits, plan_memory
from mashbox.settings import Settings

SLOTS = (4, 2, 1)
"""Slots to try, in this order."""

ENOUGH_TOKENS = 16_384
"""A context worth giving slots up for; a longer one is not."""

LEAST_TOKENS = 512
"""Less context than this is of no use to anyone."""

STEP = 256
"""Contexts that we choose are multiples of this."""

SHARE = 0.8
"""The part of the free memory that a choice of ours may take; an explicit one may take all."""


def plan(facts: ModelFacts, chosen: Settings, available: int) -> MemoryPlan:
    """What a server with these settings would take of ``available`` bytes, by what is known before loading.

    Raises as :func:`choose` does.
    """
    # Packed weights where the fast engine is likely to run; whether it does is seen when the model is loaded.
    fast = chosen.engine != "exact" and library_path().exists()
    return choose(
        facts,
        ctx=chosen.ctx,
        slots=chosen.slots,
        available=available,
        dtype_bytes=2 if chosen.weights == "bf16" else 4,
        packed=facts.packed.get(chosen.weights) if fast else None,
    )


def choose(
    facts: ModelFacts,
    *,
    ctx: int | None,
    slots: int | None,
    available: int,
    dtype_bytes: int,
    packed: int | None = None,
) -> MemoryPlan:
    """The plan for what was asked (None: choose), within ``available`` bytes.

    It is for the fast engine if ``packed`` is given, see :func:`~mashbox.memory.plan_memory`.

    A chosen context is the model's limit where that fits; where it does not, slots are given up until a
    slot holds ENOUGH_TOKENS, and then the context shrinks. Raises UsageError for a context beyond the
    model's limit, DoesNotFit where nothing fits.
    """
    limit = facts.context_length
    if ctx is not None and ctx > limit:
        raise UsageError(
            f"--ctx {ctx} is above the model's limit of {limit} tokens.", f"Use --ctx {limit} or less."
        )

    def planned(tokens: int, rows: int) -> MemoryPlan:
        return plan_memory(facts, tokens, rows, dtype_bytes, packed=packed)

    if ctx is not None and slots is not None:
        chosen = planned(ctx, slots)
        check_fits(chosen, available)
        return chosen
    budget = int(available * SHARE)
    counts = SLOTS if slots is None else (slots,)
    least = ctx or min(limit, LEAST_TOKENS)
    plans = [
        planned(ctx or _longest(limit, budget, functools.partial(planned, rows=rows)), rows)
        for rows in counts
    ]
    fitting = [one for one in plans if one.ctx >= least and one.total <= budget]
    for one in fitting:
        if one.ctx >= (ctx or min(limit, ENOUGH_TOKENS)):
            return one
    if fitting:
        return max(fitting, key=lambda one: one.ctx)
    smallest = planned(least, counts[-1])
    check_fits(smallest, available)
    return smallest


def cache_ram(plan: MemoryPlan, available: int, asked: int | None) -> int:
    """MiB of host memory for the prompt cache: what was asked, else a quarter of what the plan leaves free.

    Raises DoesNotFit for more than that leaves.
    """
    free = max(available - plan.total, 0) >> 20
    if asked is None:
        return free // 4
    if asked > free:
        raise DoesNotFit(
            f"--cache-ram {asked} is more than the {free} MiB that weights and slots leave free.",
            f"Use --cache-ram {free} or less, or lower --ctx or --slots.",
        )
    return asked


def _longest(limit: int, budget: int, plan: Callable[[int], MemoryPlan]) -> int:
    """The longest context that fits the budget, at most ``limit``; 0 if none does."""
    if plan(limit).total <= budget:
        return limit
    low, high = 0, limit // STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if plan(middle * STEP).total <= budget else (low, middle - 1)
    return low * STEP
