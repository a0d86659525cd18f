"""Guided rows: only what the grammar allows is drawn, whatever the logits say; other rows don't notice."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from mashbox.engine.detokenize import decode
from mashbox.engine.events import ToolCall
from mashbox.engine.formats.families import HERMES
from mashbox.engine.gguf_tokenizer import write_tokenizer
from mashbox.engine.grammar import forced_call
from mashbox.engine.parse import OutputParser
from mashbox.engine.prompt import encode
from mashbox.engine.request import Conversation, Sampling
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.wire import Failed, Row, Submit
from mashbox.engine.worker import scheduler as scheduling
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.guide import Guide, GuideError, Guides
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.sampler import RowSampler
from mashbox.engine.worker.scheduler import Scheduler
from tests.engine.letters import Letters
from tests.engine.worker.counting import CountingRunner
from tests.engine.worker.sampling import sample
from tests.engine.worker.test_speculate import FreeRows

LETTERS = Letters(["<call>"])
ONE_OF_TWO = 'start: "yes" | "yo"'


@pytest.fixture(scope="module")
def guides(tmp_path_factory: pytest.TempPathFactory) -> Guides:
    return Guides(str(LETTERS.save(tmp_path_factory.mktemp("letters"))))


def allowed(guide: Guide, size: int = LETTERS.size) -> set[int]:
    return set(np.flatnonzero(np.isfinite(guide.mask(np.zeros(size, np.float32)))).tolist())


def ids(text: str) -> list[int]:
    return LETTERS.encode(text)


def test_a_mask_allows_what_may_come_next_and_then_only_the_ends(guides: Guides) -> None:
    ends = {LETTERS.end, *ids("~")}
    guide = guides.guide(ONE_OF_TWO, ends)
    assert allowed(guide) == set(ids("y"))
    guide.accept(ids("y")[0])
    assert allowed(guide) == set(ids("eo"))
    guide.accept(ids("o")[0])
    assert allowed(guide) == ends
    assert guide.over


def test_an_end_that_the_grammar_itself_writes(guides: Guides) -> None:
    call = LETTERS.markers["<call>"]
    guide = guides.guide(f'start: "a" <[{call}]>', [call, LETTERS.end])
    guide.accept(ids("a")[0])
    assert allowed(guide) == {call}
    guide.accept(call)
    assert guide.over


def test_logits_of_allowed_tokens_stay_and_nan_stays_nan(guides: Guides) -> None:
    row = np.arange(LETTERS.size, dtype=np.float32)
    row[0] = np.nan
    masked = guides.guide(ONE_OF_TWO, [LETTERS.end]).mask(row)
    (y,) = ids("y")
    assert masked[y] == y and np.isnan(masked[0]) and masked[y + 1] == -np.inf
    assert row[y + 1] == y + 1, "the row itself is left alone"


@pytest.mark.parametrize("size", [LETTERS.size + 70, 90])
def test_rows_longer_and_shorter_than_the_vocabulary(guides: Guides, size: int) -> None:
    """Models have padding behind the vocabulary, and a few have fewer rows than tokens."""
    assert allowed(guides.guide("start: /[a-z]/", [LETTERS.end]), size) == set(
        ids("abcdefghijklmnopqrstuvwxyz")
    )


@pytest.mark.parametrize("temperature", [0.0, 5.0])
def test_no_penalty_and_no_draw_gets_around_a_guide(guides: Guides, temperature: float) -> None:
    sampling = Sampling(
        temperature=temperature, frequency_penalty=2.0, repetition_penalty=3.0, top_k=40, seed=3
    )
    guide = guides.guide("start: /a{50}/", [LETTERS.end])
    row = RowSampler(sampling, ids("prompt"), LETTERS.size, guide)
    logits = torch.rand(LETTERS.size, generator=torch.Generator().manual_seed(1)) * 30
    (a,) = ids("a")
    assert [sample(logits[None], [row])[0] for _ in range(51)] == [a] * 50 + [LETTERS.end]


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ("start: other", "other"),
        ('start: %json {"not": {}}', "not"),
        ("start: <[99999]>", "99999"),
    ],
)
def test_grammars_that_can_not_be_used(guides: Guides, grammar: str, says: str) -> None:
    with pytest.raises(GuideError, match=says):
        guides.guide(grammar, [LETTERS.end])


def test_vocabularies_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'
    )
    for folder, says in (("", "without its tokenizer"), (str(tmp_path), "decoder"), ("/nowhere", "nowhere")):
        with pytest.raises(GuideError, match=says):
            Guides(folder).guide(ONE_OF_TWO, [0])


def run(scheduler: Scheduler, submits: list[Submit]) -> dict[int, list[Row | Failed]]:
    """Everything that the scheduler says of each submit."""
    heard: dict[int, list[Row | Failed]] = {submit.id: [] for submit in submits}
    for submit in submits:
        scheduler.submit(submit)
    for _ in range(2000):
        for message in scheduler.step():
            for part in [message] if isinstance(message, Failed) else message.rows:
                assert part.id is not None
                heard[part.id].append(part)
        if scheduler.idle:
            return heard
    raise AssertionError("the scheduler never came to rest")


def submit(
    number: int, *, grammar: str | None = None, max_tokens: int = 30, end_ids: list[int] | None = None
) -> Submit:
    ends = [LETTERS.end] if end_ids is None else end_ids
    sampling = Sampling(temperature=1.0, seed=number)
    return Submit(
        id=number, ids=[number], max_tokens=max_tokens, end_ids=ends, sampling=sampling, grammar=grammar
    )


def words(heard: list[Row | Failed]) -> tuple[str, str | None]:
    rows = [row for row in heard if isinstance(row, Row)]
    assert len(rows) == len(heard)
    tokens = [token for row in rows for token in row.tokens if token != LETTERS.end]
    return LETTERS.decode(tokens), rows[-1].finish


def test_guided_and_free_rows_run_together_and_do_not_change_each_other(guides: Guides) -> None:
    def scheduler() -> Scheduler:
        return Scheduler(CountingRunner(slots=4, ctx=64, vocab_size=LETTERS.size), guides)

    guided = [submit(n, grammar='start: "<" /[a-z]{3}/ ("+" | "-"){4} ">"') for n in (1, 2)]
    free = [submit(n) for n in (3, 4)]
    together = run(scheduler(), [guided[0], free[0], guided[1], free[1]])
    for one in (*guided, *free):
        assert run(scheduler(), [one])[one.id] == together[one.id]
    for number in (1, 2):
        text, finish = words(together[number])
        assert len(text) == 9 and text[0] + text[-1] == "<>" and finish == "stop"
    assert words(together[1]) != words(together[2])


def test_a_grammar_cut_short_ends_with_length(guides: Guides) -> None:
    scheduler = Scheduler(CountingRunner(ctx=64, vocab_size=LETTERS.size), guides)
    heard = run(scheduler, [submit(1, grammar='start: "abcdef"', max_tokens=3)])
    assert words(heard[1]) == ("abc", "length")


def test_without_end_tokens_the_end_of_the_grammar_is_the_end(guides: Guides) -> None:
    scheduler = Scheduler(CountingRunner(ctx=64, vocab_size=LETTERS.size), guides)
    assert words(run(scheduler, [submit(1, grammar='start: "abc"', end_ids=[])])[1]) == ("abc", "stop")


def test_a_refused_grammar_fails_its_own_request_only(guides: Guides) -> None:
    scheduler = Scheduler(CountingRunner(slots=1, ctx=64, vocab_size=LETTERS.size), guides)
    heard = run(scheduler, [submit(1, grammar="start: other"), submit(2, grammar='start: "ok"')])
    (failed,) = heard[1]
    assert isinstance(failed, Failed) and failed.kind == "request" and "other" in failed.message
    assert words(heard[2]) == ("ok", "stop")
    assert isinstance(run(Scheduler(CountingRunner()), [submit(3, grammar=ONE_OF_TWO)])[3][0], Failed)


def test_a_grammar_that_turns_out_too_costly_fails_its_request_only(guides: Guides) -> None:
    """The library finds out as it goes, and stops at a bound instead of holding all rows up."""
    scheduler = Scheduler(CountingRunner(ctx=400, vocab_size=LETTERS.size), guides)
    costly = 'start: %json {"type": "string", "pattern": "(.*[^a].{2000}){50}"}'
    heard = run(scheduler, [submit(1, grammar=costly, max_tokens=390), submit(2, grammar='start: "abc"')])
    failed = heard[1][-1]
    assert isinstance(failed, Failed) and failed.kind == "request" and "too many" in failed.message
    assert words(heard[2]) == ("abc", "stop")


def test_a_grammar_that_allows_no_token_is_the_requests_own_fault(guides: Guides) -> None:
    """The vocabulary's rows may be fewer than its tokens: what the grammar wants can't be drawn then."""
    (wanted,) = ids("z")
    runner = CountingRunner(slots=1, ctx=64, vocab_size=wanted)
    scheduler = Scheduler(runner, guides)
    heard = run(scheduler, [submit(1, grammar='start: "az"', end_ids=[]), submit(2, end_ids=[])])
    failed = heard[1][-1]
    assert isinstance(failed, Failed) and failed.kind == "request"
    assert "allows no token" in failed.message and "tool_choice" in failed.remedy
    # What was read stays right: the slot goes on with the next request.
    assert words(heard[2])[1] == "length"
    # A model's own NaN is told as what it is.
    runner.broken_token = 1
    (broken,) = run(scheduler, [submit(1, grammar='start: "z"', end_ids=[])])[1]
    assert isinstance(broken, Failed) and broken.kind == "device" and "NaN" in broken.message


def test_nan_under_a_grammar_is_not_kept(guides: Guides) -> None:
    runner = CountingRunner(slots=1, ctx=64, vocab_size=LETTERS.size)
    runner.broken_token = 1
    (failed,) = run(Scheduler(runner, guides), [submit(1, grammar='start: "abc"')])[1]
    assert isinstance(failed, Failed) and failed.kind == "device"
    assert runner.held == [[]]


BOOKING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "guest": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 12},
                "age": {"type": "integer", "maximum": 120},
            },
            "required": ["name", "age"],
        },
        "room": {"enum": ["single", "double", "suite"]},
        "nights": {"type": "integer", "minimum": 1, "maximum": 30},
    },
    "required": ["guest", "room", "nights"],
}
TOOLS = [
    {"type": "function", "function": {"name": "book", "description": "Book a room.", "parameters": BOOKING}}
]


class Starter:
    """The real starter model with guides."""

    def __init__(self, gguf: Path, folder: Path) -> None:
        write_tokenizer(gguf, folder)
        self.tokenizer = ModelTokenizer.load(folder)
        self.runner = ExactRunner(load_gguf(gguf, torch.float32, lambda *_: None), slots=4, ctx=256)
        self.guides = Guides(str(folder))
        self.markers = {text: index for index, text in self.tokenizer.markers.texts.items()}
        self._numbers: Iterator[int] = iter(range(1, 1000))

    def ask(self, sampling: list[Sampling], limits: list[int]) -> list[tuple[str, str | None]]:
        """Text and finish of one forced call for each sampling and ``max_tokens``, all in one batch."""
        talk = Conversation(
            messages=[{"role": "user", "content": "Book a double room for Ann, 31, three nights."}]
        )
        prompt = encode(self.tokenizer, talk)
        grammar = forced_call(TOOLS, "book", format="hermes", markers=self.markers)
        submits = [
            Submit(
                id=number,
                ids=prompt.ids,
                max_tokens=limit,
                end_ids=sorted(self.tokenizer.end_ids),
                sampling=one,
                grammar=grammar,
            )
            for number, one, limit in zip(islice(self._numbers, len(limits)), sampling, limits, strict=True)
        ]
        heard = run(Scheduler(self.runner, self.guides), submits)
        return [self._words(heard[one.id]) for one in submits]

    def _words(self, heard: list[Row | Failed]) -> tuple[str, str | None]:
        rows = [row for row in heard if isinstance(row, Row)]
        assert len(rows) == len(heard), heard
        tokens = [token for row in rows for token in row.tokens if token not in self.tokenizer.end_ids]
        return decode(self.tokenizer, tokens, markers=True), rows[-1].finish


@pytest.fixture(scope="module")
def starter(starter_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starter]:
    threads = torch.get_num_threads()
    # Rows of one token: more threads would only wait for each other.
    torch.set_num_threads(1)
    yield Starter(starter_gguf, tmp_path_factory.mktemp("starter"))
    torch.set_num_threads(threads)


@pytest.mark.real
def test_the_starter_is_held_to_a_schema_at_any_temperature(starter: Starter) -> None:
    samplings = [Sampling(), *(Sampling(temperature=1.0, seed=seed) for seed in range(3))]
    answers = starter.ask(samplings, [80] * 4)
    for text, finish in answers:
        assert finish == "stop", text
        parser = OutputParser(HERMES, tools=TOOLS)
        (call,) = [*parser.push(text), *parser.finish()]
        assert isinstance(call, ToolCall) and call.name == "book"
        assert f'"arguments": {call.arguments}}}\n' in text, "the arguments are as the model wrote them"
        jsonschema.validate(json.loads(call.arguments), BOOKING)
    assert len({text for text, _ in answers}) > 1, "the seeds made no difference"


@pytest.mark.real
def test_a_call_of_the_starter_cut_short_is_the_start_of_the_whole_one(starter: Starter) -> None:
    (whole, _), (cut, finish) = starter.ask([Sampling(temperature=1.0, seed=7)] * 2, [80, 15])
    assert finish == "length"
    assert whole.startswith(cut) and len(cut) < len(whole)


def test_guesses_are_held_to_the_grammar_one_by_one(guides: Guides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "StepCosts", FreeRows)
    submits = [
        Submit(
            id=number,
            ids=ids("abcabcabcab"),
            max_tokens=30,
            end_ids=[],
            sampling=Sampling(temperature=temperature, seed=number),
            grammar='start: ("abc" | "abd")+',
        )
        for number, temperature in enumerate([0.0, 1.0, 1.0, 1.0])
    ]
    heard = [
        run(Scheduler(CountingRunner(vocab_size=LETTERS.size), guides, speculate=speculate), submits)
        for speculate in (False, True)
    ]
    tokens = [
        [[token for row in rows if isinstance(row, Row) for token in row.tokens] for rows in one.values()]
        for one in heard
    ]
    assert tokens[0] == tokens[1]
    assert any(isinstance(row, Row) and row.accepted for rows in heard[1].values() for row in rows)
