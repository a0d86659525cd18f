"""What health says of a mixture of experts is counted in the module itself, and reaches health."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.experts import routed_experts
from mashbox.engine.worker.load.model import LoadedModel, build_empty, fill
from tests.engine.worker.tiny import SPECIAL, random_weights, tiny_config
from tests.engine.worker.tiny_engine import tiny_engine

# Layers of the four with experts: some types begin with dense ones, hybrids have them in some layers.
SITES = {
    "qwen3_moe": 4,
    "granitemoeshared": 4,
    "gpt_oss": 4,
    "deepseek_v3": 3,
    "lfm2_moe": 3,
    "nemotron_h": 1,
    "llama": 0,
    "qwen3_5_text": 0,
}


@pytest.mark.parametrize("model_type", SITES)
def test_every_layer_with_experts_is_a_site(model_type: str) -> None:
    report = routed_experts(build_empty(tiny_config(model_type), torch.float32))
    sites = SITES[model_type]
    if not sites:
        assert report is None
        return
    assert report is not None
    assert (report["path"], report["kernel"]) == ("exact", None)
    assert report["sites"] == {"kernel": 0, "exact": sites}
    assert len(report["exact_why"]) == 1 and "transformers" in report["exact_why"][0]


EXPERTS, CHOSEN = 8, 2
COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
MIXTURES = sorted(name for name, fields in SPECIAL.items() if any(count in fields for count in COUNTS))


@pytest.mark.parametrize("model_type", MIXTURES)
def test_only_the_chosen_experts_are_read(model_type: str) -> None:
    """NaN in the weights of one expert shows in a token's logits if they take part in anything."""
    config = tiny_config(model_type, **dict.fromkeys(COUNTS, EXPERTS))
    module = build_empty(config, torch.float32)
    size = fill(module, random_weights(module, 0).items(), torch.float32)
    runner = ExactRunner(LoadedModel(module, config, model_type, size, torch.float32), slots=1, ctx=32)

    def broken() -> bool:
        runner.reset(0)
        logits = runner.prefill(0, [7], logits=True)
        return logits is None or bool(logits.isnan().any())

    assert not broken()
    weights = experts_of(module)
    assert sum(with_nan(weights, number, broken) for number in range(EXPERTS)) == CHOSEN


def experts_of(module: nn.Module) -> list[torch.Tensor]:
    """Of the last layer that has any: the parameters that hold all of its experts, one behind the other."""
    found: dict[str, list[torch.Tensor]] = {}
    for name, weight in module.named_parameters():
        if weight.ndim == 3 and len(weight) == EXPERTS:
            found.setdefault(name.rpartition(".")[0].partition("experts")[0], []).append(weight.data)
    return list(found.values())[-1]


def with_nan(weights: list[torch.Tensor], number: int, broken: Callable[[], bool]) -> bool:
    kept = [weight[number].clone() for weight in weights]
    for weight in weights:
        weight[number] = float("nan")
    try:
        return broken()
    finally:
        for weight, value in zip(weights, kept, strict=True):
            weight[number] = value


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "sites"), [("qwen3_moe", 4), ("llama", 0)])
def test_a_real_worker_tells_it(tmp_path: Path, model_type: str, sites: int) -> None:
    async def go() -> None:
        async with tiny_engine(tmp_path, model_type) as engine:
            report = engine.status().routed_experts
            assert (report["sites"]["exact"] if report else 0) == sites

    asyncio.run(go())
