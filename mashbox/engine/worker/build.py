"""From a ``Start`` message to a loaded, warmed-up runner: which engine it is, and why."""

import gc
import logging
import os
from pathlib import Path

import msgspec
import psutil

from mashbox.capacity import cache_ram, choose
from mashbox.engine.wire import Start
from mashbox.engine.worker.agreement import check_agreement, check_known
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.kernels.compile import library_path
from mashbox.engine.worker.kernels.cpu import library
from mashbox.engine.worker.load.packed import load_packed
from mashbox.engine.worker.load.rotary import follows_context, rotary_tables
from mashbox.engine.worker.load.shapes import NotFast
from mashbox.engine.worker.runner import Built, Progress, Runner
from mashbox.errors import UsageError
from mashbox.facts import read_facts
from mashbox.memory import available_memory
from mashbox.packing import QUANTISED

_log = logging.getLogger(__name__)

# What exact modules need (torch and transformers) is imported where they are built: a worker that runs the
# fast engine starts in a fraction of the time and the memory without it.


def build_runner(start: Start, progress: Progress) -> tuple[Runner, Built]:
    """Load the weights and read one token, so that the first request pays for nothing.

    ``auto`` is the fast engine where it runs the model, else the exact one, and the reason is logged. Raises
    UsageError where the engine that was asked for does not run it, and what loading raises.
    """
    threads = start.threads or len(os.sched_getaffinity(0))
    if start.engine == "exact":
        if start.activations != 16:
            raise UsageError(
                f"The exact engine computes in float32: it has no --activations {start.activations}.",
                "Leave --activations out, or use --engine fast.",
            )
        return _build_exact(start, progress, threads, "")
    why = start.refused
    if not why:
        try:
            return _build_fast(start, progress, threads)
        except NotFast as refused:
            if start.weights in QUANTISED:
                raise UsageError(refused.message, _without(start.weights, refused.mend)) from refused
            if start.engine == "fast":
                raise
            why = refused.why
    _log.warning("The exact engine runs, not the fast one: %s.", why)
    # What was loaded for the fast one is gone before the memory is looked at.
    gc.collect()
    start = _planned_anew(start)
    runner, built = _build_exact(start, progress, threads, why)
    return runner, built._replace(cache_bytes=start.cache_bytes)


def _without(weights: str, mend: str) -> str:
    """What to do where weights are to be rounded, and the fast engine does not run the model."""
    otherwise = f"Leave --weights {weights} out: only the fast engine has it"
    return f"{mend} {otherwise}, the exact one runs the model without." if mend else f"{otherwise}."


def _build_fast(start: Start, progress: Progress, threads: int) -> tuple[Runner, Built]:
    if start.weights not in ("auto", *QUANTISED):
        raise NotFast(f"--weights {start.weights} is the exact engine's")
    if start.format == "gguf" and start.weights in QUANTISED:
        raise UsageError(
            f"--weights {start.weights} rounds safetensors; a GGUF file is quantised already.",
            "Leave --weights out, or choose a file of another quantisation.",
        )
    if start.engine == "auto" and not library_path().exists():
        raise NotFast("its kernels are not built in this install, for want of a C++ compiler")
    try:
        library()
    except OSError as error:
        raise NotFast(f"its kernels can not be loaded ({error})", "Install mashbox again.") from error
    check_known(start)
    if start.format == "gguf":
        decoder, shape, architecture = load_packed(Path(start.model), progress)
    else:
        from mashbox.engine.worker.load.packed_folder import load_packed_folder

        decoder, shape, architecture = load_packed_folder(Path(start.model), start.weights, progress)
    progress("making the slots", 0, 0)
    tables = rotary_tables(shape, start.ctx)
    runner = FastRunner(
        decoder, tables, slots=start.slots, ctx=start.ctx, threads=threads, narrow=start.activations == 8
    )
    progress("warming up", 0, 0)
    _warm_up(runner)
    agreed = check_agreement(start, runner, progress, of_context=follows_context(shape))
    return runner, Built("fast", architecture, agreed=agreed)


def _build_exact(start: Start, progress: Progress, threads: int, why: str) -> tuple[Runner, Built]:
    import torch

    from mashbox.engine.worker.exact import ExactRunner
    from mashbox.engine.worker.experts import routed_experts
    from mashbox.engine.worker.load.gguf import load_gguf
    from mashbox.engine.worker.load.safetensors import load_safetensors

    torch.set_num_threads(threads)
    dtypes = {"auto": torch.float32, "f32": torch.float32, "bf16": torch.bfloat16}
    if start.weights not in dtypes:
        raise UsageError(
            f"The exact engine has no --weights {start.weights}.", "Use auto, f32 or bf16, or --engine fast."
        )
    load = load_gguf if start.format == "gguf" else load_safetensors
    loaded = load(Path(start.model), dtypes[start.weights], progress)
    progress("making the slots", 0, 0)
    runner = ExactRunner(loaded, slots=start.slots, ctx=start.ctx)
    progress("warming up", 0, 0)
    _warm_up(runner)
    return runner, Built("exact", loaded.architecture, routed_experts(loaded.module), why)


def _planned_anew(start: Start) -> Start:
    """With slots and a prompt cache for the exact engine, where the memory was planned for the fast one.

    What was asked for stays as it is, what we chose is chosen anew. Raises DoesNotFit if that needs more than
    there is.
    """
    facts = read_facts(Path(start.model), start.format)
    if start.weights not in facts.packed or not library_path().exists():
        return start
    # What this process holds already is in the plan too.
    free = available_memory() + int(psutil.Process().memory_full_info().uss)
    plan = choose(
        facts,
        ctx=None if start.ctx_auto else start.ctx,
        slots=None if start.slots_auto else start.slots,
        available=free,
        dtype_bytes=4,
    )
    room = cache_ram(plan, free, None) if start.cache_auto else max(free - plan.total, 0) >> 20
    if room << 20 < start.cache_bytes:
        _log.warning("The prompt cache is cut to the %d MiB that the exact engine leaves for it.", room)
    return msgspec.structs.replace(
        start, ctx=plan.ctx, slots=plan.slots, cache_bytes=min(start.cache_bytes, room << 20)
    )


def _warm_up(runner: Runner) -> None:
    runner.prefill(0, [0, 0], logits=True)
    runner.decode([0], [0])
    runner.reset(0)
