"""What health says of a mixture of experts is counted in the module itself, and reaches health."""

import asyncio
from pathlib import Path

import pytest
import torch

from mashbox.engine.worker.experts import routed_experts
from mashbox.engine.worker.load.model import build_empty
from tests.engine.worker.tiny import tiny_config
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


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "sites"), [("qwen3_moe", 4), ("llama", 0)])
def test_a_real_worker_tells_it(tmp_path: Path, model_type: str, sites: int) -> None:
    async def go() -> None:
        async with tiny_engine(tmp_path, model_type) as engine:
            report = engine.status().routed_experts
            assert (report["sites"]["exact"] if report else 0) == sites

    asyncio.run(go())
