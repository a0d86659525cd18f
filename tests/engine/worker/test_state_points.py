"""State points: a recurrent model takes up a prompt near where it parts from what was read before."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.wire import Stats
from mashbox.engine.worker.host_cache import HostCache
from mashbox.engine.worker.points import GRID, MOST, SHORTEST, TAIL, least_missed, places
from mashbox.engine.worker.scheduler import Scheduler
from tests.engine.worker.counting import CountingRunner, RecurrentRunner, State
from tests.engine.worker.test_scheduler import Log, expected, run, submit
from tests.engine.worker.test_slots import BIG, ask, check_books, tokens

CTX = 4096


def fresh(slots: int, cap: int = BIG) -> tuple[RecurrentRunner, Scheduler, HostCache, Log]:
    runner, host = RecurrentRunner(slots=slots, ctx=CTX), HostCache(cap)
    return runner, Scheduler(runner, host=host), host, Log()


@given(st.integers(0, 6000), st.integers(0, 6000), st.integers(1, 6000))
def test_places_leave_no_gap_and_no_crumbs(start: int, fork: int, more: int) -> None:
    total = start + more
    fork = min(max(fork, start), total - 1)
    chosen = places(start, fork, total)
    assert chosen == sorted(set(chosen))
    assert all(max(start, SHORTEST) <= at < total for at in chosen)
    ends = [start, *(at for at in chosen if at > start)]
    assert all(b - a >= SHORTEST for a, b in pairwise(ends) if b > SHORTEST)
    assert all(b - a <= 1.5 * GRID for a, b in pairwise(ends))
    # The same prompt again reads a few tokens only, and so does what parts from it at the fork.
    if total >= 2 * SHORTEST:
        assert total - max([start, *chosen]) <= SHORTEST + TAIL
        assert min(abs(fork - at) for at in [start, *chosen]) <= SHORTEST + TAIL


def test_points_left_lie_closer_the_nearer_the_end() -> None:
    lengths: list[int] = []
    for length in range(GRID, 60 * GRID, GRID):
        lengths.append(length)
        if len(lengths) > MOST:
            lengths.pop(least_missed(lengths))
    assert lengths[-1] == 59 * GRID
    for before, after in pairwise([0, *lengths]):
        # To read again: never more than about a third of the way from a fork to the end, and a step.
        assert after - before <= GRID + (lengths[-1] - before) / 3


def test_a_conversation_whose_answer_is_rendered_otherwise() -> None:
    runner, scheduler, _, log = fresh(slots=2)
    prompt, before = tokens(0, 300), 0
    for number in range(6):
        answer, cached = ask(scheduler, log, number, prompt)
        assert answer == expected(runner, prompt, 4)
        assert cached == max(before - TAIL, 0)
        before = len(prompt)
        # The generation prompt's end and the answer come back in other tokens.
        prompt = [*prompt[:-3], 7, 8, 9, *tokens(number, 60)]


def test_the_same_prompt_again_reads_its_tail() -> None:
    runner, scheduler, _, log = fresh(slots=2)
    ask(scheduler, log, 1, tokens(0, 300))
    assert ask(scheduler, log, 2, tokens(0, 300)) == (expected(runner, tokens(0, 300), 4), 300 - TAIL)


def test_an_edit_in_the_middle_goes_back_to_the_grid_once() -> None:
    runner, scheduler, _, log = fresh(slots=1)
    first, edited, again = (tokens(0, 2500) + tokens(n, 900) for n in (1, 2, 3))
    assert ask(scheduler, log, 1, first)[1] == 0
    assert ask(scheduler, log, 2, edited) == (expected(runner, edited, 4), 2 * GRID)
    # A third that parts from them at the same place finds the state that was saved there.
    assert ask(scheduler, log, 3, again) == (expected(runner, again, 4), 2500)


def test_a_shared_system_prompt_is_read_once() -> None:
    runner, scheduler, _, log = fresh(slots=3)
    system = tokens(0, 500)
    assert ask(scheduler, log, 1, system + tokens(1, 100))[1] == 0
    assert ask(scheduler, log, 2, system + tokens(2, 100))[1] == 0
    for number in range(3, 9):
        prompt = system + tokens(number, 100)
        assert ask(scheduler, log, number, prompt) == (expected(runner, prompt, 4), 500)


def test_a_busy_slot_is_copied_from_at_a_point() -> None:
    runner, scheduler, _, log = fresh(slots=2)
    prompt = tokens(0, 200)
    scheduler.submit(submit(1, prompt, 50))
    scheduler.submit(submit(2, prompt, 50))
    run(scheduler, log)
    assert log.rows[2][0].cached == 200 - TAIL
    assert log.tokens(1) == log.tokens(2) == expected(runner, prompt, 50)


def test_host_memory_is_taken_up_at_a_point() -> None:
    runner, scheduler, host, log = fresh(slots=1)
    first, other = tokens(0, 300), tokens(3, 300)
    answer, _ = ask(scheduler, log, 1, first)
    ask(scheduler, log, 2, other)
    assert len(host) == 1
    edited = first + answer[:-1] + tokens(4, 50)
    assert ask(scheduler, log, 3, edited)[1] == 303
    ask(scheduler, log, 4, other)
    edited = first[:290] + tokens(5, 50)
    assert ask(scheduler, log, 5, edited) == (expected(runner, edited, 4), 300 - TAIL)


def test_points_are_no_other_tenants() -> None:
    _, scheduler, _, log = fresh(slots=3)
    for number, tenant in enumerate("aab"):
        ask(scheduler, log, number, tokens(0, 300), tenant=tenant)
    assert [log.rows[n][0].cached for n in range(3)] == [0, 300 - TAIL, 0]


@pytest.mark.parametrize("cap", [0, 99])
def test_without_room_a_prompt_is_read_whole(cap: int) -> None:
    runner, scheduler, host, log = fresh(slots=1, cap=cap)
    prompt = tokens(0, 300)
    answer, _ = ask(scheduler, log, 1, prompt)
    assert runner.prefills == [300]
    assert (host.bytes, host.point_bytes, host.evictions) == (0, 0, 0)
    # What goes on needs no point.
    assert ask(scheduler, log, 2, prompt + answer + tokens(5, 20))[1] == 303
    assert ask(scheduler, log, 3, prompt)[1] == 0


def test_a_model_that_can_be_cut_has_no_points() -> None:
    runner, log, host = CountingRunner(slots=1, ctx=CTX), Log(), HostCache(BIG)
    scheduler = Scheduler(runner, host=host)
    ask(scheduler, log, 1, tokens(0, 300))
    assert runner.prefills == [300]
    assert host.point_bytes == 0


def test_points_along_a_conversation_are_bounded_and_told() -> None:
    runner, scheduler, host, log = fresh(slots=1)
    prompt = tokens(0, 100)
    told = Stats()
    for number in range(30):
        scheduler.submit(submit(number, prompt))
        while not scheduler.idle:
            messages = scheduler.step()
            told = next((m for m in messages if isinstance(m, Stats)), told)
            log.add(messages)
            check_books(host)
        prompt += log.tokens(number) + tokens(number, 90)
    ids = np.array(prompt, np.int32)
    assert len(host.points(ids, "")) == len(host._points) == MOST
    assert told.snapshot_bytes == host.point_bytes > MOST * runner.snapshot_bytes


def test_a_shared_system_prompt_stays_however_long_a_conversation_grows() -> None:
    _, scheduler, _, log = fresh(slots=2)
    system = tokens(0, 150)
    ask(scheduler, log, 1, system + tokens(1, 60))
    prompt = system + tokens(2, 60)
    for number in range(2, 40):
        prompt += ask(scheduler, log, number, prompt)[0] + tokens(number, 90)
    assert ask(scheduler, log, 50, system + tokens(3, 60))[1] == 150


def test_nan_takes_its_points_with_it() -> None:
    runner, scheduler, host, log = fresh(slots=1)
    ask(scheduler, log, 1, tokens(0, 300), tenant="a")
    runner.broken_token = 44
    scheduler.submit(submit(2, [*tokens(0, 200), 44, *tokens(1, 60)]))
    run(scheduler, log)
    assert 2 in log.failed
    assert all(point.owner == "a" for point in host._points.values())
    assert host._points


def test_the_least_recently_used_goes_first_state_or_point() -> None:
    # Each is of 60 bytes: five tokens of eight and four.
    host = HostCache(3 * 60)
    one, two, three, four = (np.array([n] * 5, np.int32) for n in range(4))
    states = [State([n] * 5) for n in range(4)]
    host.put(one, "", states[0])
    host.put_point(two, "", states[1])
    host.put(three, "", states[2])
    host.point(two, "", 5)
    host.put_point(four, "", states[3])
    assert [len(host), len(host._points), host.evictions] == [1, 2, 1]
    host.put(one, "", states[0])
    assert [len(host), len(host._points), host.evictions] == [1, 2, 2]
    check_books(host)


def test_a_state_keeps_its_points_when_it_comes() -> None:
    host = HostCache(240)
    ids, other, last = np.arange(10, dtype=np.int32), np.full(5, 20, np.int32), np.full(5, 21, np.int32)
    host.put_point(ids[:5], "", State([0] * 5))
    host.put(other, "", State([20] * 5))
    host.put(ids, "", State([0] * 10))
    assert host.bytes + host.point_bytes == host.cap
    host.put(last, "", State([21] * 5))
    # The older point outlives what came between it and its state.
    assert host.points(ids, "") == [5]
    assert host.chain(other, "", 0) == ([], 0)


def test_a_point_is_its_owners() -> None:
    host = HostCache(BIG)
    ids = np.arange(5, dtype=np.int32)
    host.put_point(ids, "a", State([0] * 5))
    assert (host.points(ids, "a"), host.points(ids, "b")) == ([5], [])
    host.put_point(ids, "b", State([0] * 5))
    host.forget(ids, "a")
    assert (host.points(ids, "a"), host.points(ids, "b")) == ([], [5])
    check_books(host)
