"""The fast runner: the contract, the exact runner's logits on the same weights, and equality to the bit."""

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from mashbox.engine.worker.cache import SlotCache
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.fast import BLOCK, FastRunner
from mashbox.engine.worker.kernels.cpu import Instructions, instructions_here
from mashbox.engine.worker.kernels.decoder import Decoder
from mashbox.engine.worker.load.model import LoadedModel, build_empty, fill
from mashbox.engine.worker.load.rotary import rotary_tables
from mashbox.engine.worker.load.shapes import Shape
from tests.engine.worker.contract import CTX, SLOTS, RunnerContract, prompt, shared_model
from tests.engine.worker.kernels.packing import decoder_of, rounded
from tests.engine.worker.kernels.tensors import TensorRunner
from tests.engine.worker.tiny import VOCAB

TOLERANCE = 2e-3
"""Largest difference of logits, as a share of the largest: wide weights amplify a flipped rounding."""


@functools.cache
def decoder(model_type: str = "llama") -> tuple[Decoder, Shape]:
    return decoder_of(shared_model(model_type))


def fast(
    model_type: str = "llama",
    *,
    slots: int = SLOTS,
    ctx: int = CTX,
    threads: int = 1,
    **how: Any,
) -> FastRunner:
    packed, shape = decoder(model_type)
    return TensorRunner(packed, rotary_tables(shape, ctx), slots=slots, ctx=ctx, threads=threads, **how)


class TestContract(RunnerContract):
    engine: ClassVar[str] = "fast"
    model_types: ClassVar[Sequence[str]] = ["llama", "gemma3_text", "olmo2", "phi3"]

    @staticmethod
    def make(loaded: LoadedModel, slots: int, ctx: int) -> FastRunner:
        return fast(str(loaded.config.model_type), slots=slots, ctx=ctx)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact runner rounds keys and values to half precision as well."""
    update = SlotCache.update

    def rounding(self: SlotCache, keys: Tensor, values: Tensor, *args: Any, **rest: Any) -> Any:
        return update(self, keys.half().float(), values.half().float(), *args, **rest)

    monkeypatch.setattr(SlotCache, "update", rounding)


def round_inputs(module: nn.Module, narrow: bool) -> None:
    """Let a module's products round their inputs as the kernels do: to 16 or 8 bits in groups of 32."""
    top = 127 if narrow else 32767

    def rounding(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        groups = inputs[0].unflatten(-1, (-1, 32))
        scale = groups.abs().amax(-1, keepdim=True) / top
        return (((groups / scale).round() * scale).flatten(-2),)

    for child in module.modules():
        if isinstance(child, nn.Linear):
            child.register_forward_pre_hook(rounding)


@pytest.fixture(params=[False, True], ids=["16-bit", "8-bit"])
def narrow(request: pytest.FixtureRequest) -> bool:
    """Whether activations are rounded to 8 bits."""
    return bool(request.param)


@pytest.mark.parametrize("instructions", Instructions, ids=lambda one: one.name.lower())
def test_logits_are_those_of_the_exact_runner(instructions: Instructions, narrow: bool, halves: None) -> None:
    if instructions not in instructions_here():
        pytest.skip("this processor lacks the instruction set")
    loaded = shared_model("llama")
    module = build_empty(loaded.config, torch.float32)
    weights = rounded(loaded)
    weights.pop("lm_head.weight")  # tied
    size = fill(module, weights.items(), torch.float32)
    round_inputs(module, narrow)
    exact = ExactRunner(LoadedModel(module, loaded.config, "llama", size, torch.float32), slots=1, ctx=CTX)
    runner = fast(slots=1, instructions=instructions, narrow=narrow)
    # A rounding that flips is 256 times as large.
    tolerance = TOLERANCE * (20 if narrow else 1)
    for seed in range(4):
        # The longer ones end in the second span of positions.
        ids = prompt(30 if seed % 2 else 150, seed=seed)
        for each in (exact, runner):
            each.reset(0)
        wanted, found = (r.prefill(0, ids, logits=True) for r in (exact, runner))
        assert wanted is not None and found is not None
        torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))
        wanted, found = (r.decode([0], [5])[0] for r in (exact, runner))
        torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


def test_any_cut_into_pieces_gives_the_same_bits(narrow: bool) -> None:
    ids = prompt(150)
    assert len(ids) > 2 * BLOCK
    runner = fast(narrow=narrow)
    whole = runner.prefill(0, ids, logits=True)
    after = runner.decode([0], [9])
    for sizes in ([1] * 150, [7] * 21 + [3], [64, 1, 63, 22], [149, 1]):
        runner.reset(3)
        first = 0
        for size in sizes:
            found = runner.prefill(3, ids[first : first + size], logits=True)
            first += size
        assert found is not None and whole is not None
        assert torch.equal(found, whole)
        assert torch.equal(runner.decode([3], [9]), after)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_a_long_context_gives_the_same_bits_in_any_pieces(model_type: str) -> None:
    """Pieces of at most 16 rows have their spans computed apart, longer ones one after the other."""
    ids = prompt(391)
    found = []
    for threads, sizes in ((1, [64] * 6 + [7]), (3, [16] * 24 + [7]), (2, [120, 1, 140, 5, 125])):
        runner = fast(model_type, slots=1, ctx=400, threads=threads)
        first = 0
        for size in sizes:
            logits = runner.prefill(0, ids[first : first + size], logits=True)
            first += size
        assert first == len(ids) and logits is not None
        found.append(torch.cat([logits, runner.decode([0], [9])[0]]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_trace_is_of_16_bits_whatever_the_steps_are(narrow: bool) -> None:
    ids = prompt(20)
    runner = fast(narrow=narrow)
    before = runner.prefill(0, ids, logits=True)
    runner.reset(0)
    states, logits = runner.trace(0, ids)
    usual = fast().trace(0, ids)
    assert torch.equal(states, usual[0]) and torch.equal(logits, usual[1])
    assert torch.equal(logits, before) is not narrow
    assert torch.equal(runner.prefill(0, ids, logits=True), before)


def test_any_batch_and_any_threads_give_the_same_bits(narrow: bool) -> None:
    lengths = {slot: 3 + 29 * slot for slot in range(5)}
    alone = {}
    single = fast(slots=1, narrow=narrow)
    for slot, length in lengths.items():
        single.reset(0)
        single.prefill(0, prompt(length), logits=False)
        alone[slot] = torch.cat([single.decode([0], [token]) for token in (4, 90, 17)])
    for threads in (1, 2, 3):
        for rows in ([2], [0, 1], [4, 3, 0], [1, 2, 3, 4], [4, 0, 2, 1, 3]):
            runner = fast(threads=threads, narrow=narrow)
            for slot in rows:
                runner.prefill(slot, prompt(lengths[slot]), logits=False)
            steps = [runner.decode(rows, [token] * len(rows)) for token in (4, 90, 17)]
            for index, slot in enumerate(rows):
                assert torch.equal(torch.stack([step[index] for step in steps]), alone[slot])


def test_not_a_number_stays_in_its_slot_and_shows() -> None:
    runner = fast()
    for slot in (0, 1, 2):
        runner.prefill(slot, prompt(20), logits=False)
    clean = runner.decode([0], [5])
    keys = runner._cache.tiles(1)
    keys[1, 0, 0, 3, 7] = float("nan")
    found = runner.decode([1, 2], [5, 5])
    assert found[0].isnan().any()
    assert torch.equal(found[1], clean[0])


def test_memory_is_counted() -> None:
    runner = fast(slots=3, ctx=100)
    # 4 layers, keys and values, 2 heads of 16, half precision; the context in whole tiles of 8.
    assert runner.kv_bytes == 3 * 104 * 4 * 2 * 2 * 16 * 2
    matrices = 4 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64) + VOCAB * 64
    assert runner.weight_bytes == matrices * 34 // 32 + 9 * 64 * 4
    with pytest.raises(ValueError, match="slots"):
        fast(slots=0)


def test_a_run_gives_the_bits_of_one_token_after_the_other() -> None:
    one, many = fast(), fast()
    prompts, runs = [prompt(9), prompt(70)], [[5, 6, 7, 8], [9]]
    for runner in (one, many):
        for slot, ids in enumerate(prompts):
            runner.prefill(slot, ids, logits=False)
    together = many.decode_runs([0, 1], runs)
    alone = [one.decode([0], [token])[0] for token in runs[0]] + [one.decode([1], runs[1])[0]]
    assert torch.equal(together, torch.stack(alone))
    # What was guessed wrong is cut off, and the slot goes on as if it had never been there.
    assert many.truncate(0, 10) and one.truncate(0, 10)
    assert torch.equal(many.decode([0], [3]), one.decode([0], [3]))


def test_runs_are_checked_before_any_state_is_touched() -> None:
    runner = fast()
    runner.prefill(0, prompt(CTX - 2), logits=False)
    for slots, runs in (
        ([0], [[3, 3, 3]]),
        ([0], [[]]),
        ([0, 0], [[3], [3]]),
        ([0], [[3, VOCAB]]),
        ([1], [[3]]),
    ):
        with pytest.raises(ValueError):
            runner.decode_runs(slots, runs)
    assert runner.length(0) == CTX - 2
