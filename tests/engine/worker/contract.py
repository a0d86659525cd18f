"""What every runner must do, whatever it is made of. A runner's own test module derives from these.

``engine`` names the runner under test in every comparison; ``make`` builds it over a tiny model.
"""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
import torch

from mashbox.engine.worker.load.model import LoadedModel
from mashbox.engine.worker.runner import Runner
from tests.engine.worker.tiny import VOCAB, tiny_model
from tests.marks import QUICK, slow_but

SLOTS = 6
CTX = 160
Make = Callable[[LoadedModel, int, int], Runner]


shared_model = functools.cache(tiny_model)
"""One model of a type for all tests: no runner changes its weights."""


def prompt(length: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed * 1000 + length)
    return torch.randint(3, VOCAB, (length,), generator=generator).tolist()


def read(runner: Runner, slot: int, ids: Sequence[int], chunk: int = 64) -> int:
    """Read a prompt in pieces of ``chunk`` and return the token that follows greedily."""
    for first in range(0, len(ids), chunk):
        last = first + chunk >= len(ids)
        logits = runner.prefill(slot, ids[first : first + chunk], logits=last)
        assert (logits is not None) == last
    assert logits is not None
    assert logits.shape == (runner.vocab_size,)
    assert logits.dtype == torch.float32
    return int(logits.argmax())


def greedy(
    runner: Runner, prompts: Sequence[Sequence[int]], slots: Sequence[int], count: int, chunk: int = 64
) -> list[list[int]]:
    """``count`` greedy tokens for each prompt, all rows decoded together."""
    for slot in slots:
        runner.reset(slot)
    answers = [[read(runner, slot, ids, chunk)] for slot, ids in zip(slots, prompts, strict=True)]
    for _ in range(count - 1):
        logits = runner.decode(slots, [answer[-1] for answer in answers])
        assert logits.shape == (len(slots), runner.vocab_size)
        for answer, token in zip(answers, logits.argmax(-1).tolist(), strict=True):
            answer.append(token)
    return answers


def same_tokens(engine: str, found: object, wanted: object) -> None:
    assert found == wanted, f"engine {engine} gave other tokens"


class RunnerContract:
    """Derive, set ``engine`` and ``model_types``, and give ``make`` a body."""

    engine: ClassVar[str]
    model_types: ClassVar[Sequence[str]]

    @staticmethod
    def make(loaded: LoadedModel, slots: int, ctx: int) -> Runner:
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "model_type" in metafunc.fixturenames:
            metafunc.parametrize("model_type", slow_but(QUICK, self.model_types))

    @pytest.fixture
    def runner(self, model_type: str) -> Runner:
        return self.make(shared_model(model_type), SLOTS, CTX)

    def test_starts_empty_and_counts_its_memory(self, runner: Runner) -> None:
        assert [runner.length(slot) for slot in range(SLOTS)] == [0] * SLOTS
        assert (runner.slots, runner.ctx, runner.vocab_size) == (SLOTS, CTX, VOCAB)
        assert runner.weight_bytes > 0
        assert runner.kv_bytes > 0

    def test_length_follows_prefill_and_decode(self, runner: Runner) -> None:
        runner.prefill(2, prompt(7), logits=False)
        runner.prefill(2, prompt(3), logits=True)
        runner.decode([2], [5])
        assert runner.length(2) == 11
        assert runner.length(1) == 0

    def test_logits_belong_to_the_caller(self, runner: Runner) -> None:
        first = runner.prefill(0, prompt(7), logits=True)
        assert first is not None
        kept = first.clone()
        second = runner.decode([0], [5])
        assert torch.equal(first, kept)
        first -= 1
        second[0, 3] = float("-inf")

    def test_a_slot_to_the_brim(self, runner: Runner) -> None:
        ids = prompt(CTX)
        whole = read(runner, 0, ids, CTX)
        runner.prefill(3, ids[:-1], logits=False)
        last = runner.decode([3], ids[-1:])
        same_tokens(self.engine, int(last.argmax()), whole)
        assert runner.length(0) == runner.length(3) == CTX

    def test_reset_forgets(self, runner: Runner) -> None:
        fresh = greedy(runner, [prompt(9)], [1], 8)
        greedy(runner, [prompt(30, seed=2)], [1], 8)
        runner.reset(1)
        assert runner.length(1) == 0
        same_tokens(self.engine, greedy(runner, [prompt(9)], [1], 8), fresh)

    def test_copy_is_exact_and_apart(self, runner: Runner) -> None:
        first = read(runner, 4, prompt(20))
        runner.copy(4, 0)
        assert runner.length(0) == 20
        both = runner.decode([4], [first]), runner.decode([0], [first])
        assert torch.equal(*both)
        # Each goes its own way from here; writing to one must not reach the other.
        runner.decode([4], [9])
        runner.reset(4)
        read(runner, 4, prompt(40, seed=3))
        runner.copy(0, 5)
        again = runner.decode([0], [11]), runner.decode([5], [11])
        assert torch.equal(*again)

    def test_copy_over_a_longer_sequence(self, runner: Runner) -> None:
        read(runner, 0, prompt(50, seed=4))
        token = read(runner, 1, prompt(12))
        runner.copy(1, 0)
        assert runner.length(0) == 12
        assert torch.equal(runner.decode([0], [token]), runner.decode([1], [token]))

    def test_export_and_restore_are_exact(self, runner: Runner) -> None:
        token = read(runner, 3, prompt(25))
        state = runner.export(3)
        expected = runner.decode([3], [token])
        for slot in range(SLOTS):
            runner.reset(slot)
            read(runner, slot, prompt(31, seed=slot + 5))
        runner.restore(2, [state])
        assert runner.length(2) == 25
        assert torch.equal(runner.decode([2], [token]), expected)
        # The export is its own: decoding into the slot did not change it.
        runner.restore(5, [state])
        assert torch.equal(runner.decode([5], [token]), expected)

    def test_an_export_is_as_large_as_its_tokens(self, runner: Runner) -> None:
        read(runner, 0, prompt(10))
        read(runner, 1, prompt(80))
        small, large = runner.export(0).nbytes, runner.export(1).nbytes
        assert 0 < small <= large
        assert large * SLOTS <= runner.kv_bytes

    def test_sizes_are_known_beforehand(self, runner: Runner) -> None:
        each = (runner.kv_bytes // SLOTS - runner.snapshot_bytes) / CTX
        assert (runner.snapshot_bytes > 0) == runner.recurrent
        for slot, length in enumerate((1, 10, 80)):
            read(runner, slot, prompt(length))
            assert runner.snapshot(slot).nbytes == runner.snapshot_bytes
            assert runner.export(slot).nbytes == runner.snapshot_bytes + each * length

    @pytest.mark.parametrize("way", ["rewind", "copy", "restore"])
    def test_a_beginning_is_taken_up_again_exactly(self, runner: Runner, way: str) -> None:
        ids, other = prompt(50), prompt(20, seed=7)
        for slot in (0, 1):
            runner.prefill(slot, ids[:30], logits=False)
        snapshot = runner.snapshot(0)
        runner.prefill(0, ids[30:], logits=False)
        runner.decode([0], [9])
        read(runner, 2, prompt(70, seed=8))
        target = 0 if way == "rewind" else 2
        if way == "rewind":
            runner.rewind(0, 30, snapshot)
        elif way == "copy":
            runner.copy(0, 2, 30, snapshot)
        else:
            runner.restore(2, [runner.export(0)], 30, snapshot)
        assert runner.length(target) == 30
        pieces = [runner.prefill(slot, other, logits=True) for slot in (1, target)]
        assert pieces[0] is not None and pieces[1] is not None
        assert torch.equal(*pieces)
        assert torch.equal(runner.decode([1], [4]), runner.decode([target], [4]))
        # The snapshot is its own: what came behind did not change it.
        runner.rewind(target, 30, snapshot)
        runner.rewind(1, 30, snapshot)
        assert torch.equal(runner.decode([1], [4]), runner.decode([target], [4]))

    def test_a_state_is_cut_at_its_snapshot_only(self, runner: Runner) -> None:
        read(runner, 0, prompt(20))
        state, snapshot = runner.export(0), runner.snapshot(0)
        before = runner.decode([0], [7])
        for cut in (
            lambda length: runner.copy(0, 1, length, snapshot),
            lambda length: runner.restore(1, [state], length, snapshot),
            lambda length: runner.rewind(0, length, snapshot),
        ):
            for length in (0, 22):
                with pytest.raises(ValueError, match="cut"):
                    cut(length)
        if runner.recurrent:
            for alone in (lambda: runner.copy(0, 1, 20), lambda: runner.restore(1, [state], 19)):
                with pytest.raises(ValueError, match="snapshot"):
                    alone()
        assert (runner.length(0), runner.length(1)) == (21, 0)
        runner.rewind(0, 20, snapshot)
        assert torch.equal(runner.decode([0], [7]), before)

    def test_a_tail_goes_behind_what_a_slot_or_a_state_holds(self, runner: Runner) -> None:
        ids = prompt(40)
        token = read(runner, 0, ids)
        head, tail = runner.export(0), runner.export(0, 25)
        assert (head.start, tail.start) == (0, 25)
        each = (runner.kv_bytes // SLOTS - runner.snapshot_bytes) / CTX
        assert tail.nbytes == runner.snapshot_bytes + each * 15
        wanted = runner.decode([0], [token])
        for slot in (1, 2, 3):
            read(runner, slot, prompt(33, seed=slot + 5))
        runner.restore(1, [tail], source=0, kept=25)
        runner.restore(2, [head, tail])
        runner.restore(3, [head])
        runner.restore(3, [tail], source=3, kept=30)
        for slot in (1, 2, 3):
            assert runner.length(slot) == 40
            assert torch.equal(runner.decode([slot], [token]), wanted)
        with pytest.raises(ValueError, match="behind"):
            runner.restore(1, [tail], source=1, kept=24)
        with pytest.raises(ValueError, match="not 50"):
            runner.restore(1, [tail], source=1, kept=50)
        with pytest.raises(ValueError, match="none from 50"):
            runner.export(1, 50)

    def test_restore_of_an_empty_slot(self, runner: Runner) -> None:
        state = runner.export(0)
        read(runner, 1, prompt(10))
        runner.restore(1, [state])
        assert runner.length(1) == 0
        assert read(runner, 1, prompt(6)) == read(runner, 0, prompt(6))

    def test_truncate(self, runner: Runner) -> None:
        ids = prompt(30)
        read(runner, 0, ids)
        assert runner.truncate(0, 30)
        assert runner.length(0) == 30
        if runner.truncate(0, 12):
            assert runner.length(0) == 12
            read(runner, 1, ids[:12])
            # Not to the bit: 30 tokens and 12 were multiplied in matrices of different sizes.
            torch.testing.assert_close(runner.decode([0], [7]), runner.decode([1], [7]), rtol=1e-4, atol=1e-4)
        else:
            assert runner.length(0) == 30
            runner.copy(0, 1)
            assert torch.equal(runner.decode([0], [7]), runner.decode([1], [7]))
        assert runner.truncate(0, 0)
        assert runner.length(0) == 0
        assert read(runner, 0, ids) == read(runner, 2, ids)

    def test_rows_do_not_see_each_other(self, runner: Runner) -> None:
        prompts = [prompt(5), prompt(33), prompt(18), prompt(70)]
        alone = [
            greedy(runner, [ids], [slot], 10)[0] for slot, ids in zip([3, 0, 5, 1], prompts, strict=True)
        ]
        together = greedy(runner, prompts, [3, 0, 5, 1], 10)
        same_tokens(self.engine, together, alone)

    def test_rows_in_any_order(self, runner: Runner) -> None:
        prompts = {slot: prompt(10 + slot) for slot in range(4)}
        forwards = greedy(runner, [prompts[s] for s in (0, 1, 2, 3)], (0, 1, 2, 3), 6)
        backwards = greedy(runner, [prompts[s] for s in (3, 2, 1, 0)], (3, 2, 1, 0), 6)
        same_tokens(self.engine, backwards[::-1], forwards)

    @pytest.mark.parametrize("seed", [1, 2])
    def test_a_random_walk(self, runner: Runner, seed: int) -> None:
        """Whatever was done to it, a slot answers as one that read its tokens at once."""
        draw = random.Random(seed)
        spare = SLOTS - 1
        held: dict[int, list[int]] = {slot: [] for slot in range(spare)}
        kept: list[tuple[list[int], Any]] = []
        for _ in range(60):
            slot, other = draw.sample(sorted(held), 2)
            act = draw.choice(
                ["read", "read", "decode", "decode", "copy", "cut", "reset", "export", "resume"]
            )
            if act == "read" and len(held[slot]) < CTX - 20:
                ids = [draw.randrange(3, VOCAB) for _ in range(draw.randint(1, 20))]
                runner.prefill(slot, ids, logits=False)
                held[slot] += ids
            elif act == "copy":
                runner.copy(slot, other)
                held[other] = list(held[slot])
            elif act == "cut" and runner.truncate(slot, len(held[slot]) // 2):
                held[slot] = held[slot][: len(held[slot]) // 2]
            elif act == "reset":
                runner.reset(slot)
                held[slot] = []
            elif act == "export":
                runner.restore(other, [runner.export(slot)])
                held[other] = list(held[slot])
            elif act == "resume":
                if held[slot]:
                    kept.append((list(held[slot]), runner.snapshot(slot)))
                for ids, snapshot in kept:
                    if held[other][: len(ids)] == ids and len(ids) < len(held[other]):
                        runner.copy(other, slot, len(ids), snapshot)
                        held[slot] = list(ids)
            elif act == "decode":
                rows = [row for row in (other, slot) if 0 < len(held[row]) < CTX]
                ids = [draw.randrange(3, VOCAB) for _ in rows]
                if rows:
                    logits = runner.decode(rows, ids)
                for index, row in enumerate(rows):
                    held[row].append(ids[index])
                    runner.reset(spare)
                    whole = runner.prefill(spare, held[row], logits=True)
                    torch.testing.assert_close(logits[index], whole, rtol=1e-3, atol=2e-3)
        assert [runner.length(slot) for slot in held] == [len(ids) for ids in held.values()]

    @pytest.mark.parametrize(
        ("break_it", "words"),
        [
            (lambda r: r.prefill(0, [], logits=True), "[Tt]oken"),
            (lambda r: r.prefill(0, [VOCAB], logits=True), "[Tt]oken"),
            (lambda r: r.prefill(0, [-1], logits=True), "[Tt]oken"),
            (lambda r: r.prefill(0, [3] * (CTX - 7), logits=True), "room"),
            (lambda r: r.prefill(SLOTS, [3], logits=True), "slot"),
            (lambda r: r.prefill(-1, [3], logits=True), "slot"),
            (lambda r: r.decode([], []), "slot"),
            (lambda r: r.decode([0, 0], [3, 3]), "distinct"),
            (lambda r: r.decode([0, 1], [3]), "token"),
            (lambda r: r.decode([0, 2], [3, 3]), "[Ss]lot 2"),
            (lambda r: r.decode([0, 1], [3, VOCAB]), "[Tt]oken"),
            (lambda r: r.truncate(0, 9), "cut"),
            (lambda r: r.truncate(0, -1), "cut"),
            (lambda r: r.copy(0, SLOTS), "slot"),
            (lambda r: r.export(-1), "slot"),
            (lambda r: r.snapshot(2), "[Ss]lot 2"),
        ],
    )
    def test_bounds_are_checked_before_any_state_is_touched(
        self, runner: Runner, break_it: Callable[[Runner], object], words: str
    ) -> None:
        read(runner, 0, prompt(8))
        read(runner, 1, prompt(9))
        runner.copy(0, 3)
        with pytest.raises(ValueError, match=words):
            break_it(runner)
        assert [runner.length(slot) for slot in (0, 1, 2)] == [8, 9, 0]
        assert torch.equal(runner.decode([0], [3]), runner.decode([3], [3]))

    def test_a_full_slot_takes_no_more(self, runner: Runner) -> None:
        read(runner, 0, prompt(CTX))
        with pytest.raises(ValueError, match=str(CTX)):
            runner.decode([0], [3])
        assert runner.length(0) == CTX

    def test_restore_refuses_a_state_too_long(self, model_type: str) -> None:
        large, small = (self.make(shared_model(model_type), 2, ctx) for ctx in (64, 32))
        read(large, 0, prompt(40))
        state = large.export(0)
        with pytest.raises(ValueError, match="state"):
            small.restore(0, [state])
        assert small.length(0) == 0
