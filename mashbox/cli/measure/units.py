"""The things that are measured, each small enough to be taken in turn on two servers."""

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from mashbox.cli.measure.report import Cache, Decode, Prefill, Session, spread
from mashbox.cli.measure.target import Target
from mashbox.cli.measure.texts import Texts
from mashbox.cli.measure.wire import Answer, together

Row = Decode | Prefill | Cache | Session

SHORT_WORDS, SHORT_PROMPT = 16, 75
"""Words of a prompt that is to be answered at length, and about how many tokens they make in a template."""

LEAST_TOKENS, MOST_TOKENS = 8, 256
PREFIX_TOKENS, LEAST_PREFIX = 1_024, 128
SESSION_TOKENS, TURN_TOKENS, TURN_ANSWER = 320, 120, 16
LEAST_TURNS, MOST_TURNS = 2, 12
REPEATS = 3


@dataclasses.dataclass
class Pace:
    """How fast the slower server was so far, in tokens per second: prompts, and answers in all."""

    read: float
    write: float


class Room(msgspec.Struct, frozen=True):
    """What a unit may use for one run on one server.

    ``seconds`` are its share, ``most`` what it may borrow from those that follow before it is left out
    rather; ``context`` is in tokens (None: not known).
    """

    seconds: float
    most: float
    context: int | None


class Unit(Protocol):
    """One figure. It is sized once by the pace, and run on each server with the same texts."""

    @property
    def title(self) -> str: ...

    def size(self, pace: Pace, room: Room) -> "Unit | str":
        """The unit as it fits the time and the context, or why it is left out."""

    def run(self, target: Target, texts: Texts, deadline: float) -> list[Answer]: ...

    def row(self, server: str, rounds: Sequence[list[Answer]]) -> Row: ...

    def speeds(self, answers: list[Answer]) -> dict[str, float]:
        """Figures of one round by name; for each, more is better."""


def _times(unit: str, seconds: float, room: Room) -> str:
    return f"{unit}: would take about {seconds:.0f} s, and {room.most:.0f} s are left for it"


@dataclasses.dataclass(frozen=True)
class Streams:
    """``count`` answers at a time: time to first token, time per token, tokens per second in all."""

    count: int
    tokens: int = LEAST_TOKENS
    requests: int = 1

    @property
    def title(self) -> str:
        return f"{self.count} stream{'s' if self.count > 1 else ''}"

    def size(self, pace: Pace, room: Room) -> "Streams | str":
        reading = self.count * SHORT_PROMPT / pace.read
        least = reading + self.count * LEAST_TOKENS / pace.write
        if least > room.most:
            return _times(self.title, least, room)
        fits = max(LEAST_TOKENS, int((0.8 * room.seconds - reading) * pace.write / self.count))
        if room.context is not None:
            fits = min(fits, room.context - 2 * SHORT_PROMPT)
            if fits < LEAST_TOKENS:
                return f"{self.title}: a context of {room.context} tokens is too short for it"
        # Several requests a stream where there is time: a percentile of one is none.
        requests = max(1, min(REPEATS, fits // 64))
        return dataclasses.replace(self, tokens=min(MOST_TOKENS, fits // requests), requests=requests)

    def run(self, target: Target, texts: Texts, deadline: float) -> list[Answer]:
        prompts = [[texts.story(SHORT_WORDS) for _ in range(self.requests)] for _ in range(self.count)]

        def stream(number: int) -> list[Answer]:
            answers: list[Answer] = []
            for turn, prompt in enumerate(prompts[number]):
                if not answers or time.monotonic() < deadline:
                    answer = target.ask(prompt, self.tokens, deadline, seed=number * 100 + turn)
                    answers.append(dataclasses.replace(answer, stream=number))
            return answers

        jobs = [lambda number=number: stream(number) for number in range(self.count)]
        return [answer for each in together(jobs, target.connections) for answer in each]

    def row(self, server: str, rounds: Sequence[list[Answer]]) -> Decode:
        answers = [answer for each in rounds for answer in each]
        rates = [rate for each in rounds if (rate := rate_in_all(each)) is not None]
        return Decode(
            server=server,
            streams=self.count,
            requests=len(answers),
            prompt_tokens=round(statistics.mean(answer.prompt_tokens for answer in answers)),
            tokens=sum(answer.tokens for answer in answers),
            tokens_per_second=round(statistics.median(rates), 3) if rates else None,
            first_ms=spread(answer.first for answer in answers if answer.first is not None),
            token_ms=spread(gap for answer in answers for gap in _per_token(answer)),
        )

    def speeds(self, answers: list[Answer]) -> dict[str, float]:
        first = [answer.first for answer in answers if answer.first]
        rate = rate_in_all(answers)
        speeds = {} if rate is None else {f"tokens/s, {self.title}": rate}
        return speeds | ({f"first token, {self.title}": 1 / statistics.median(first)} if first else {})


def _per_token(answer: Answer) -> list[float]:
    """Seconds for each token behind the first. A piece may carry several tokens, which then share its gap."""
    gaps = answer.gaps
    carried = (answer.tokens - 1) / len(gaps) if gaps and answer.tokens > 1 else 1.0
    return [gap / max(1.0, carried) for gap in gaps]


def rate_in_all(answers: Sequence[Answer]) -> float | None:
    """Tokens per second of all streams together, while all were at work; None where too few came.

    From the first piece of the stream that began last to the last piece of the one that ended first. The
    time to the first pieces of a stream's later requests counts in.
    """
    spoke = [answer for answer in answers if answer.arrivals]
    if not spoke:
        return None
    streams: dict[int, list[float]] = {}
    for answer in spoke:
        streams.setdefault(answer.stream, []).extend(answer.arrivals)
    start, end = max(map(min, streams.values())), min(map(max, streams.values()))
    if end <= start:  # they were never all at work: all that came behind the first piece
        start, end = min(map(min, streams.values())), max(map(max, streams.values()))
    tokens = sum(_tokens_between(answer, start, end) for answer in spoke)
    return tokens / (end - start) if end > start else None


def _tokens_between(answer: Answer, start: float, end: float) -> float:
    pieces = sum(start < arrival <= end for arrival in answer.arrivals)
    return pieces * answer.tokens / len(answer.arrivals)


@dataclasses.dataclass(frozen=True)
class Reading:
    """A prompt of about ``tokens`` tokens that no cache knows: how fast prompts are processed."""

    tokens: int
    repeats: int = 1

    @property
    def title(self) -> str:
        return f"prompt of {self.tokens:,} tokens"

    def size(self, pace: Pace, room: Room) -> "Reading | str":
        seconds = self.tokens / pace.read
        if seconds > room.most:
            return _times(self.title, seconds, room)
        if room.context is not None and self.tokens + 16 > room.context:
            return f"{self.title}: the context is {room.context:,}"
        return dataclasses.replace(self, repeats=max(1, min(REPEATS, int(0.6 * room.seconds / seconds))))

    def run(self, target: Target, texts: Texts, deadline: float) -> list[Answer]:
        words = target.lengths.words(self.tokens)
        answers: list[Answer] = []
        for _ in range(self.repeats):
            if not answers or time.monotonic() < deadline:
                answers.append(target.ask(texts.story(words), 1, deadline))
        return answers

    def row(self, server: str, rounds: Sequence[list[Answer]]) -> Prefill:
        answers = [answer for each in rounds for answer in each]
        known = [answer.cached for answer in answers if answer.cached is not None]
        first = spread(waited(answer) for answer in answers)
        assert first is not None
        return Prefill(
            server=server,
            tokens=round(statistics.median(answer.prompt_tokens for answer in answers)),
            cached=round(statistics.median(known)) if known else None,
            first_ms=first,
            tokens_per_second=round(statistics.median(_reading_rate(answer) for answer in answers), 3),
        )

    def speeds(self, answers: list[Answer]) -> dict[str, float]:
        return {self.title: statistics.median(_reading_rate(answer) for answer in answers)}


def waited(answer: Answer) -> float:
    """Seconds to the first piece, or to the end of an answer that had none."""
    return answer.first if answer.first is not None else answer.ended - answer.asked


def _reading_rate(answer: Answer) -> float:
    return max(1, answer.prompt_tokens - (answer.cached or 0)) / waited(answer)


@dataclasses.dataclass(frozen=True)
class Again:
    """Prompts with the same long beginning: what is saved when the server has read it before."""

    tokens: int = PREFIX_TOKENS
    repeats: int = 1

    @property
    def title(self) -> str:
        return "prompt cache"

    def size(self, pace: Pace, room: Room) -> "Again | str":
        tokens = min(self.tokens, max(LEAST_PREFIX, int(0.45 * room.seconds * pace.read)))
        if 1.2 * tokens / pace.read > room.most:
            return _times(self.title, 1.2 * tokens / pace.read, room)
        if room.context is not None:
            tokens = min(tokens, room.context - 64)
        if tokens < LEAST_PREFIX:
            return f"{self.title}: a context of {room.context} tokens is too short for it"
        repeats = max(1, min(REPEATS, int(0.4 * room.seconds * pace.read / tokens)))
        return dataclasses.replace(self, tokens=tokens, repeats=repeats)

    def run(self, target: Target, texts: Texts, deadline: float) -> list[Answer]:
        words = target.lengths.words(self.tokens)
        answers: list[Answer] = []
        for _ in range(self.repeats):
            if not answers or time.monotonic() < deadline:
                answers += [target.ask(prompt, 1, deadline) for prompt in texts.fork(words)]
        return answers

    def row(self, server: str, rounds: Sequence[list[Answer]]) -> Cache:
        answers = [answer for each in rounds for answer in each]
        cold, warm = answers[::2], answers[1::2]
        known = [answer.cached for answer in warm if answer.cached is not None]
        times = [statistics.median(waited(answer) for answer in side) for side in (cold, warm)]
        return Cache(
            server=server,
            prompt_tokens=round(statistics.median(answer.prompt_tokens for answer in warm)),
            cold_ms=round(1e3 * times[0], 3),
            warm_ms=round(1e3 * times[1], 3),
            ratio=round(times[0] / times[1], 3),
            cached_tokens=round(statistics.median(known)) if known else None,
        )

    def speeds(self, answers: list[Answer]) -> dict[str, float]:
        return {"first token, known beginning": 1 / statistics.median(waited(a) for a in answers[1::2])}


@dataclasses.dataclass(frozen=True)
class Agent:
    """A session as an agent has it: the same beginning each turn, and a little more."""

    turns: int = MOST_TURNS

    @property
    def title(self) -> str:
        return "agent session"

    def size(self, pace: Pace, room: Room) -> "Agent | str":
        head, turn = SESSION_TOKENS / pace.read, TURN_TOKENS / pace.read + TURN_ANSWER / pace.write
        if head + LEAST_TURNS * turn > room.most:
            return _times(self.title, head + LEAST_TURNS * turn, room)
        turns = min(self.turns, max(LEAST_TURNS, int((0.8 * room.seconds - head) / turn)))
        if room.context is not None:
            turns = min(turns, (room.context - 2 * SESSION_TOKENS) // (2 * TURN_TOKENS))
        if turns < LEAST_TURNS:
            return f"{self.title}: a context of {room.context} tokens is too short for it"
        return dataclasses.replace(self, turns=turns)

    def run(self, target: Target, texts: Texts, deadline: float) -> list[Answer]:
        words = [round(tokens / target.lengths.each) for tokens in (SESSION_TOKENS, TURN_TOKENS)]
        prompts = texts.session(self.turns, words[0], round(0.7 * words[1]))
        answers: list[Answer] = []
        for prompt in prompts:
            if not answers or time.monotonic() < deadline:
                answers.append(target.ask(prompt, TURN_ANSWER, deadline))
        # A turn that our own time ended tells nothing of what it would have taken.
        return answers[:-1] if len(answers) > 1 and answers[-1].cut else answers

    def row(self, server: str, rounds: Sequence[list[Answer]]) -> Session:
        turns = min(len(each) for each in rounds)
        first = spread(waited(answer) for each in rounds for answer in each)
        known = [answer.cached for answer in rounds[-1] if answer.cached is not None]
        assert first is not None
        return Session(
            server=server,
            turns=turns,
            seconds=round(statistics.median(_session_seconds(each[:turns]) for each in rounds), 3),
            first_ms=first,
            prompt_tokens=sum(answer.prompt_tokens for answer in rounds[-1]),
            cached_tokens=sum(known) if known else None,
            tokens=sum(answer.tokens for answer in rounds[-1]),
        )

    def speeds(self, answers: list[Answer]) -> dict[str, float]:
        # By turn: one of the servers may have run out of time before its last.
        return {self.title: len(answers) / _session_seconds(answers)}


def _session_seconds(answers: Sequence[Answer]) -> float:
    return sum(answer.ended - answer.asked for answer in answers)
