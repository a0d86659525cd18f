"""What a model takes in memory is what was planned and what its card says, in float32 and in bfloat16."""

import asyncio
from pathlib import Path
from typing import Literal

import psutil
import pytest
import torch

from mashbox.engine.events import Finished
from mashbox.engine.gguf_tokenizer import write_tokenizer
from mashbox.engine.local import EngineSettings, LocalEngine
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.engine.wire import Start
from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.runner import Runner
from mashbox.facts import read_facts
from mashbox.memory import MemoryPlan, plan_memory
from mashbox.store import LocalModel
from tests.engine.worker.contract import greedy, prompt
from tests.engine.worker.load.gguf_writer import write_gguf
from tests.engine.worker.load.test_safetensors import save
from tests.engine.worker.tiny import tiny_model

MARGIN = 32 << 20
"""Bytes that a worker may take beyond the plan: what the allocator and the system keep for themselves."""

DTYPE_BYTES = {"f32": 4, "bf16": 2}


def format_of(path: Path) -> Literal["gguf", "safetensors"]:
    return "gguf" if path.suffix == ".gguf" else "safetensors"


def built(path: Path, weights: str) -> Runner:
    start = Start(
        model=str(path), format=format_of(path), ctx=64, slots=3, weights=weights, engine="exact", threads=1
    )
    return build_runner(start, lambda *_: None)[0]


@pytest.mark.parametrize("format_", ["gguf", "safetensors"])
@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe"])
def test_bfloat16_halves_weights_keys_and_values(tmp_path: Path, model_type: str, format_: str) -> None:
    if format_ == "gguf":
        path = tmp_path / "tiny.gguf"
        saved = tiny_model(model_type)
        write_gguf(path, saved.module, saved.config)
    else:
        path = tmp_path
        saved = save(path, model_type)
    whole, half = built(path, "f32"), built(path, "bf16")
    assert whole.weight_bytes == saved.weight_bytes
    # The rotary frequencies stay float32.
    frequencies = sum(b.numel() * 4 for name, b in saved.module.named_buffers() if "inv_freq" in name)
    assert half.weight_bytes == (saved.weight_bytes - frequencies) // 2 + frequencies
    facts = read_facts(path, format_of(path))
    for runner, weights in ((whole, "f32"), (half, "bf16")):
        assert runner.kv_bytes == plan_memory(facts, 64, 3, DTYPE_BYTES[weights]).kv
    wanted, found = (run.prefill(0, prompt(40), logits=True) for run in (whole, half))
    assert wanted is not None and found is not None
    assert float((wanted - found).abs().max()) < 0.2 * float(wanted.abs().max())
    assert not torch.equal(wanted, found)
    assert len(greedy(half, [prompt(9), prompt(20)], [1, 2], 8)[1]) == 8


def worker_peak(pid: int) -> int:
    """Bytes that a process has held at most; where the system doesn't tell, what it holds now."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return int(psutil.Process(pid).memory_info().rss)
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


async def fill(engine: LocalEngine, plan: MemoryPlan, vocab: int) -> None:
    """Every slot at once, to its last token."""

    async def one(number: int) -> None:
        ids = [(number * 7919 + place * 31) % vocab for place in range(plan.ctx - 24)]
        asked = Request(id=str(number), prompt="", ignore_end=True)
        events = [event async for event in engine.generate(asked, EncodedPrompt(ids=ids))]
        end = events[-1]
        assert isinstance(end, Finished)
        assert (end.reason, end.usage.prompt_tokens, end.usage.completion_tokens) == ("length", len(ids), 24)

    await asyncio.gather(*(one(number) for number in range(plan.slots)))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize(
    ("weights", "ctx", "slots", "gb"), [("f32", 1024, 4, 0.538), ("bf16", 512, 2, 0.269)]
)
def test_full_slots_stay_within_the_plan(
    starter_gguf: Path, tmp_path: Path, weights: str, ctx: int, slots: int, gb: float
) -> None:
    write_tokenizer(starter_gguf, tmp_path)
    model = LocalModel(
        id="starter",
        format="gguf",
        weights=starter_gguf,
        files=[],
        tokenizer=tmp_path,
        spec=None,
        source="-",
    )
    facts = read_facts(starter_gguf, "gguf")
    plan = plan_memory(facts, ctx, slots, DTYPE_BYTES[weights])
    settings = EngineSettings(ctx=ctx, slots=slots, weights=weights, engine="exact")

    async def go() -> None:
        engine = LocalEngine(model, facts, settings)
        await engine.start()
        try:
            await asyncio.wait_for(engine.wait_ready(), 120)
            card, pid = engine.card, engine.status().worker_pid
            assert (card.weights, card.gb, card.bpw) == (starter_gguf.name, gb, 5.74)
            assert pid
            await fill(engine, plan, facts.vocab)
            peak = worker_peak(pid)
            assert plan.weights + plan.kv < peak <= plan.total + MARGIN
            assert engine.status().worker_restarts == 0
        finally:
            await engine.stop()

    asyncio.run(go())


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is not of a file")
def test_the_fast_engine_stays_within_its_plan(starter_gguf: Path, tmp_path: Path) -> None:
    write_tokenizer(starter_gguf, tmp_path)
    model = LocalModel(
        id="starter",
        format="gguf",
        weights=starter_gguf,
        files=[],
        tokenizer=tmp_path,
        spec=None,
        source="-",
    )
    facts = read_facts(starter_gguf, "gguf")
    plan = plan_memory(facts, 2048, 3, 2, packed=facts.packed["auto"])

    async def go() -> None:
        engine = LocalEngine(model, facts, EngineSettings(ctx=2048, slots=3, engine="fast"))
        await engine.start()
        try:
            await asyncio.wait_for(engine.wait_ready(), 120)
            assert engine.status().engine == "fast"
            await fill(engine, plan, facts.vocab)
            lines = Path(f"/proc/{engine.status().worker_pid}/status").read_text().splitlines()
            # Not the file's pages, which the system takes back when it needs them.
            (own,) = (int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
            assert plan.weights + plan.kv < own <= plan.total
        finally:
            await engine.stop()

    asyncio.run(go())
