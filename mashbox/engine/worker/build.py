"""From a ``Start`` message to a loaded, warmed-up runner."""

import os
from pathlib import Path

import torch

from mashbox.engine.wire import Start
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.experts import routed_experts
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.packed import load_packed
from mashbox.engine.worker.load.rotary import rotary_tables
from mashbox.engine.worker.load.safetensors import load_safetensors
from mashbox.engine.worker.load.shapes import refusal
from mashbox.engine.worker.runner import Built, Progress, Runner

DTYPES = {"auto": torch.float32, "f32": torch.float32, "bf16": torch.bfloat16}


def build_runner(start: Start, progress: Progress) -> tuple[Runner, Built]:
    """Load the weights and read one token, so that the first request pays for nothing."""
    threads = start.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    if start.engine == "fast":
        return _build_fast(start, progress, threads)
    load = load_gguf if start.format == "gguf" else load_safetensors
    loaded = load(Path(start.model), DTYPES[start.weights], progress)
    progress("making the slots", 0, 0)
    runner = ExactRunner(loaded, slots=start.slots, ctx=start.ctx)
    progress("warming up", 0, 0)
    _warm_up(runner)
    return runner, Built("exact", loaded.architecture, routed_experts(loaded.module))


def _build_fast(start: Start, progress: Progress, threads: int) -> tuple[Runner, Built]:
    if start.format != "gguf" or start.weights != "auto":
        raise refusal("it reads the packed weights of a GGUF file, with --weights auto, only")
    decoder, shape, architecture = load_packed(Path(start.model), progress)
    progress("making the slots", 0, 0)
    tables = rotary_tables(shape, start.ctx)
    runner = FastRunner(decoder, tables, slots=start.slots, ctx=start.ctx, threads=threads)
    progress("warming up", 0, 0)
    _warm_up(runner)
    return runner, Built("fast", architecture)


def _warm_up(runner: Runner) -> None:
    runner.prefill(0, [0, 0], logits=True)
    runner.decode([0], [0])
    runner.reset(0)
