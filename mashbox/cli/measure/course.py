"""The run as a whole: calibrates, shares out the time, takes the servers in turn, and gathers the report."""

import dataclasses
import datetime
import time
from collections.abc import Callable, Sequence

import mashbox
from mashbox.cli.measure.report import Cache, Decode, Prefill, Ratio, Report, Session, ratio
from mashbox.cli.measure.target import Target
from mashbox.cli.measure.texts import Lengths, Texts, plain
from mashbox.cli.measure.units import Again, Agent, Pace, Reading, Room, Streams, Unit, waited
from mashbox.cli.measure.wire import Answer
from mashbox.errors import RemoteError

FIRST_TOKENS, PACE_TOKENS = 4, 24
FEW_WORDS, MANY_WORDS = 4, 100
LEAST_SECONDS = 0.5
BORROWED = 2.5
"""How many times its share a figure may take before it is left out: what follows gets by with less."""

RESERVE = 0.04
"""The share of the time that is kept back for what ends later than planned."""

DEFAULT_STREAMS = (1, 2, 4)
"""Where a server does not tell how many answers it gives at a time."""

PARTS = ("streams", "prompts", "cache", "session")

_WEIGHTS = {Streams: 1.0, Reading: 0.5, Again: 1.2, Agent: 1.6}

Say = Callable[[str], None]


def streams_up_to(slots: int | None) -> tuple[int, ...]:
    """1, 2, 4, 8 … and ``slots`` itself."""
    if slots is None:
        return DEFAULT_STREAMS
    powers = [1 << bit for bit in range(slots.bit_length()) if 1 << bit < slots]
    return (*powers, slots)


def units_of(streams: Sequence[int], prompts: Sequence[int], parts: Sequence[str] = PARTS) -> list[Unit]:
    """What is measured, in this order."""
    units: list[Unit] = []
    if "streams" in parts:
        units += [Streams(count) for count in streams]
    if "prompts" in parts:
        units += [Reading(tokens) for tokens in prompts]
    return units + [unit for part, unit in (("cache", Again()), ("session", Agent())) if part in parts]


@dataclasses.dataclass
class Taken:
    """A unit that was run: answers by server, a list for each round."""

    unit: Unit
    rounds: dict[str, list[list[Answer]]]


class _TooLong(Exception):
    """A figure's time was over before there was one."""


class Course:
    """One run over one or two servers. What was measured can be told at any time."""

    def __init__(
        self,
        targets: Sequence[Target],
        units: Sequence[Unit],
        *,
        seconds: float,
        rounds: int,
        seed: str,
        say: Say = lambda text: None,
        notes: Sequence[str] = (),
    ) -> None:
        self._targets = targets
        self._units = units
        self._rounds = rounds
        self._seed = seed
        self._say = say
        self._began = time.monotonic()
        self._end = self._began + seconds
        self._taken: list[Taken] = []
        self._left_out: list[str] = []
        self._notes = list(notes)
        self._complete = False

    def run(self) -> None:
        """Measure all there is time for. Raises RemoteError; the report stands whatever is raised."""
        pace = self._calibrate()
        left = list(self._units)
        while left:
            unit = left.pop(0)
            share = _WEIGHTS[type(unit)] / (_WEIGHTS[type(unit)] + sum(_WEIGHTS[type(each)] for each in left))
            self._take(unit, share, pace)
        self._complete = True

    def report(self) -> Report:
        """What was measured so far."""
        rows = [
            taken.unit.row(name, rounds)
            for taken in self._taken
            for name, rounds in taken.rounds.items()
            if any(rounds)
        ]
        return Report(
            mashbox=mashbox.__version__,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            seed=self._seed,
            seconds=round(time.monotonic() - self._began, 1),
            complete=self._complete,
            servers=[target.described() for target in self._targets],
            decode=[row for row in rows if isinstance(row, Decode)],
            prefill=[row for row in rows if isinstance(row, Prefill)],
            cache=[row for row in rows if isinstance(row, Cache)],
            session=[row for row in rows if isinstance(row, Session)],
            ratios=self._ratios(),
            left_out=self._left_out,
            notes=self._notes + self._observed(),
        )

    def _calibrate(self) -> Pace:
        """Wakes each server and learns what its words weigh, and the pace of the slowest."""
        paces = []
        for target in self._targets:
            self._say(f"{target.name}: first requests")
            texts = Texts(f"{self._seed} first{target.salt}")
            deadline = self._began + 0.3 * (self._end - self._began)
            few, many = texts.story(FEW_WORDS), texts.story(MANY_WORDS)
            first = target.ask(few, FIRST_TOKENS, deadline)
            answer = target.ask(many, PACE_TOKENS, deadline)
            if target.counted and not (first.cut or answer.cut):
                words = [len(plain(messages).split()) for messages in (few, many)]
                learnt = Lengths.between((words[0], first.prompt_tokens), (words[1], answer.prompt_tokens))
                # The words of the request to write at length are in every prompt.
                extra = words[0] - FEW_WORDS
                target.lengths = Lengths(learnt.fixed + learnt.each * extra, learnt.each)
            paces.append(_pace(answer))
        return Pace(min(pace.read for pace in paces), min(pace.write for pace in paces))

    def _take(self, unit: Unit, share: float, pace: Pace) -> None:
        runs = len(self._targets) * self._rounds
        remaining = self._end - time.monotonic() - RESERVE * (self._end - self._began)
        contexts = [target.context for target in self._targets if target.context]
        seconds, most = share * remaining / runs, min(1.0, BORROWED * share) * remaining / runs
        room = Room(seconds, most, min(contexts, default=None))
        if remaining < LEAST_SECONDS:
            self._left_out.append(f"{unit.title}: no time was left")
            return
        sized = unit.size(pace, room)
        if isinstance(sized, str):
            self._left_out.append(sized)
            return
        taken = Taken(sized, {target.name: [] for target in self._targets})
        self._taken.append(taken)
        try:
            self._rounds_of(sized, taken, room)
        except _TooLong as problem:
            self._taken.remove(taken)
            self._left_out.append(f"{unit.title}: {problem}")
            return
        except RemoteError as problem:
            if problem.status not in (400, 429, 503) or problem.status is None:
                raise
            self._taken.remove(taken)
            self._left_out.append(f"{unit.title}: the server refused it: {problem.message}")
            return
        _learn(pace, sized, taken)

    def _rounds_of(self, unit: Unit, taken: Taken, room: Room) -> None:
        for number in range(self._rounds):
            # A B, B A, …: a machine that slows down meanwhile hits both alike.
            order = self._targets if number % 2 == 0 else self._targets[::-1]
            for target in order:
                where = f" · {target.name}, round {number + 1} of {self._rounds}" if len(order) > 1 else ""
                self._say(f"{unit.title}{where}")
                texts = Texts(f"{self._seed} {unit.title} {number}{target.salt}")
                deadline = min(self._end, time.monotonic() + 1.2 * room.most)
                answers = unit.run(target, texts, deadline)
                if not isinstance(unit, Streams) and any(answer.cut for answer in answers):
                    raise _TooLong(f"{target.name} was not done after {1.2 * room.most:.0f} s")
                taken.rounds[target.name].append(answers)

    def _ratios(self) -> list[Ratio]:
        if len(self._targets) < 2:
            return []
        pairs: dict[str, list[tuple[float, float]]] = {}
        first, second = (target.name for target in self._targets)
        for taken in self._taken:
            for ours, other in zip(taken.rounds[first], taken.rounds[second], strict=False):
                if isinstance(taken.unit, Agent):  # later turns are longer: only the same ones compare
                    turns = min(len(ours), len(other))
                    ours, other = ours[:turns], other[:turns]
                mine, others = taken.unit.speeds(ours), taken.unit.speeds(other)
                for figure in (figure for figure in mine if figure in others):
                    pairs.setdefault(figure, []).append((mine[figure], others[figure]))
        return [ratio(figure, values) for figure, values in pairs.items()]

    def _observed(self) -> list[str]:
        """What a reader must know to take the figures for what they are."""
        notes = []
        for target in self._targets:
            streams = [
                answer
                for taken in self._taken
                if isinstance(taken.unit, Streams)
                for each in taken.rounds[target.name]
                for answer in each
            ]
            early = sum(answer.finish not in (None, "length") for answer in streams)
            cut = sum(answer.cut for answer in streams)
            if early:
                notes.append(f"{target.name}: {early} of {len(streams)} answers ended before their limit.")
            if cut:
                counted = f"{cut} of {len(streams)} answers"
                notes.append(f"{target.name}: {counted} were ended here; their tokens are estimated.")
            if not target.counted:
                notes.append(f"{target.name} sends no usage: tokens are estimated from words and pieces.")
        return notes


def _pace(answer: Answer) -> Pace:
    read = max(1, answer.prompt_tokens - (answer.cached or 0)) / max(1e-3, waited(answer))
    span = answer.arrivals[-1] - answer.arrivals[0] if len(answer.arrivals) > 1 else 0.0
    # An answer of a token or none tells nothing: then as slow as the slowest that people bear.
    write = (answer.tokens - 1) / span if span > 0 and answer.tokens > 1 else 15.0
    return Pace(max(1.0, read), max(1.0, write))


def _learn(pace: Pace, unit: Unit, taken: Taken) -> None:
    """Correct the pace by what the unit showed of the slower server."""
    answers = [answer for rounds in taken.rounds.values() for each in rounds for answer in each]
    if isinstance(unit, Reading) and answers:
        pace.read = min(_pace(answer).read for answer in answers)
    if isinstance(unit, Streams):
        rates = [unit.row(name, rounds).tokens_per_second for name, rounds in taken.rounds.items()]
        pace.write = min([rate for rate in rates if rate], default=pace.write)
