"""Time from the command to the first answer that health calls ok, and the memory that the processes hold.

    python benchmarks/start.py --model smollm2-135m --peer path/to/llama.cpp/build/bin

Starts `mashbox run` (and llama-server on the same file, context and slots) in turn and prints medians.
Resident memory is read after one answered request, from each process.
"""

import argparse
import json
import statistics
import time
import urllib.request
from pathlib import Path

import psutil
from servers import free_port, mashbox_command, peer_command, serving, url_of

CTX, SLOTS = 2048, 4


def ask(url: str) -> None:
    # A plain prompt, since some models have no chat template.
    body = {"prompt": "Three planets are", "max_tokens": 16}
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=60).read()


def measure(command: list[str], port: int) -> tuple[float, list[float]]:
    """Seconds to ready, and resident MB of the process and then of its children."""
    began = time.monotonic()
    with serving(command, port) as process:
        seconds = time.monotonic() - began
        ask(url_of(port))
        root = psutil.Process(process.pid)
        memory = [p.memory_info().rss / 1e6 for p in [root, *root.children(recursive=True)]]
    return seconds, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a pulled model or a path")
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    from mashbox.store import find

    weights = str(find(options.model).weights)
    results: dict[str, list[tuple[float, list[float]]]] = {}
    for _ in range(options.runs):
        port = free_port()
        command = mashbox_command(options.model, port, CTX, SLOTS)
        results.setdefault("mashbox run", []).append(measure(command, port))
        if options.peer:
            port = free_port()
            command = peer_command(options.peer, weights, port, CTX, SLOTS)
            results.setdefault("llama-server", []).append(measure(command, port))
    print("| server | seconds to ready | resident MB |")
    print("|---|---|---|")
    for name, runs in results.items():
        seconds = statistics.median(seconds for seconds, _ in runs)
        parts = [statistics.median(each) for each in zip(*(memory for _, memory in runs), strict=True)]
        print(f"| {name} | {seconds:.1f} | {' + '.join(f'{part:.0f}' for part in parts)} |")


if __name__ == "__main__":
    main()
