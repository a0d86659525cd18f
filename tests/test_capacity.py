"""The choice of context and slots: what was asked for is kept, what was left open fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.capacity import ENOUGH_TOKENS, SHARE, cache_ram, choose
from mashbox.errors import DoesNotFit, UsageError
from mashbox.facts import ModelFacts
from mashbox.memory import MemoryPlan, plan_memory

GB = 10**9


def facts(limit: int = 32_768, kv_numbers: int = 12_288, parameters: int = 135_000_000) -> ModelFacts:
    return ModelFacts(
        architecture="llama",
        context_length=limit,
        layers=30,
        hidden=576,
        heads=9,
        kv_heads=3,
        head_dim=64,
        value_head_dim=64,
        vocab=49_152,
        parameters=parameters,
        weight_file_bytes=98_000_000,
        bpw=5.7,
        quant="Q4_1",
        kv_numbers=kv_numbers,
    )


def chosen(
    available: int, *, ctx: int | None = None, slots: int | None = None, **fields: int
) -> tuple[int, int]:
    plan = choose(facts(**fields), ctx=ctx, slots=slots, available=available, dtype_bytes=4)
    return plan.ctx, plan.slots


def test_with_room_the_models_limit_and_four_slots() -> None:
    assert chosen(64 * GB) == (32_768, 4)


def test_slots_are_given_up_before_the_context_gets_short() -> None:
    ctx, slots = chosen(5 * GB)
    assert slots in (2, 1)
    assert ctx >= ENOUGH_TOKENS


def test_then_the_context_shrinks() -> None:
    ctx, slots = chosen(2 * GB)
    assert slots == 1
    assert 512 <= ctx < ENOUGH_TOKENS
    assert ctx % 256 == 0


def test_a_short_limit_is_enough() -> None:
    assert chosen(64 * GB, limit=2048) == (2048, 4)


def test_what_was_asked_is_kept() -> None:
    assert chosen(64 * GB, ctx=1000, slots=3) == (1000, 3)
    assert chosen(64 * GB, ctx=1000) == (1000, 4)
    assert chosen(2 * GB, slots=2)[1] == 2


def test_a_context_beyond_the_models_is_wrong_use() -> None:
    with pytest.raises(UsageError, match=r"--ctx 40000 is above the model's limit of 32768 tokens"):
        chosen(64 * GB, ctx=40_000)


@pytest.mark.parametrize(
    ("available", "ctx", "slots"),
    [(10**8, None, None), (2 * GB, 32_768, 4), (2 * GB, 32_768, None), (GB, None, 256)],
)
def test_what_does_not_fit_says_what_to_lower(available: int, ctx: int | None, slots: int | None) -> None:
    with pytest.raises(DoesNotFit, match=r"are needed .*(Lower|Lowering|choose)"):
        chosen(available, ctx=ctx, slots=slots)


def test_an_explicit_choice_may_take_all_the_memory() -> None:
    need = plan_memory(facts(), 8192, 2, 4).total
    assert chosen(need, ctx=8192, slots=2) == (8192, 2)
    assert chosen(need, ctx=8192)[1] < 4


@given(
    st.integers(0, 40 * GB),
    st.none() | st.integers(16, 32_768),
    st.none() | st.integers(1, 8),
    st.integers(256, 32_768),
)
def test_every_choice_fits_and_keeps_what_was_asked(
    available: int, ctx: int | None, slots: int | None, limit: int
) -> None:
    try:
        plan = choose(facts(limit=limit), ctx=ctx, slots=slots, available=available, dtype_bytes=4)
    except UsageError:
        assert ctx is not None
        assert ctx > limit
    except DoesNotFit:
        smallest = plan_memory(facts(limit=limit), ctx or min(limit, 512), slots or 1, 4)
        assert smallest.total > available * SHARE
    else:
        assert plan.total <= available
        assert plan.ctx <= limit
        assert ctx in (None, plan.ctx)
        assert slots in (None, plan.slots)


def test_the_prompt_cache_takes_a_quarter_of_what_is_left() -> None:
    plan = MemoryPlan(ctx=512, slots=1, weights=1 << 30, kv=1 << 29, working=1 << 29)
    assert cache_ram(plan, 6 << 30, None) == 1024
    assert cache_ram(plan, 1 << 30, None) == 0
    assert cache_ram(plan, 6 << 30, 0) == 0
    assert cache_ram(plan, 6 << 30, 4096) == 4096
    with pytest.raises(DoesNotFit, match="4096 or less"):
        cache_ram(plan, 6 << 30, 4097)
