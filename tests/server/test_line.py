"""The waiting line: bounds, order, fairness, and that nobody is lost."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.errors import LineFull
from mashbox.server.line import Place, WaitingLine

TENANTS = "abc"

joins = st.tuples(st.just("join"), st.sampled_from(TENANTS))
leaves = st.tuples(st.just("leave"), st.integers(0, 30))


class Model:
    """Follows a line from outside and checks every step."""

    def __init__(self, line: WaitingLine) -> None:
        self.line = line
        self.running: list[Place] = []
        self.waiting: list[Place] = []
        self.overtakes: Counter[tuple[str, str]] = Counter()

    def join(self, tenant: str) -> None:
        mine = [place for place in self.waiting if place.tenant == tenant]
        full = len(self.waiting) >= self.line.total or len(mine) >= self.line.per_tenant
        try:
            place = self.line.join(tenant)
        except LineFull as refused:
            assert full
            assert len(self.running) == self.line.slots
            assert refused.retry_after is not None
            assert 1 <= refused.retry_after <= 60
            assert refused.everyone == (len(self.waiting) >= self.line.total)
            return
        if place.running:
            assert not self.waiting
            self.running.append(place)
        else:
            assert not full
            self.waiting.append(place)

    def leave(self, which: int) -> None:
        places = self.running + self.waiting
        if not places:
            return
        place = places[which % len(places)]
        place.leave()
        place.leave()  # a second time does nothing
        (self.running if place in self.running else self.waiting).remove(place)
        for started in [waiting for waiting in self.waiting if waiting.running]:
            self._check_start(started)

    def _check_start(self, started: Place) -> None:
        first = next(place for place in self.waiting if place.tenant == started.tenant)
        assert first is started, "first come, first served within a tenant"
        self.waiting.remove(started)
        self.running.append(started)
        for other in {place.tenant for place in self.waiting} - {started.tenant}:
            self.overtakes[started.tenant, other] += 1
            assert self.overtakes[started.tenant, other] <= 1, "a tenant was passed over twice"
        for passed in TENANTS:
            self.overtakes[passed, started.tenant] = 0

    def check(self) -> None:
        assert self.line.running == len(self.running) <= self.line.slots
        assert self.line.waiting == len(self.waiting)
        assert not self.waiting or len(self.running) == self.line.slots, "a slot is idle while some wait"
        for tenant in TENANTS:
            if all(place.tenant != tenant for place in self.waiting):
                for other in TENANTS:
                    self.overtakes[other, tenant] = 0


@given(
    slots=st.integers(1, 3),
    per_tenant=st.integers(1, 4),
    total=st.integers(1, 8),
    steps=st.lists(st.one_of(joins, leaves), max_size=60),
)
def test_every_history_keeps_the_rules(
    slots: int, per_tenant: int, total: int, steps: list[tuple[str, str] | tuple[str, int]]
) -> None:
    model = Model(WaitingLine(slots, per_tenant=per_tenant, total=total))
    for step in steps:
        if isinstance(step[1], str):
            model.join(step[1])
        else:
            model.leave(step[1])
        model.check()
    while model.running or model.waiting:
        model.leave(0)
        model.check()


def test_waiters_wake_in_turn_and_cancelled_ones_are_skipped() -> None:
    async def scene() -> list[str]:
        line, order = WaitingLine(1), list[str]()

        async def one(name: str) -> None:
            with line.join(name[0]) as place:
                await place.turn()
                order.append(name)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(one(name)) for name in ("a0", "a1", "a2", "b1", "a3", "c1")]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (line.running, line.waiting) == (0, 0)
        return order

    assert asyncio.run(scene()) == ["a0", "a1", "b1", "c1", "a3"]


def test_a_waiter_cancelled_just_as_its_turn_comes_frees_the_slot() -> None:
    async def scene() -> None:
        line = WaitingLine(1)
        holder = line.join()

        async def wait() -> None:
            with line.join() as place:
                await place.turn()

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        holder.leave()  # the turn is given …
        task.cancel()  # … and the waiter cancelled before it could notice
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (line.running, line.waiting) == (0, 0)

    asyncio.run(scene())


def test_retry_after_follows_recent_durations() -> None:
    now = 0.0
    line = WaitingLine(2, per_tenant=4, total=100, clock=lambda: now)
    for _ in range(60):
        place = line.join()
        now += 2.9
        place.leave()
    for _ in range(6):
        line.join()
    with pytest.raises(LineFull) as refused:
        line.join()
    # four wait, two run at once, each about three seconds
    assert refused.value.retry_after == 6
    assert not refused.value.everyone


def test_time_in_the_line_is_measured() -> None:
    now = 0.0
    line = WaitingLine(1, clock=lambda: now)
    first, second = line.join(), line.join()
    now = 2.5
    first.leave()
    assert (first.waited_s, second.waited_s) == (0.0, 2.5)
