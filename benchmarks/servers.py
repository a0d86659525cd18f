"""What the scripts that measure servers share: both servers' commands, starting and ending one, tables."""

import os
import platform
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

END_SECONDS = 60


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def mashbox_command(model: str, port: int, ctx: int, slots: int) -> list[str]:
    """``mashbox run`` with ``ctx`` tokens for each of ``slots``."""
    shape = ["--ctx", str(ctx), "--slots", str(slots), "--port", str(port)]
    return [sys.executable, "-m", "mashbox", "run", model, *shape]


def peer_command(folder: Path, weights: str, port: int, ctx: int, slots: int) -> list[str]:
    """llama-server on the same shape; its ``-c`` is the sum over all slots."""
    shape = ["-c", str(ctx * slots), "-np", str(slots), "--port", str(port)]
    return [str(folder / "llama-server"), "-m", weights, *shape]


def machine() -> str:
    """Processor, cores that we may use, and the instructions that the kernels choose by."""
    name, flags = platform.processor() or platform.machine(), set[str]()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        fields = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line)
        known = {key.strip(): value.strip() for key, value in fields.items()}
        name, flags = known.get("model name", name), set(known.get("flags", "").split())
    wide = [flag for flag in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8") if flag in flags]
    return f"{name}, {len(os.sched_getaffinity(0))} cores ({', '.join(wide) or 'no AVX2'})"


def ratio_row(
    figure: str, ours: Sequence[float], peer: Sequence[float], *, unit: str, lower: bool = False
) -> str:
    """A table's row: medians, and how many times better ours was pair by pair (``lower``: less is better)."""
    pairs = [b / a if lower else a / b for a, b in zip(ours, peer, strict=False)]
    cells = [figure, f"{shown(statistics.median(ours))} {unit}"]
    if not pairs:
        return f"| {' | '.join(cells)} | | | |"
    cells += [f"{shown(statistics.median(peer))} {unit}", f"{statistics.median(pairs):.2f}"]
    return f"| {' | '.join(cells)} | {min(pairs):.2f} to {max(pairs):.2f} |"


def shown(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


@contextmanager
def serving(
    command: list[str], port: int, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a server that is ready; it is ended behind the block. ``env`` adds to ours."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **(env or {})}) as process:
        try:
            while not is_ready(url_of(port)):
                if process.poll() is not None:
                    raise SystemExit(f"It ended before it was ready: {' '.join(command)}")
                time.sleep(0.01)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
