"""The prompt cache over the fast engine: every answer is the one of an engine that never saw another request.

There a row has the same bits in any step, so the tokens of any seed are equal, and so is, to the bit, what
slots and host memory hold and what reading the same tokens anew gives.
"""

import functools
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.request import Sampling
from mashbox.engine.wire import Submit
from mashbox.engine.worker import scheduler as scheduling
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.host_cache import HostCache, Ids, common_prefix
from mashbox.engine.worker.kernels.decoder import Decoder
from mashbox.engine.worker.load.model import LoadedModel, build_empty, fill
from mashbox.engine.worker.load.rotary import rotary_tables
from mashbox.engine.worker.load.shapes import Shape
from mashbox.engine.worker.scheduler import Scheduler
from mashbox.engine.worker.slot_pools import SlotState
from tests.engine.worker.kernels.packing import decoder_of
from tests.engine.worker.test_scheduler import Log, run
from tests.engine.worker.test_slots import check_books, watch
from tests.engine.worker.test_speculate import SAMPLING, FreeRows
from tests.engine.worker.tiny import random_weights, tiny_config

CTX = 224
FEW = 8
"""Tokens to choose from: what comes next can be guessed, rightly at times."""

TYPES = ["llama", "qwen3", "gemma3_text", "phi3"]
SMALL, LARGE = 120_000, 4 << 20
"""Room for one whole sequence and a piece of another, and for all that an example can have."""


class Turn(NamedTuple):
    """One request of a conversation, and what happens beside it.

    ``at`` and ``more`` are where it parts from what was said, and how much is new. It is cancelled behind
    ``leaves`` steps, if it still runs, and the next request comes behind ``steps``.
    """

    talk: int
    how: str
    at: int
    more: int
    limit: int
    ends: list[int]
    sampling: Sampling
    leaves: int | None
    steps: int


TURN = st.builds(
    Turn,
    talk=st.integers(0, 4),
    how=st.sampled_from(["goes on", "goes on", "edited", "rendered", "again", "parts"]),
    at=st.integers(0, CTX),
    more=st.integers(1, 60),
    limit=st.integers(1, 40),
    ends=st.sampled_from([[], [], [0]]),
    sampling=SAMPLING,
    leaves=st.sampled_from([None, None, None, 0, 1, 3, 6]),
    steps=st.sampled_from([0, 0, 1, 4, 10, 60]),
)


@dataclass
class Talk:
    """All that was said, whose it is, and the last request's number."""

    tenant: str
    session: str | None
    ids: list[int]
    last: int | None = None

    def next_prompt(
        self, turn: Turn, answer: list[int], others: list["Talk"], draw: random.Random
    ) -> list[int]:
        ids, new = self.ids, text(draw, turn.more)
        match turn.how:
            case "goes on":
                ids = ids + answer + new
            case "edited":
                ids = ids[: turn.at % len(ids)] + new
            case "rendered":
                ids = (ids + answer)[:-2] + new
            case "parts":
                ids = others[turn.at % len(others)].ids[: turn.at] + new
        return ids[: CTX - turn.limit]


def text(draw: random.Random, count: int) -> list[int]:
    """A phrase over and over, so that the next tokens can be guessed; no end token."""
    phrase = [draw.randrange(1, FEW) for _ in range(draw.randint(3, 12))]
    return (phrase * count)[:count]


@functools.cache
def decoder(model_type: str) -> tuple[Decoder, Shape]:
    config = tiny_config(model_type, vocab_size=FEW)
    module = build_empty(config, torch.float32)
    size = fill(module, random_weights(module, 0).items(), torch.float32)
    return decoder_of(LoadedModel(module, config, model_type, size, torch.float32))


def fast(model_type: str, slots: int) -> FastRunner:
    packed, shape = decoder(model_type)
    return FastRunner(packed, rotary_tables(shape, CTX), slots=slots, ctx=CTX, threads=1)


@functools.cache
def cold(model_type: str) -> FastRunner:
    return fast(model_type, 1)


def uncached(model_type: str, request: Submit) -> tuple[list[int], str | None]:
    """What the engine answers that is asked nothing else: no cache, no guesses, nothing beside it."""
    runner, log = cold(model_type), Log()
    runner.reset(0)
    scheduler = Scheduler(runner)
    scheduler.submit(request)
    run(scheduler, log)
    return log.tokens(request.id), log.finish(request.id)


def check_state(model_type: str, state: SlotState, ids: Ids, start: int) -> None:
    """What is held from ``start`` on are the keys and values of ``ids``, to the bit."""
    assert (state.start, state.length) == (start, len(ids))
    runner = cold(model_type)
    runner.reset(0)
    runner.prefill(0, ids.tolist(), logits=False)
    assert state.block._memory[:] == runner.export(0, start).block._memory[:]


@contextmanager
def small_pieces() -> Iterator[None]:
    """Prompts are read in so small pieces that much happens between them; every guess is verified."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "PIECE_ALONE", 48)
        patch.setattr(scheduling, "PIECE_SHARED", 24)
        patch.setattr(scheduling, "StepCosts", FreeRows)
        yield


class Play:
    """An engine under a sequence of turns; ``seen`` counts what came about."""

    def __init__(
        self, model_type: str, seen: Counter[str], *, slots: int, cap: int, speculate: bool, share: bool
    ) -> None:
        self.model_type, self.seen, self.share = model_type, seen, share
        self.runner: Any = fast(model_type, slots)
        self.host, self.log = HostCache(cap), Log()
        watch(self.runner, self.host)
        self.scheduler = Scheduler(self.runner, host=self.host, speculate=speculate, share=share)
        self.requests: dict[int, Submit] = {}
        self.left: set[int] = set()
        draw = random.Random(slots * cap)
        system = text(draw, 70)
        owners = zip("aabba", ("x", "y", "x", None, None), strict=True)
        self.talks = [
            Talk(tenant, session, system[: 40 + 6 * number] + text(draw, 30))
            for number, (tenant, session) in enumerate(owners)
        ]
        self.draw = draw

    def take(self, turn: Turn) -> None:
        number, talk = len(self.requests), self.talks[turn.talk]
        answer = [] if talk.last is None else self.log.tokens(talk.last)
        talk.ids = talk.next_prompt(turn, answer, self.talks, self.draw)
        talk.last = number
        request = Submit(
            id=number,
            ids=talk.ids,
            max_tokens=turn.limit,
            end_ids=turn.ends,
            sampling=turn.sampling,
            tenant=talk.tenant,
            session=talk.session,
        )
        self.requests[number] = request
        self.scheduler.submit(request)
        for step in range(max(turn.steps, 1 + (turn.leaves or 0))):
            if step == turn.leaves:
                self.scheduler.cancel(number)
                self.left.add(number)
            self.log.add(self.scheduler.step())
            check_books(self.host)

    def end(self) -> None:
        run(self.scheduler, self.log)
        check_books(self.host)
        assert not self.log.failed
        for number, request in self.requests.items():
            whole, finish = uncached(self.model_type, request)
            found = self.log.tokens(number)
            if self.log.finish(number) == "cancelled":
                assert number in self.left and found == whole[: len(found)]
            else:
                assert (found, self.log.finish(number)) == (whole, finish)
            for row in self.log.rows[number]:
                assert row.cached <= self.known_to(request)
                gone = row.finish == "cancelled"
                self.seen.update(cached=row.cached, guessed=row.drafted, right=row.accepted, cancelled=gone)
        self.seen.update(evicted=self.host.evictions, saved=len(self.host))
        self.check_what_is_held()

    def known_to(self, request: Submit) -> int:
        """The longest beginning of a prompt that its tenant has sent or been answered before."""
        mine = np.array(request.ids[:-1], np.int32)
        others = (
            np.array([*other.ids, *self.log.tokens(number)], np.int32)
            for number, other in self.requests.items()
            if number < request.id and (self.share or other.tenant == request.tenant)
        )
        return max((common_prefix(mine, other) for other in others), default=0)

    def check_what_is_held(self) -> None:
        slots = self.scheduler._slots
        for index, slot in enumerate(slots._slots):
            assert self.runner.length(index) == slot.length
            if slot.length:
                check_state(self.model_type, FastRunner.export(self.runner, index), slot.ids, 0)
        for entry in self.host._entries.values():
            check_state(self.model_type, entry.state, entry.ids, entry.start)


@pytest.mark.parametrize("model_type", TYPES)
def test_random_requests_equal_uncached_ones(model_type: str) -> None:
    seen: Counter[str] = Counter()
    for many in (20, 40, 80):
        play(model_type, seen, many)
        if all(seen[what] for what in WHAT):
            break
    # Had none of it come about, the test would have shown nothing.
    assert all(seen[what] for what in WHAT), seen


WHAT = ("cached", "guessed", "right", "cancelled", "evicted", "saved")


def play(model_type: str, seen: Counter[str], many: int) -> None:
    """Random requests in ``many`` examples; ``seen`` counts what came about."""

    @settings(max_examples=many, deadline=None)
    @given(
        turns=st.lists(TURN, min_size=6, max_size=20),
        slots=st.sampled_from([1, 1, 2, 3]),
        cap=st.sampled_from([0, SMALL, SMALL, LARGE]),
        speculate=st.booleans(),
        share=st.booleans(),
    )
    def run(turns: list[Turn], slots: int, cap: int, speculate: bool, share: bool) -> None:
        with small_pieces():
            engine = Play(model_type, seen, slots=slots, cap=cap, speculate=speculate, share=share)
            for turn in turns:
                engine.take(turn)
            engine.end()

    run()
