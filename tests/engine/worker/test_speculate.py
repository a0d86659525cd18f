"""Speculation changes when tokens come, never which: any mix of requests, any runner that takes runs."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.request import Sampling
from mashbox.engine.wire import Submit
from mashbox.engine.worker import scheduler as scheduling
from mashbox.engine.worker.draft import Drafter
from mashbox.engine.worker.host_cache import HostCache
from mashbox.engine.worker.runner import Runner
from mashbox.engine.worker.scheduler import Scheduler
from mashbox.engine.worker.speculate import MOST_ROWS, StepCosts, plan
from tests.engine.worker.counting import CountingRunner, RecurrentRunner
from tests.engine.worker.test_scheduler import Log, run
from tests.hypotheses import examples


class FreeRows(StepCosts):
    """Further rows cost nothing: whatever can be guessed is verified."""

    def table(self) -> list[float]:
        return [1.0] * (MOST_ROWS + 1)


@pytest.fixture(scope="module", autouse=True)
def always_eager() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "StepCosts", FreeRows)
        yield


SAMPLING = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([1.0, 0.7]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.8]),
    frequency_penalty=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**64 - 1),
)
REQUEST = st.fixed_dictionaries(
    {
        "ids": st.lists(st.integers(1, 3), min_size=1, max_size=24),
        "max_tokens": st.integers(1, 36),
        "end_ids": st.sampled_from([[], [0], [0, 2]]),
        "sampling": SAMPLING,
    }
)
Mix = list[dict[str, Any]]


def answers(runner: Runner, mix: Mix, *, speculate: bool, share: int = 0) -> tuple[dict[int, Any], Log]:
    """Each request's tokens and how it ended; they come in ``share`` at a time (0: all at once)."""
    log = Log()
    scheduler = Scheduler(runner, host=HostCache(10_000), speculate=speculate)
    waiting = list(enumerate(mix))
    for _ in range(2000):
        for number, request in waiting[: share or len(waiting)]:
            scheduler.submit(Submit(id=number, **request))
        del waiting[: share or len(waiting)]
        log.add(scheduler.step())
        if scheduler.idle and not waiting:
            break
    run(scheduler, log)
    ends = {n: (log.tokens(n), log.finish(n), n in log.failed) for n in range(len(mix))}
    return ends, log


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(REQUEST, min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 2))
def test_any_mix_has_the_same_tokens_with_and_without(mix: Mix, slots: int, share: int) -> None:
    # Few tokens to choose from: guesses are plenty, right and wrong.
    def runner() -> CountingRunner:
        return CountingRunner(slots=slots, ctx=60, vocab_size=4)

    plain, _ = answers(runner(), mix, speculate=False)
    guessed, log = answers(runner(), mix, speculate=True, share=share)
    assert guessed == plain
    for rows in log.rows.values():
        assert all(row.accepted <= row.drafted and len(row.tokens) <= row.accepted + 1 for row in rows)


def test_guesses_that_come_true_save_steps() -> None:
    mix = [{"ids": [1, 2, 3] * 6, "max_tokens": 40, "end_ids": [], "sampling": Sampling()}]
    steps = {}
    for speculate in (False, True):
        runner = Repeating(slots=1, ctx=64, vocab_size=8)
        found, log = answers(runner, mix, speculate=speculate)
        steps[speculate] = len(runner.decodes)
        assert found[0][0] == ([1, 2, 3] * 14)[:40]
    assert steps[False] == 39
    assert steps[True] < 8
    assert sum(row.accepted for row in log.rows[0]) > 30


class Repeating(CountingRunner):
    """Greedily goes on with what stands three tokens before."""

    def logits(self, sequence: list[int]) -> Any:
        row = super().logits(sequence)
        row[sequence[-3]] += 100.0
        return row


def test_a_run_ends_in_its_middle_at_the_end_token_and_the_limit() -> None:
    for end_ids, limit, count, finish in (([3], 40, 3, "stop"), ([], 5, 5, "length")):
        mix = [{"ids": [1, 2, 3] * 6, "max_tokens": limit, "end_ids": end_ids, "sampling": Sampling()}]
        runner = Repeating(slots=1, ctx=64, vocab_size=8)
        found, _ = answers(runner, mix, speculate=True)
        assert found[0] == (([1, 2, 3] * 9)[:count], finish, False)
        # The last token is drawn, not read: the slot is as it would be without a guess.
        assert runner.held[0] == [1, 2, 3] * 6 + found[0][0][:-1]


def test_nan_behind_a_guess_fails_where_it_would_have_without() -> None:
    mix = [{"ids": [1, 2, 3] * 6, "max_tokens": 20, "end_ids": [], "sampling": Sampling()}]
    ends = []
    for speculate in (False, True):
        runner = BreaksAt(slots=1, ctx=64, vocab_size=8)
        found, log = answers(runner, mix, speculate=speculate)
        ends.append((found[0], log.failed[0].kind))
    assert ends[0] == ends[1]
    assert 0 < len(ends[0][0][0]) < 20


class BreaksAt(Repeating):
    def logits(self, sequence: list[int]) -> Any:
        row = super().logits(sequence)
        return row * float("nan") if len(sequence) > 25 else row


def test_a_cancel_takes_effect_at_the_next_step() -> None:
    runner, log = Repeating(slots=1, ctx=64, vocab_size=8), Log()
    scheduler = Scheduler(runner, speculate=True)
    scheduler.submit(Submit(id=1, ids=[1, 2, 3] * 3, max_tokens=50, end_ids=[], sampling=Sampling()))
    for _ in range(2):
        log.add(scheduler.step())
    assert len(log.tokens(1)) > 2
    scheduler.cancel(1)
    log.add(scheduler.step())
    assert log.finish(1) == "cancelled" and scheduler.idle


def test_recurrent_states_and_runners_without_runs_are_left_alone() -> None:
    mix = [{"ids": [1, 2, 3] * 6, "max_tokens": 20, "end_ids": [], "sampling": Sampling()}]
    plain = CountingRunner(slots=1)
    plain.takes_runs = False
    for runner in (plain, RecurrentRunner(slots=1)):
        _, log = answers(runner, mix, speculate=True)
        assert not any(row.drafted for row in log.rows[0])
        assert set(runner.decodes) == {1}


def test_a_row_is_worth_its_guesses_only_where_rows_are_cheap() -> None:
    drafter = Drafter(30)
    drafter.extend([1, 2, 3, 4, 5, 6, 7, 8, 9] * 3)
    cheap, dear = StepCosts(), StepCosts()
    for rows in range(1, MOST_ROWS + 1):
        cheap.took(rows, 1.0 + 0.05 * rows)
        dear.took(rows, 1.0 * rows)
    assert len(plan([(drafter, 31)], cheap)[0]) > 8
    assert plan([(drafter, 31)], dear) == [[]]
    assert len(plan([(drafter, 4)], cheap)[0]) == 4
    assert plan([(drafter, 0)], cheap) == [[]]


def test_full_slots_leave_no_room_for_guesses() -> None:
    drafter = Drafter(30)
    drafter.extend([1, 2, 3, 4, 5, 6, 7, 8, 9] * 3)
    costs = StepCosts()
    for rows in range(1, MOST_ROWS + 1):
        costs.took(rows, 1.0 + 0.2 * rows)
    counts = [len(plan([(drafter, 31)] + [(None, 31)] * (rows - 1), costs)[0]) for rows in (1, 4, 16, 32)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 4 and counts[2:] == [0, 0]


def test_costs_follow_the_steps() -> None:
    costs, draw = StepCosts(), random.Random(1)
    assert costs.table()[3] == 0.0
    for level in (0.004, 0.009):
        for _ in range(300):
            rows = draw.choice([1, 4, 16])
            costs.took(rows, level * (1 + 0.1 * (rows - 1)) * draw.uniform(0.9, 1.1))
        for rows in (1, 2, 4, 8, 16):
            assert costs.table()[rows] == pytest.approx(level * (1 + 0.1 * (rows - 1)), rel=0.25)


def test_one_stalled_step_changes_little() -> None:
    costs = StepCosts()
    for rows in itertools.islice(itertools.cycle([1, 8]), 100):
        costs.took(rows, 0.004 if rows == 1 else 0.008)
    costs.took(8, 3.0)
    assert costs.table()[8] / costs.table()[1] < 2.5
