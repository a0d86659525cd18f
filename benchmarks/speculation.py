"""Speculation by prompt lookup: what it gains where a text is copied, and what it costs where none is.

    python benchmarks/speculation.py --model smollm2-135m --peer path/to/llama.cpp/build/bin

Four servers with one slot answer the same requests in turn: mashbox with speculation and without,
llama-server without and with its own lookup (``--spec-type ngram-simple``). Two tasks:

- copy: a program of about 400 tokens, the same with two names changed, and the program once more. The
  likeliest continuation copies it with the change; greedy.
- random: unrelated words, temperature 1: nothing to be copied.

A figure is new tokens by the whole time of a request whose prompt is in the cache. Both of ours must give the
same text. Without ``--peer`` only ours are measured.
"""

import argparse
import contextlib
import json
import random
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any

from servers import free_port, mashbox_command, peer_command, serving, url_of

CTX = 4096
NEW_TOKENS = 320

PROGRAM = '''import csv
from collections import defaultdict


class Ledger:
    """Keeps payments by customer and month."""

    def __init__(self, path):
        self.path = path
        self.payments = defaultdict(list)

    def read(self):
        with open(self.path, newline="") as file:
            for row in csv.DictReader(file):
                key = (row["customer"], row["month"])
                self.payments[key].append(float(row["value"]))
        return self

    def total(self, customer):
        return sum(
            value
            for (name, _), values in self.payments.items()
            if name == customer
            for value in values
        )

    def largest(self, month):
        best, largest = None, 0.0
        for (name, when), values in self.payments.items():
            if when == month and max(values) > largest:
                best, largest = name, max(values)
        return best, largest

    def write(self, path):
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["customer", "month", "total"])
            for (name, month), values in sorted(self.payments.items()):
                writer.writerow([name, month, f"{sum(values):.2f}"])


def main():
    ledger = Ledger("payments.csv").read()
    print(ledger.total("Smith"), ledger.largest("March"))
    ledger.write("totals.csv")
'''

WORDS = (
    "harbour ladder copper sudden orchard velvet ninety thunder basil envelope quarry mirror lantern seldom "
    "granite whistle meadow cobalt saddle fortune needle pepper canyon dial ember frost glove hinge ivory "
)


def copy_task() -> dict[str, Any]:
    edited = PROGRAM.replace("payments", "receipts").replace("Ledger", "Journal")
    parts = [f"# before\n{PROGRAM}\n# after\n{edited}\n", f"# before\n{PROGRAM}\n# after\n"]
    return {"prompt": "".join(parts), "temperature": 0.0}


def random_task(seed: int) -> dict[str, Any]:
    words = WORDS.split()
    random.Random(seed).shuffle(words)
    return {
        "prompt": " ".join(words) + " ",
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": seed,
    }


def ask(port: int, task: dict[str, Any]) -> tuple[float, str]:
    """New tokens a second of a whole request, and its text."""
    body = json.dumps({**task, "max_tokens": NEW_TOKENS}).encode()
    request = urllib.request.Request(
        f"{url_of(port)}/v1/completions", body, {"Content-Type": "application/json"}
    )
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=600) as answer:
        found = json.load(answer)
    took = time.perf_counter() - began
    return found["usage"]["completion_tokens"] / took, found["choices"][0]["text"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a pulled model or a path")
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--engine", default="fast")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    from mashbox.store import find

    ports = [free_port() for _ in range(4)]
    ours = [mashbox_command(options.model, port, CTX, 1) for port in ports[:2]]
    servers = {
        "mashbox": [*ours[0], "--engine", options.engine],
        "mashbox, off": [*ours[1], "--engine", options.engine, "--speculation", "off"],
    }
    if options.peer:
        weights = str(find(options.model).weights)
        theirs = [peer_command(options.peer, weights, port, CTX, 1) for port in ports[2:]]
        servers["llama-server"] = theirs[0]
        servers["llama-server, ngram-simple"] = [*theirs[1], "--spec-type", "ngram-simple"]
    at = dict(zip(servers, ports, strict=False))
    with contextlib.ExitStack() as stack:
        for name, command in servers.items():
            stack.enter_context(serving(command, at[name]))
        print("| task | server | tokens/s, median | by mashbox without | range |\n|---|---|---|---|---|")
        for task_name in ("copy", "random"):
            report(task_name, measure(task_name, at, options.runs))


def measure(task_name: str, at: dict[str, int], runs: int) -> dict[str, list[float]]:
    """Each server's figures, taken in turn."""
    speeds: dict[str, list[float]] = {name: [] for name in at}
    for number in range(runs):
        task = copy_task() if task_name == "copy" else random_task(number + 1)
        texts = {}
        for name, port in at.items():
            ask(port, task)
            speed, texts[name] = ask(port, task)
            speeds[name].append(speed)
        if texts["mashbox"] != texts["mashbox, off"]:
            raise SystemExit(f"{task_name}: speculation changed the text.")
    return speeds


def report(task_name: str, speeds: dict[str, list[float]]) -> None:
    plain = speeds["mashbox, off"]
    for name, found in speeds.items():
        ratios = [a / b for a, b in zip(found, plain, strict=True)]
        print(
            f"| {task_name} | {name} | {statistics.median(found):.0f} | {statistics.median(ratios):.3f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} |"
        )


if __name__ == "__main__":
    main()
