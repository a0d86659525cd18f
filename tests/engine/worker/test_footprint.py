"""What a model takes in memory is what was planned and what its card says, in float32 and in bfloat16."""

import asyncio
import sys
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
import torch

from mashbox.capacity import SLOTS, choose
from mashbox.engine.events import Finished
from mashbox.engine.gguf_tokenizer import write_tokenizer
from mashbox.engine.local import LocalEngine
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.engine.settings import EngineSettings
from mashbox.engine.wire import Start
from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.load.model import build_empty
from mashbox.engine.worker.load.model import fill as fill_module
from mashbox.engine.worker.runner import Runner
from mashbox.facts import read_facts
from mashbox.memory import MemoryPlan, plan_memory
from mashbox.store import LocalModel
from tests.engine.letters import Letters
from tests.engine.running import running
from tests.engine.worker.contract import greedy, prompt
from tests.engine.worker.load.gguf_writer import write_gguf
from tests.engine.worker.load.test_safetensors import save
from tests.engine.worker.tiny import LAYERS, random_weights, tiny_config, tiny_model

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


def own_bytes(pid: int | None) -> int:
    """Bytes that are of no file: the pages of those the system takes back when it needs them."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def starter(gguf: Path, folder: Path) -> LocalModel:
    """The starter, with its tokenizer in ``folder``."""
    write_tokenizer(gguf, folder)
    return LocalModel(
        id="starter", format="gguf", weights=gguf, files=[], tokenizer=folder, spec=None, source="-"
    )


async def fill(engine: LocalEngine, plan: MemoryPlan, vocab: int) -> None:
    """Every slot at once, to its last token; one prompt is read, the others copy all of it but a tail."""

    async def one(number: int) -> None:
        end = plan.ctx - 24
        ids = [(place * 31 + (number if place > end - 40 else 0)) % vocab for place in range(end)]
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
    model = starter(starter_gguf, tmp_path)
    facts = read_facts(starter_gguf, "gguf")
    plan = plan_memory(facts, ctx, slots, DTYPE_BYTES[weights])
    settings = EngineSettings(ctx=ctx, slots=slots, weights=weights, engine="exact")

    async def go() -> None:
        async with running(LocalEngine(model, facts, settings)) as engine:
            card, pid = engine.card, engine.status().worker_pid
            assert (card.weights, card.gb, card.bpw) == (starter_gguf.name, gb, 5.74)
            assert pid
            await fill(engine, plan, facts.vocab)
            peak = worker_peak(pid)
            assert plan.weights + plan.kv < peak <= plan.total + MARGIN
            assert engine.status().worker_restarts == 0

    asyncio.run(go())


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is not of a file")
def test_the_fast_engine_stays_within_its_plan(starter_gguf: Path, tmp_path: Path) -> None:
    model = starter(starter_gguf, tmp_path)
    facts = read_facts(starter_gguf, "gguf")
    plan = plan_memory(facts, 2048, 3, 2, packed=facts.packed["auto"])

    async def go() -> None:
        async with running(
            LocalEngine(model, facts, EngineSettings(ctx=2048, slots=3, engine="fast"))
        ) as engine:
            assert engine.status().engine == "fast"
            await fill(engine, plan, facts.vocab)
            own = own_bytes(engine.status().worker_pid)
            assert plan.weights + plan.kv < own <= plan.total

    asyncio.run(go())


def wide_model(folder: Path, limit: int) -> LocalModel:
    """Narrow layers with wide keys and values, and windows: many slots' worth of memory, and soon read."""
    config = tiny_config(
        "gemma3_text",
        vocab_size=Letters().size,
        head_dim=64,
        num_key_value_heads=4,
        layer_types=["sliding_attention"] * LAYERS,
        sliding_window=64,
        max_position_embeddings=limit,
    )
    module: Any = build_empty(config, torch.float32)
    fill_module(module, random_weights(module, 0).items(), torch.float32)
    weights = folder / "model"
    module.save_pretrained(weights)
    return LocalModel(
        id="wide",
        format="safetensors",
        weights=weights,
        files=[],
        tokenizer=Letters().save(folder),
        spec=None,
        source="-",
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is not of a file")
@pytest.mark.parametrize("name", ["fast", "exact"])
def test_slots_full_to_the_largest_context_stay_within_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Literal["fast", "exact"]
) -> None:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path / "home"))
    limit = 16_384
    model = wide_model(tmp_path, limit)
    facts = read_facts(model.weights, "safetensors")
    packed = facts.packed["auto"] if name == "fast" else None
    plan = choose(facts, ctx=None, slots=None, available=4 << 30, dtype_bytes=4, packed=packed)
    assert (plan.ctx, plan.slots) == (limit, SLOTS[0])
    assert plan.kv >= 256 << 20

    async def go() -> None:
        settings = EngineSettings(ctx=plan.ctx, slots=plan.slots, engine=name, threads=2)
        async with running(LocalEngine(model, facts, settings)) as engine:
            pid = engine.status().worker_pid
            assert engine.status().engine == name and pid
            await fill(engine, plan, facts.vocab)
            # As elsewhere: the plan for the fast engine leaves out the pages of files.
            held = own_bytes(pid) if name == "fast" else worker_peak(pid) - MARGIN
            assert plan.weights + plan.kv < held <= plan.total
            assert engine.status().worker_restarts == 0

    asyncio.run(go())


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is not of a file")
def test_200_prompts_grow_the_worker_by_the_cap_and_no_more(starter_gguf: Path, tmp_path: Path) -> None:
    """Of the starter's states, 23 MB each; the worker computes one of the 30 layers."""
    cap, prompts, length = 256 << 20, 200, 1000
    worker = (sys.executable, "-m", "tests.engine.worker.shallow_worker")
    settings = EngineSettings(ctx=1024, slots=2, engine="fast", threads=1, cache_ram_mib=cap >> 20)
    facts = read_facts(starter_gguf, "gguf")

    async def go() -> None:
        async with running(LocalEngine(starter(starter_gguf, tmp_path), facts, settings, worker)) as engine:
            pid, before = engine.status().worker_pid, 0
            for number in range(prompts):
                # They differ from the first token on: nothing of one is held for another. Two tokens are
                # asked for, so that what the worker holds is told before the end.
                ids = [(number * 211 + place * 31) % facts.vocab for place in range(length)]
                asked = Request(id=str(number), prompt="", max_tokens=2, ignore_end=True)
                events = [event async for event in engine.generate(asked, EncodedPrompt(ids=ids))]
                end, status = events[-1], engine.status()
                assert isinstance(end, Finished) and end.usage.cached_tokens == 0
                held = status.host_cache_bytes + status.snapshot_bytes
                if number < settings.slots:
                    assert held == 0
                    before = own_bytes(pid)
                grown = own_bytes(pid) - before
                assert held <= cap and grown <= 1.1 * cap
                assert abs(grown - held) < 0.1 * cap
            assert held > 0.8 * cap and status.host_cache_evictions > 0.9 * prompts - cap // (20 << 20)
            assert status.worker_restarts == 0

    asyncio.run(go())
