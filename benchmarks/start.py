"""Time from the command to the first answer that health calls ok, and the memory that the processes hold.

    python benchmarks/start.py --model smollm2-135m --peer path/to/llama.cpp/build/bin

Starts `mashbox run` (and llama-server on the same file, context and slots) in turn and prints medians.
Resident memory is read after one answered request, from each process.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

CTX, SLOTS = 2048, 4


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def ask(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Name three planets."}], "max_tokens": 16}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=60).read()


def measure(command: list[str], port: int) -> tuple[float, list[float]]:
    """Seconds to ready, and resident MB of the process and then of its children."""
    url = f"http://127.0.0.1:{port}"
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not is_ready(url):
            assert process.poll() is None, f"{command[0]} ended"
            time.sleep(0.01)
        seconds = time.monotonic() - began
        ask(url)
        root = psutil.Process(process.pid)
        memory = [p.memory_info().rss / 1e6 for p in [root, *root.children(recursive=True)]]
        process.terminate()
        process.wait()
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
        shape = ["--ctx", str(CTX), "--slots", str(SLOTS), "--port", str(port)]
        command = [sys.executable, "-m", "mashbox", "run", options.model, *shape]
        results.setdefault("mashbox run", []).append(measure(command, port))
        if options.peer:
            port = free_port()
            shape = ["-c", str(CTX * SLOTS), "-np", str(SLOTS), "--port", str(port)]
            command = [str(options.peer / "llama-server"), "-m", weights, *shape]
            results.setdefault("llama-server", []).append(measure(command, port))
    print("| server | seconds to ready | resident MB |")
    print("|---|---|---|")
    for name, runs in results.items():
        seconds = statistics.median(seconds for seconds, _ in runs)
        parts = [statistics.median(each) for each in zip(*(memory for _, memory in runs), strict=True)]
        print(f"| {name} | {seconds:.1f} | {' + '.join(f'{part:.0f}' for part in parts)} |")


if __name__ == "__main__":
    main()
