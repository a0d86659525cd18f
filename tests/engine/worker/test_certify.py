"""The gate passes engines that compute what transformers does, and no others."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from mashbox.engine.certificates import Report
from mashbox.engine.wire import Start
from mashbox.engine.worker import certify as gate
from mashbox.engine.worker.certify import Job, bounds_of, certify, compare
from mashbox.engine.worker.exact import ExactRunner
from mashbox.errors import UsageError, WorkerFault
from tests.engine.worker.contract import prompt
from tests.engine.worker.load.test_safetensors import save
from tests.engine.worker.tiny import VOCAB

NAMES = ["alone", "from the cache", "together"]


def run(folder: Path, *, weights: str = "auto", slots: int = 2, ctx: int = 256) -> Report:
    start = Start(
        model=str(folder),
        format="safetensors",
        engine="exact",
        ctx=ctx,
        slots=slots,
        weights=weights,
        threads=1,
    )
    prompts = [prompt(1), prompt(9, seed=1), prompt(40, seed=2)]
    return certify(Job(start=start, prompts=prompts, text=prompt(400, seed=3)), lambda *_: None)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    save(folder, "llama")
    return folder


@pytest.mark.parametrize(
    "model_type",
    [
        "llama",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("gemma3_text", "qwen3_moe", "qwen3_5_text", "mamba2")
        ),
    ],
)
def test_the_exact_engine_passes(tmp_path: Path, model_type: str) -> None:
    save(tmp_path, model_type)
    report = run(tmp_path)
    assert report.passed, report
    assert (report.engine, report.architecture, report.compiles_after_ready) == ("exact", model_type, 0)
    assert [check.name for check in report.checks] == NAMES
    for check in report.checks:
        assert (check.requests, check.tokens) == (4, 4 * gate.NEW_TOKENS)
        assert 0 <= check.kl_mean <= check.kl_max <= report.bounds.kl_max
        assert (check.cached > 0) == (check.name == "from the cache")


@pytest.mark.slow
def test_one_slot_and_more_slots_than_prompts(llama: Path) -> None:
    assert run(llama, slots=1).passed
    assert run(llama, slots=6).passed


@pytest.mark.slow
def test_a_message_goes_through_json(llama: Path) -> None:
    report = run(llama)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


@pytest.mark.slow
def test_bfloat16_is_held_to_wider_bounds(llama: Path) -> None:
    exact, rounded = run(llama), run(llama, weights="bf16")
    assert rounded.bounds.kl_max > exact.bounds.kl_max
    assert rounded.checks[0].kl_mean > 100 * exact.checks[0].kl_mean


def test_every_kind_of_rounding_has_its_bounds() -> None:
    exact, rounded = bounds_of("exact", "f32", 16), bounds_of("exact", "bf16", 16)
    fast, narrow = bounds_of("fast", "auto", 16), bounds_of("fast", "auto", 8)
    assert bounds_of("exact", "auto", 16) == exact and narrow == rounded
    assert exact.kl_max < fast.kl_max < rounded.kl_max
    assert exact.other_tokens == fast.other_tokens == 0


@pytest.mark.slow
def test_a_short_context_is_refused(llama: Path) -> None:
    with pytest.raises(UsageError, match="--ctx 128"):
        run(llama, ctx=127)
    assert run(llama, ctx=128).passed


def _off(rows: torch.Tensor) -> torch.Tensor:
    return rows + torch.linspace(0, 0.1, rows.shape[-1])


def _swapped(rows: torch.Tensor) -> torch.Tensor:
    return rows.roll(1, -1)


def _nan(rows: torch.Tensor) -> torch.Tensor:
    return rows * torch.nan


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [_off, _swapped])
def test_a_wrong_engine_fails(
    llama: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    right: Any = ExactRunner.decode
    monkeypatch.setattr(ExactRunner, "decode", lambda *args: wrong(right(*args)))
    report = run(llama)
    assert not report.passed
    assert not any(check.passed for check in report.checks)


@pytest.mark.slow
def test_an_engine_that_gives_nan_can_not_be_certified(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right: Any = ExactRunner.decode
    monkeypatch.setattr(ExactRunner, "decode", lambda *args: _nan(right(*args)))
    with pytest.raises(WorkerFault, match="NaN"):
        run(llama)


@pytest.mark.slow
def test_a_broken_prompt_cache_fails_its_own_check(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right: Any = ExactRunner.prefill

    def forgetful(self: ExactRunner, slot: int, ids: Sequence[int], *, logits: bool) -> torch.Tensor | None:
        # Alone, these prompts are read in one piece: what a slot holds before came from the cache.
        if self.length(slot):
            self.reset(slot)
        rows: torch.Tensor | None = right(self, slot, ids, logits=logits)
        return rows

    monkeypatch.setattr(ExactRunner, "prefill", forgetful)
    checks = {check.name: check.passed for check in run(llama).checks}
    assert checks["alone"] and not checks["from the cache"]


@pytest.mark.slow
def test_something_compiled_while_the_prompts_run_fails(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 4])
    monkeypatch.setattr(gate, "programs_made", lambda: next(counts))
    report = run(llama)
    assert report.compiles_after_ready == 1 and not report.passed
    assert all(check.passed for check in report.checks)


def test_divergence_and_ties_in_nats() -> None:
    wanted = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]).log()
    found = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]).log()
    kl, gap = compare(wanted, found + 3.0, [0, 1])
    expected = 0.5 * torch.tensor(2.0).log().item() - 0.25 * torch.tensor(2.0).log().item()
    assert kl.tolist() == pytest.approx([0.0, expected], abs=1e-7)
    assert gap.tolist() == pytest.approx([0.0, torch.tensor(2.0).log().item()], abs=1e-7)


def test_tokens_that_can_not_come_add_nothing_and_nan_does_not_pass() -> None:
    never = torch.tensor([[0.0, -torch.inf]])
    assert compare(never, torch.tensor([[0.0, -torch.inf]]), [0])[0].tolist() == [0.0]
    assert compare(torch.zeros(1, VOCAB), torch.full((1, VOCAB), torch.nan), [0])[0].tolist() != [0.0]
