"""Prefill and decode of an engine against llama-bench, in turn on the same file.

    python benchmarks/engine.py --model smollm2-135m --engine fast --peer path/to/llama.cpp/build/bin

Prints a table of medians and of ratios pair by pair (ours by the peer's). Without ``--peer`` it measures
mashbox alone. Each figure is taken in a process of its own, A B A B, so that a drifting clock hits both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PROMPTS = (512, 2048)
DECODE_TOKENS = 128


def measure_ours(model: str, engine: str, activations: int, threads: int, kind: str) -> float:
    """Tokens per second of one kind, in this process."""
    import torch

    from mashbox.engine.wire import Start
    from mashbox.engine.worker.build import build_runner
    from mashbox.engine.worker.scheduler import pieces
    from mashbox.store import find

    local = find(model)
    rows = 4 if kind == "decode4" else 1
    runner, _ = build_runner(
        Start(
            model=str(local.weights),
            format=local.format,
            ctx=4096,
            slots=rows,
            engine=engine,  # type: ignore[arg-type]
            activations=activations,
            threads=threads,
        ),
        lambda *_: None,
    )
    ids = torch.randint(100, 10_000, (4096,), generator=torch.Generator().manual_seed(1)).tolist()
    if kind.startswith("prefill"):
        return _timed_prefill(
            runner, ids[: int(kind.removeprefix("prefill"))], pieces(runner.weight_bytes)[0]
        )
    for slot in range(rows):
        runner.prefill(slot, ids[:16], logits=False)
    slots = list(range(rows))
    runner.decode(slots, ids[:rows])
    began = time.perf_counter()
    for step in range(DECODE_TOKENS):
        runner.decode(slots, ids[step : step + rows])
    return rows * DECODE_TOKENS / (time.perf_counter() - began)


def _timed_prefill(runner: object, ids: list[int], piece: int) -> float:
    """The faster of two readings, as llama-bench warms up with one of its own."""
    best = 0.0
    for _ in range(2):
        runner.reset(0)  # type: ignore[attr-defined]
        began = time.perf_counter()
        for start in range(0, len(ids), piece):
            part = ids[start : start + piece]
            runner.prefill(0, part, logits=start + piece >= len(ids))  # type: ignore[attr-defined]
        best = max(best, len(ids) / (time.perf_counter() - began))
    return best


def ours(model: str, engine: str, activations: int, threads: int, kind: str) -> float:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--model", model, "--engine", engine, "--threads", str(threads)]
    command += ["--activations", str(activations), "--child", kind]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peer(binary: Path, weights: str, threads: int, kind: str) -> float:
    """llama-bench's own figure for the same kind."""
    prompt = kind.removeprefix("prefill") if kind.startswith("prefill") else "0"
    new = "0" if kind.startswith("prefill") else str(DECODE_TOKENS)
    command = [binary, "-m", weights, "-t", str(threads), "-p", prompt, "-n", new, "-r", "1", "-o", "json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)[0]["avg_ts"])


def pairs(
    mine: Callable[[], float], other: Callable[[], float] | None, runs: int
) -> tuple[list[float], list[float]]:
    first, second = [], []
    for _ in range(runs):
        first.append(mine())
        if other:
            second.append(other())
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a pulled model or a path")
    parser.add_argument("--peer", type=Path, help="folder with llama-bench")
    parser.add_argument("--engine", default="exact", choices=["exact", "fast"])
    parser.add_argument("--activations", type=int, default=16, choices=(16, 8))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(
            measure_ours(options.model, options.engine, options.activations, options.threads, options.child)
        )
        return
    from mashbox.store import find

    weights = find(options.model).weights
    how = (options.engine, options.activations, options.threads)
    print("| figure | mashbox t/s | llama-bench t/s | ratio, median | ratio, range |")
    print("|---|---|---|---|---|")
    for kind in (*(f"prefill{size}" for size in PROMPTS), "decode1", "decode4"):
        versus = None
        # llama-bench decodes one row; four rows have no peer figure here.
        if options.peer and kind != "decode4":
            binary = options.peer / "llama-bench"
            versus = lambda kind=kind, binary=binary: peer(binary, weights, options.threads, kind)  # noqa: E731
        first, second = pairs(lambda kind=kind: ours(options.model, *how, kind), versus, options.runs)
        line = f"| {kind} | {statistics.median(first):.0f} |"
        if second:
            ratios = [a / b for a, b in zip(first, second, strict=True)]
            line += f" {statistics.median(second):.0f} | {statistics.median(ratios):.2f} |"
            line += f" {min(ratios):.2f} to {max(ratios):.2f} |"
        print(line if second else line + " | | |")


if __name__ == "__main__":
    main()
