"""The waiting line: who runs now, who waits, and who is told to come back later.

Requests are taken in turn over tenants (round robin) and in the order of their coming within one.
All methods run on the event loop; none of them blocks.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mashbox.errors import LineFull

FIRST_GUESS_S = 5.0
"""How long a request runs, while none has ended yet."""

NEWEST_SHARE = 0.2
"""Weight of the newest request in the running mean of durations."""


class Place:
    """A request's place: first in the line, then in one of the slots. Leave it with ``with``."""

    def __init__(self, line: "WaitingLine", tenant: str) -> None:
        self.tenant = tenant
        self.waited_s = 0.0
        self._line = line
        self._joined = line.clock()
        self._started: float | None = None
        self._turn: asyncio.Future[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it was given a slot (and, while it is held, still has it)."""
        return self._started is not None

    async def turn(self) -> float:
        """Wait for a slot; returns the seconds waited."""
        if self._started is None:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
        return self.waited_s

    def _start(self) -> None:
        self._started = self._line.clock()
        self.waited_s = self._started - self._joined
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def leave(self) -> None:
        """Give the place up, waiting or running. A second call does nothing."""
        self._line._leave(self, self._started)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


class WaitingLine:
    """At most ``slots`` requests run; at most ``per_tenant`` of one tenant and ``total`` of all wait.

    ``slots`` may be asked for each time: how many there are may be known only when the model is loaded.
    """

    def __init__(
        self,
        slots: int | Callable[[], int],
        *,
        per_tenant: int = 32,
        total: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = slots
        self.per_tenant = per_tenant
        self.total = total
        self.clock = clock
        self._running: set[Place] = set()
        self._queues: OrderedDict[str, deque[Place]] = OrderedDict()
        self._mean_s = FIRST_GUESS_S

    @property
    def slots(self) -> int:
        return self._slots if isinstance(self._slots, int) else self._slots()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def join(self, tenant: str = "") -> Place:
        """A place in the line. Raises LineFull when the tenant, or everyone, has too many waiting."""
        place = Place(self, tenant)
        if len(self._running) < self.slots and not self._queues:
            self._run(place)
            return place
        self._check_room(tenant)
        self._queues.setdefault(tenant, deque()).append(place)
        return place

    def _check_room(self, tenant: str) -> None:
        mine, all_ = len(self._queues.get(tenant, ())), self.waiting
        if all_ >= self.total:
            raise LineFull(
                f"There are {all_} waiting requests, the most this server holds.",
                self._retry_after(all_),
                everyone=True,
            )
        if mine >= self.per_tenant:
            raise LineFull(
                f"You have {mine} waiting requests, the most this server lets one client have.",
                self._retry_after(mine * len(self._queues)),
            )

    def _retry_after(self, ahead: int) -> int:
        """Whole seconds, 1 to 60, until so many requests have gone through the slots."""
        return min(60, max(1, math.ceil(ahead * self._mean_s / self.slots)))

    def _run(self, place: Place) -> None:
        self._running.add(place)
        place._start()

    def _leave(self, place: Place, started: float | None) -> None:
        if place in self._running:
            self._running.remove(place)
            if started is not None:
                self._mean_s += NEWEST_SHARE * (self.clock() - started - self._mean_s)
            self._fill()
            return
        queue = self._queues.get(place.tenant)
        if queue and place in queue:
            queue.remove(place)
            if not queue:
                del self._queues[place.tenant]

    def _fill(self) -> None:
        while self._queues and len(self._running) < self.slots:
            tenant, queue = self._queues.popitem(last=False)
            place = queue.popleft()
            if queue:
                self._queues[tenant] = queue  # behind the others: the next turn is theirs
            self._run(place)
