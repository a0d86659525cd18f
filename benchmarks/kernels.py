"""Packed products against the machine's read bandwidth, for each GGUF type and for 1 to 16 rows.

    python benchmarks/kernels.py --threads 2

A matrix of random weights that no cache holds is multiplied with float32 rows: what counts is the bytes of
packed weights read in a second, as a share of what the same threads read by summing memory. The two are
measured in turn, and the best of all rounds is told beside the median of the rounds' ratios: other programs
and a drifting clock slow both. A share above 1 is the measure's noise. With more rows the product is bound
by instructions; the last column tells how many weights were multiplied in a second at 16 rows.
"""

import argparse
import os
import statistics
import time

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from mashbox.engine.worker.kernels.cpu import Instructions, PackedMatrix, best_instructions, pack, product

KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16")
ROWS = (1, 2, 4, 8, 16)
COLS = 2048
NAMES = {
    Instructions.PLAIN: "plain C++",
    Instructions.AVX2: "AVX2",
    Instructions.AVX_VNNI: "AVX2 with AVX-VNNI",
    Instructions.AVX512: "AVX-512 with VNNI",
}


def matrix(kind: str, megabytes: int) -> PackedMatrix:
    """Random weights of about this size; scales are 1 in half precision or a pattern close to it."""
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    rows = megabytes * 1_000_000 // (COLS // block * size) // 16 * 16
    # No byte below 8 or above 57: half-precision scales made of them are neither tiny nor infinite.
    source = np.random.default_rng(0).integers(8, 58, (rows, COLS // block * size), np.uint8)
    return pack(kind, source, COLS)


def seconds(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


def measure(kind: str, options: argparse.Namespace, memory: torch.Tensor) -> str:
    packed = matrix(kind, options.megabytes)
    shares, best, speed = [], [], 0.0
    for rows in ROWS:
        x = np.random.default_rng(rows).standard_normal((rows, COLS), np.float32)
        took, ratios = [], []
        for _ in range(options.rounds):
            reading = memory.nbytes / seconds(memory.sum)
            took.append(seconds(lambda x=x: product(packed, x, threads=options.threads)))
            ratios.append(packed.data.nbytes / took[-1] / reading)
        shares.append(statistics.median(ratios))
        best.append(packed.data.nbytes / min(took) / 1e9)
        speed = rows * packed.rows * packed.cols / min(took) / 1e9
    cells = " | ".join(f"{share:.2f} ({rate:.1f})" for share, rate in zip(shares, best, strict=True))
    return f"| {kind} | {cells} | {speed:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--megabytes", type=int, default=128, help="weights of each matrix, as in a file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    memory = torch.ones(options.megabytes * 1_000_000 // 8, dtype=torch.float64)
    memory.sum()
    reading = max(memory.nbytes / seconds(memory.sum) for _ in range(options.rounds)) / 1e9
    print(
        f"{options.threads} threads, {NAMES[best_instructions()]}; read bandwidth {reading:.1f} GB/s at best."
    )
    print("Share of the read bandwidth, median (GB/s at best):\n")
    heads = " | ".join(f"{rows} rows" if rows > 1 else "1 row" for rows in ROWS)
    print(f"| type | {heads} | 10^9 weights x rows/s at {ROWS[-1]} |")
    print("|---" * (len(ROWS) + 2) + "|")
    for kind in options.kinds:
        print(measure(kind, options, memory), flush=True)


if __name__ == "__main__":
    main()
