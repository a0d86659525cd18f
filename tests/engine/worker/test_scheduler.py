"""The scheduler: every submit ends once, rows are independent of each other, slots are never lost."""

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.request import Sampling
from mashbox.engine.wire import Failed, Row, Stats, Submit, Tokens
from mashbox.engine.worker.scheduler import PIECE_ALONE, PIECE_SHARED, Scheduler, pieces
from tests.engine.worker.counting import CountingRunner
from tests.hypotheses import examples


def submit(number: int, ids: list[int], max_tokens: int = 5, **sampling: float) -> Submit:
    return Submit(id=number, ids=ids, max_tokens=max_tokens, end_ids=[0], sampling=Sampling(**sampling))


class Log:
    """Collects what a scheduler says, by request."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Row]] = defaultdict(list)
        self.failed: dict[int, Failed] = {}

    def add(self, messages: list[Tokens | Failed | Stats]) -> None:
        for message in messages:
            if isinstance(message, Stats):
                continue
            if isinstance(message, Failed):
                assert message.id is not None and message.id not in self.failed
                self.failed[message.id] = message
            else:
                for row in message.rows:
                    assert not self.finish(row.id), "a row behind the terminal one"
                    self.rows[row.id].append(row)

    def finish(self, number: int) -> str | None:
        rows = self.rows.get(number)
        return rows[-1].finish if rows else None

    def tokens(self, number: int) -> list[int]:
        return [token for row in self.rows[number] for token in row.tokens]


def run(scheduler: Scheduler, log: Log, steps: int = 1000) -> None:
    for _ in range(steps):
        if scheduler.idle:
            break
        log.add(scheduler.step())
    assert scheduler.idle
    log.add(scheduler.step())


def expected(runner: CountingRunner, ids: list[int], max_tokens: int) -> list[int]:
    tokens = runner.greedy(ids, max_tokens)
    return tokens[: tokens.index(0) + 1] if 0 in tokens else tokens


def test_one_request_gives_its_greedy_tokens_and_ends_with_length() -> None:
    runner, log = CountingRunner(), Log()
    scheduler = Scheduler(runner)
    scheduler.submit(submit(1, [5, 6, 7], max_tokens=6))
    run(scheduler, log)
    assert log.tokens(1) == expected(runner, [5, 6, 7], 6)
    assert log.finish(1) in ("length", "stop")


def test_an_end_token_ends_with_stop_and_is_reported() -> None:
    runner, log = CountingRunner(), Log()
    first = runner.greedy([5], 1)[0]
    scheduler = Scheduler(runner)
    scheduler.submit(Submit(id=1, ids=[5], max_tokens=9, end_ids=[first], sampling=Sampling()))
    run(scheduler, log)
    assert log.rows[1] == [Row(1, [first], "stop")]


def test_long_prompts_are_read_in_pieces_between_decode_steps() -> None:
    runner, log = CountingRunner(slots=2, ctx=4 * PIECE_ALONE), Log()
    scheduler = Scheduler(runner)
    scheduler.submit(submit(1, [1], max_tokens=40))
    log.add(scheduler.step())
    scheduler.submit(submit(2, [2] * (PIECE_SHARED * 3), max_tokens=1))
    before = len(log.rows[1])
    for _ in range(3):
        log.add(scheduler.step())
    if not log.finish(1):
        assert len(log.rows[1]) == before + 3
        assert runner.prefills == [1, PIECE_SHARED, PIECE_SHARED, PIECE_SHARED]


def test_larger_models_are_read_in_shorter_pieces() -> None:
    assert pieces(0) == pieces(540_000_000) == (PIECE_ALONE, PIECE_SHARED)
    sizes = [pieces(gb * 10**9) for gb in (1, 2, 5, 15, 60)]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] == (16, 16)


def test_a_long_prompt_is_read_in_shorter_pieces_the_further_it_is_read() -> None:
    """Each token there sees more: a step must stay short beside others, and far below the step timeout."""
    total = 40_000
    runner, log = CountingRunner(slots=1, ctx=total + 8), Log()
    scheduler = Scheduler(runner)
    scheduler.submit(submit(1, [1] * total, max_tokens=1))
    run(scheduler, log)
    assert log.finish(1) and sum(runner.prefills) == total
    assert runner.prefills == sorted(runner.prefills, reverse=True)
    seen = 0
    for size in runner.prefills:
        assert size >= 16 and size * max(seen, 8192) <= PIECE_ALONE * 16_384
        seen += size
    assert len(runner.prefills) < 200


def test_a_prompt_that_does_not_fit_is_refused_and_leaves_the_slots_alone() -> None:
    runner, log = CountingRunner(ctx=8), Log()
    scheduler = Scheduler(runner)
    scheduler.submit(submit(1, [1] * 8, max_tokens=1))
    scheduler.submit(submit(2, [], max_tokens=1))
    scheduler.submit(submit(3, [99], max_tokens=1))
    scheduler.submit(submit(4, [1], max_tokens=2))
    run(scheduler, log)
    assert set(log.failed) == {1, 2, 3}
    assert "8" in log.failed[1].message
    assert log.finish(4)


def test_nan_fails_its_own_request_only() -> None:
    runner, log = CountingRunner(), Log()
    runner.broken_token = 44
    scheduler = Scheduler(runner)
    scheduler.submit(submit(1, [44], max_tokens=3))
    scheduler.submit(submit(2, [4], max_tokens=3))
    run(scheduler, log)
    assert log.failed[1].kind == "device"
    assert log.finish(2)


REQUEST = st.tuples(
    st.lists(st.integers(1, 49), min_size=1, max_size=20),
    st.integers(1, 12),
    st.integers(0, 12),
    st.booleans(),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(REQUEST, min_size=1, max_size=10), st.integers(1, 3))
def test_every_submit_ends_once_with_the_tokens_it_has_alone(
    requests: list[tuple[list[int], int, int, bool]], slots: int
) -> None:
    runner, log = CountingRunner(slots=slots), Log()
    scheduler = Scheduler(runner)
    waiting = sorted(enumerate(requests), key=lambda item: item[1][2])
    cancels: dict[int, int] = {}
    for step in range(400):
        while waiting and waiting[0][1][2] <= step:
            number, (ids, count, _, cancel) = waiting.pop(0)
            scheduler.submit(submit(number, ids, count))
            if cancel:
                cancels[number] = step + count // 2
        for number, when in cancels.items():
            if when == step:
                scheduler.cancel(number)
        if scheduler.idle and not waiting:
            break
        log.add(scheduler.step())
    log.add(scheduler.step())
    assert scheduler.idle and not log.failed
    assert max(runner.decodes, default=0) <= slots
    for number, (ids, count, _, cancel) in enumerate(requests):
        assert log.finish(number) is not None
        whole = expected(runner, ids, count)
        if cancel:
            assert whole[: len(log.tokens(number))] == log.tokens(number)
        else:
            assert log.tokens(number) == whole


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**64 - 1), st.lists(st.lists(st.integers(1, 49), min_size=1, max_size=6), max_size=3))
def test_a_seed_gives_the_same_tokens_alone_and_beside_others(seed: int, others: list[list[int]]) -> None:
    mine = submit(0, [7, 8, 9], 8, temperature=1.3, top_p=0.9, seed=seed)
    alone, together = Log(), Log()
    scheduler = Scheduler(CountingRunner())
    scheduler.submit(mine)
    run(scheduler, alone)
    scheduler = Scheduler(CountingRunner())
    for number, ids in enumerate(others, 1):
        scheduler.submit(submit(number, ids, 8, temperature=float(number % 2), repetition_penalty=2.0))
    scheduler.submit(mine)
    run(scheduler, together)
    assert alone.tokens(0) == together.tokens(0)
