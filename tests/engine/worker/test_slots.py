"""The prompt cache: an uncached run is the oracle, the books are true, tenants don't meet."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.worker import points
from mashbox.engine.worker.host_cache import HostCache, common_prefix
from mashbox.engine.worker.scheduler import PIECE_ALONE, Scheduler
from tests.engine.worker.counting import CountingRunner, RecurrentRunner, State
from tests.engine.worker.test_scheduler import Log, expected, run, submit
from tests.hypotheses import examples

BIG = 1 << 20


def ask(
    scheduler: Scheduler, log: Log, number: int, ids: list[int], count: int = 4, **more: Any
) -> tuple[list[int], int]:
    """Run one request to its end; its tokens, and how many of its prompt's were cached."""
    request = submit(number, ids, count)
    for name, value in more.items():
        request = type(request)(
            **{**{f: getattr(request, f) for f in request.__struct_fields__}, name: value}
        )
    scheduler.submit(request)
    run(scheduler, log)
    return log.tokens(number), log.rows[number][0].cached


def tokens(start: int, count: int) -> list[int]:
    return [1 + (start + i * 7) % 49 for i in range(count)]


def test_a_conversation_that_goes_on_reads_only_what_is_new() -> None:
    runner, log = CountingRunner(slots=2, ctx=512), Log()
    scheduler = Scheduler(runner)
    first = tokens(0, 100)
    answer, cached = ask(scheduler, log, 1, first)
    assert cached == 0
    turn = first + answer + tokens(5, 20)
    again, cached = ask(scheduler, log, 2, turn)
    # The answer's last token was never fed back.
    assert cached == 100 + len(answer) - 1
    assert again == expected(runner, turn, 4)


def test_the_same_prompt_again_reads_one_token() -> None:
    runner, log = CountingRunner(slots=2, ctx=512), Log()
    scheduler = Scheduler(runner)
    ask(scheduler, log, 1, tokens(0, 100))
    assert ask(scheduler, log, 2, tokens(0, 100)) == (expected(runner, tokens(0, 100), 4), 99)


def test_a_shared_beginning_is_copied_and_its_owner_kept() -> None:
    runner, log = CountingRunner(slots=2, ctx=512), Log()
    scheduler = Scheduler(runner)
    system = tokens(0, 80)
    ask(scheduler, log, 1, system + tokens(1, 60))
    _, cached = ask(scheduler, log, 2, system + tokens(2, 60))
    assert cached == 80
    # Both conversations are in slots now: each goes on with all it had.
    for number, start in ((3, 1), (4, 2)):
        _, cached = ask(scheduler, log, number, system + tokens(start, 60))
        assert cached == 139


def test_a_beginning_that_is_being_read_is_waited_for() -> None:
    runner, log = CountingRunner(slots=3, ctx=2 * PIECE_ALONE), Log()
    scheduler = Scheduler(runner)
    system = tokens(0, PIECE_ALONE + 50)
    for number in (1, 2, 3):
        scheduler.submit(submit(number, system + tokens(number, 10)))
    run(scheduler, log)
    assert [log.rows[n][0].cached for n in (1, 2, 3)] == [0, len(system), len(system)]


def test_what_a_slot_loses_comes_back_from_host_memory() -> None:
    runner, log = CountingRunner(slots=1, ctx=512), Log()
    host = HostCache(BIG)
    scheduler = Scheduler(runner, host=host)
    a, b = tokens(0, 100), tokens(3, 120)
    ask(scheduler, log, 1, a)
    ask(scheduler, log, 2, b)
    assert len(host) == 1 and host.bytes == (8 + 4) * 103
    assert ask(scheduler, log, 3, a) == (expected(runner, a, 4), 99)
    assert len(host) == 2


def test_no_tier_two_when_it_is_off_or_too_small() -> None:
    for cap in (0, 100):
        runner, log, host = CountingRunner(slots=1, ctx=512), Log(), HostCache(cap)
        scheduler = Scheduler(runner, host=host)
        ask(scheduler, log, 1, tokens(0, 100))
        ask(scheduler, log, 2, tokens(3, 100))
        assert ask(scheduler, log, 3, tokens(0, 100))[1] == 0 and host.bytes == 0


def test_tenants_have_no_hits_on_each_other() -> None:
    for share, hit in ((False, 0), (True, 99)):
        runner, log = CountingRunner(slots=2, ctx=512), Log()
        scheduler = Scheduler(runner, host=HostCache(BIG), share=share)
        ask(scheduler, log, 1, tokens(0, 100), tenant="a")
        assert ask(scheduler, log, 2, tokens(0, 100), tenant="b")[1] == hit
        assert ask(scheduler, log, 3, tokens(0, 100), tenant="a")[1] == 99
        # The tenant that comes last to a slot finds only its own text in host memory too.
        ask(scheduler, log, 4, tokens(9, 100), tenant="c")
        ask(scheduler, log, 5, tokens(8, 100), tenant="c")
        assert ask(scheduler, log, 6, tokens(0, 100), tenant="d")[1] == hit


def test_a_session_comes_back_to_its_slot() -> None:
    runner, log = CountingRunner(slots=2, ctx=512), Log()
    scheduler = Scheduler(runner)
    ask(scheduler, log, 1, tokens(0, 50) + tokens(1, 50), session="x")
    ask(scheduler, log, 2, tokens(0, 50) + tokens(2, 50), session="y")
    held = [list(ids) for ids in runner.held]
    ask(scheduler, log, 3, tokens(0, 50) + tokens(4, 50), session="x")
    # An edited turn of x takes x's slot, although y's is the one used least recently by others.
    assert sum(before == after for before, after in zip(held, runner.held, strict=True)) == 1


def test_nan_is_not_kept() -> None:
    runner, log = CountingRunner(slots=1, ctx=512), Log()
    runner.broken_token = 44
    scheduler = Scheduler(runner)
    scheduler.submit(submit(1, [44, *tokens(0, 50)]))
    run(scheduler, log)
    assert 1 in log.failed and runner.held == [[]]


def test_what_is_taken_up_and_what_is_saved_fit_the_cap_together() -> None:
    """Neither is put out for the other while both are needed; of what has no room the beginning is saved."""
    runner, log = CountingRunner(slots=1, ctx=512), Log()
    host = HostCache(12 * 170)
    watch(runner, host)
    scheduler = Scheduler(runner, host=host)
    a, b = tokens(0, 100), tokens(3, 120)
    ask(scheduler, log, 1, a)
    ask(scheduler, log, 2, b)
    assert ask(scheduler, log, 3, a)[1] == 99
    check_books(host)
    answer, cached = ask(scheduler, log, 4, b)
    assert answer == expected(runner, b, 4)
    assert cached == (12 * 170 - 12 * 103) // 12
    # One that never fits puts nothing else out.
    ask(scheduler, log, 5, tokens(7, 400))
    held = host.bytes
    assert ask(scheduler, log, 6, tokens(9, 20))[1] == 0 and host.bytes == held


def test_without_memory_for_the_cache_requests_go_on(caplog: pytest.LogCaptureFixture) -> None:
    class Short(RecurrentRunner):
        def export(self, slot: int, start: int = 0) -> Any:
            raise OSError(12, "Cannot allocate memory")

        def snapshot(self, slot: int) -> Any:
            raise OSError(12, "Cannot allocate memory")

    runner, log, host = Short(slots=1, ctx=512), Log(), HostCache(BIG)
    scheduler = Scheduler(runner, host=host)
    for number, ids in enumerate([tokens(0, 100), tokens(3, 120)]):
        assert ask(scheduler, log, number, ids)[0] == expected(runner, ids, 4)
    check_books(host)
    assert not host.bytes and "Cannot allocate memory" in caplog.text


IDS = st.lists(st.integers(0, 3), max_size=12)


@given(IDS, IDS)
def test_common_prefix(a: list[int], b: list[int]) -> None:
    length = common_prefix(np.array(a, np.int32), np.array(b, np.int32))
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]


def check_books(host: HostCache) -> None:
    """What the cache says that it holds is what it holds, and under its cap."""
    assert host.bytes == sum(e.state.nbytes + e.ids.nbytes for e in host._entries.values())
    assert host.point_bytes == sum(p.state.nbytes + p.ids.nbytes for p in host._points.values())
    assert host.bytes + host.point_bytes <= host.cap
    assert sorted(host._order) == sorted([*host._entries, *host._points])


def watch(runner: CountingRunner, host: HostCache) -> None:
    """Have every copy into and out of host memory made within its books."""
    export, restore = runner.export, runner.restore

    def exported(slot: int, start: int = 0) -> Any:
        state = export(slot, start)
        assert host.bytes + host.point_bytes + state.nbytes + 4 * runner.length(slot) <= host.cap
        return state

    def restored(slot: int, states: Any, *args: Any, **more: Any) -> None:
        held = [id(entry.state) for entry in host._entries.values()]
        assert all(id(state) in held for state in states)
        restore(slot, states, *args, **more)

    runner.export, runner.restore = exported, restored  # type: ignore[method-assign]


PUT = st.tuples(IDS, st.sampled_from("ab"), st.booleans(), st.sampled_from([0, 0, 3, 6]))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(PUT, max_size=30), st.integers(0, 400))
def test_the_host_tier_counts_to_the_byte_and_never_passes_its_cap(
    puts: list[tuple[list[int], str, bool, int]], cap: int
) -> None:
    host = HostCache(cap)
    for given_ids, owner, point, start in puts:
        ids = np.array(given_ids, np.int32)
        start = min(start, len(given_ids))
        if point:
            host.put_point(ids, owner, State(given_ids))
        else:
            host.put(ids, owner, State(given_ids[start:], start=start), start)
        check_books(host)
        if point:
            assert (len(given_ids) in host.points(ids, owner)) == (12 * len(given_ids) <= cap)
            for length in host.points(ids, owner):
                assert host.point(ids, owner, length).ids == given_ids[:length]
            continue
        fits = 4 * len(given_ids) + 8 * len(given_ids[start:]) <= cap
        assert host.chain(ids, owner, start)[1] == len(given_ids) or not fits
        chain, reach = host.chain(ids, owner, 0)
        together: list[int] = []
        for entry in host.get(chain):
            assert entry.owner == owner and entry.start == entry.state.start <= len(together)
            together[entry.start :] = entry.state.ids
            assert together == entry.ids.tolist()
        assert together[:reach] == given_ids[:reach]


def test_a_tail_is_saved_alone_and_brought_together_with_what_it_belongs_to() -> None:
    runner, log = CountingRunner(slots=1, ctx=1024), Log()
    host = HostCache(BIG)
    scheduler = Scheduler(runner, host=host)
    system, one, two = tokens(0, 500), tokens(1, 60), tokens(2, 60)
    answer, _ = ask(scheduler, log, 1, system + one)
    assert ask(scheduler, log, 2, system + two)[1] == 500
    # What both begin with stayed in the slot: only the first one's tail went.
    tail = 60 + len(answer) - 1
    assert host.bytes == 8 * tail + 4 * (500 + tail)
    assert ask(scheduler, log, 3, system + one) == (expected(runner, system + one, 4), 559)
    assert len(host) == 2
    # Another conversation takes the slot: all of it goes, and both come back.
    ask(scheduler, log, 4, tokens(9, 100))
    check_books(host)
    assert ask(scheduler, log, 5, system + two) == (expected(runner, system + two, 4), 559)
    assert ask(scheduler, log, 6, system + one) == (expected(runner, system + one, 4), 559)
    # The shared part was saved once.
    assert sum(len(entry.state.ids) for entry in host._entries.values()) < 900


def test_what_others_build_on_is_put_out_last() -> None:
    runner, log = CountingRunner(slots=1, ctx=4096), Log()
    host = HostCache(BIG)
    scheduler = Scheduler(runner, host=host)
    talks = [tokens(0, 300), tokens(5, 200)]
    for number in range(10):
        talk = talks[number % 2]
        talk += tokens(17 * number, 64)
        talk += ask(scheduler, log, number, talk)[0]
    assert len(host) > 6
    while host:
        for entry in host._entries.values():
            assert host.chain(entry.ids, entry.owner, 0)[1] == len(entry.ids)
        host.cap = host.bytes - 1
        host._make_room(0)


def test_the_few_tokens_that_a_saved_tail_needs_are_saved_too() -> None:
    runner, log = CountingRunner(slots=2, ctx=512), Log()
    scheduler = Scheduler(runner, host=HostCache(BIG))
    base = tokens(0, 100)
    base += ask(scheduler, log, 1, base)[0][:3]
    ask(scheduler, log, 2, tokens(3, 120))
    ask(scheduler, log, 3, tokens(4, 120))
    # A slot goes on from what is in host memory by a few tokens, and the other one parts from it there.
    turn = base + tokens(9, 10)
    answer, _ = ask(scheduler, log, 4, turn, session="x")
    other = turn + answer[:2] + tokens(answer[2], 60)
    assert ask(scheduler, log, 5, other)[1] == len(turn) + 2
    ask(scheduler, log, 6, turn, session="x")
    ask(scheduler, log, 7, tokens(5, 120))
    ask(scheduler, log, 8, tokens(6, 120))
    assert not any(ids[: len(turn)] == turn for ids in runner.held)
    assert ask(scheduler, log, 9, other) == (expected(runner, other, 4), len(other) - 1)


@pytest.mark.parametrize("kind", [CountingRunner, RecurrentRunner])
def test_conversations_that_take_turns_in_one_slot_never_read_twice(kind: type[CountingRunner]) -> None:
    runner, log = kind(slots=1, ctx=4096), Log()
    scheduler = Scheduler(runner, host=HostCache(BIG))
    system, number = tokens(0, 300), 0
    talks = [list(system), list(system), tokens(5, 200)]
    for turn in range(6):
        for index, talk in enumerate(talks):
            number += 1
            before = len(talk)
            talk += tokens(17 * number, 64)
            answer, cached = ask(scheduler, log, number, talk)
            assert answer == expected(runner, talk, 4)
            talk += answer
            if turn:
                assert cached >= before - 1 - (points.TAIL if runner.recurrent else 0), (turn, index)
    check_books(scheduler._host)


TURN = st.tuples(
    st.integers(0, 3),
    st.integers(0, 90),
    st.integers(0, 40),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from("ab"),
)


@pytest.mark.parametrize("kind", [CountingRunner, RecurrentRunner])
@settings(max_examples=examples(60), deadline=None)
@given(
    turns=st.lists(TURN, min_size=1, max_size=12),
    slots=st.integers(1, 3),
    cap=st.sampled_from([0, 2000, BIG]),
)
def test_a_cache_never_changes_an_answer(
    kind: type[CountingRunner],
    turns: list[tuple[int, int, int, int, bool, str]],
    slots: int,
    cap: int,
) -> None:
    """Random conversations with shared beginnings, edits, cancels and tenants, in waves of three."""
    with close_points():
        _answers_equal_uncached_ones(kind(slots=slots, ctx=256), turns, cap)


@contextmanager
def close_points() -> Iterator[None]:
    """State points so close and few that short prompts meet all that can happen to them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(points, "GRID", 24)
        patch.setattr(points, "SHORTEST", 8)
        patch.setattr(points, "TAIL", 4)
        patch.setattr(points, "MOST", 4)
        yield


def _answers_equal_uncached_ones(
    runner: CountingRunner, turns: list[tuple[int, int, int, int, bool, str]], cap: int
) -> None:
    log, host = Log(), HostCache(cap)
    watch(runner, host)
    scheduler = Scheduler(runner, host=host)
    prompts: dict[int, list[int]] = {}
    for number, (start, shared, own, count, cancel, tenant) in enumerate(turns):
        prompts[number] = tokens(start, shared) + tokens(number, own) + [1]
        request = submit(number, prompts[number], count)
        scheduler.submit(
            type(request)(
                id=number,
                ids=request.ids,
                max_tokens=count,
                end_ids=[0],
                sampling=request.sampling,
                tenant=tenant,
            )
        )
        log.add(scheduler.step())
        if cancel:
            scheduler.cancel(number)
        if number % 3 == 2:
            run(scheduler, log)
        check_books(host)
    run(scheduler, log)
    check_books(host)
    assert not log.failed
    for number, (_, _, _, count, cancel, _) in enumerate(turns):
        whole = expected(runner, prompts[number], count)
        got = log.tokens(number)
        assert got == (whole[: len(got)] if cancel else whole)
