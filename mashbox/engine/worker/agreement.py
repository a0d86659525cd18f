"""The fast engine's layers against transformers' modules, before a model is served for the first time.

What the kernels computed for a few tokens, layer by layer, is handed to a process of its own
(``python -m mashbox.engine.worker.agreement_check``), which has transformers; this one does without. A model
that agreed is remembered, by its files and everything that computes, so that later starts pay nothing.
"""

import hashlib
import io
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import msgspec
import numpy as np

from mashbox import __version__
from mashbox.engine.wire import Start
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.kernels.compile import library_path
from mashbox.engine.worker.kernels.cpu import best_instructions
from mashbox.engine.worker.load.shapes import NotFast
from mashbox.engine.worker.runner import Progress
from mashbox.facts import safetensors_files
from mashbox.gguf_file import parts
from mashbox.paths import state_dir

TOKENS = 12
"""Tokens that are compared; what shows only beyond them (where a window ends, say) is for the tests."""

BOUND = 0.01
"""Largest error allowed of what a layer adds: its root mean square, as a share of the layer's own."""

TIMEOUT = 300.0
"""Seconds that the comparison may take."""

COMMAND = (sys.executable, "-m", "mashbox.engine.worker.agreement_check")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the model that differed most, in words, and its error; ``layers`` counts those compared."""

    worst: float
    where: str
    layers: int


def check_agreement(start: Start, runner: FastRunner, progress: Progress, *, of_context: bool = True) -> None:
    """Raise NotFast unless the runner (with an empty slot 0) agrees with transformers' modules.

    ``of_context``: what is computed depends on the context's length, which is chosen by the memory that is
    free, and may be another at every start.
    """
    record = state_dir() / "agreements" / f"{_key(start, start.ctx if of_context else 0)}.json"
    if _known(record):
        return
    progress("comparing its layers with transformers' own, once", 0, 0)
    finding = _compare(start, runner)
    # Written so that NaN does not agree.
    if not finding.worst <= BOUND:
        raise NotFast(
            f"{finding.where} differs from transformers' own by {finding.worst:.2g} of its size, "
            f"more than {BOUND:g}"
        )
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_bytes(msgspec.json.encode(finding) + b"\n")
    except OSError:
        return  # it is compared again at the next start


def _known(record: Path) -> bool:
    try:
        return msgspec.json.decode(record.read_bytes(), type=Finding).worst <= BOUND
    except (OSError, msgspec.DecodeError):
        return False


def _key(start: Start, ctx: int) -> str:
    """Over the model's files, and what reads and computes."""
    path = Path(start.model)
    files = [path / "config.json", *safetensors_files(path)] if path.is_dir() else parts(path)
    stats = [(str(file), (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files]
    versions = [__version__, *(version(name) for name in ("torch", "transformers"))]
    known = [sorted(stats), versions, library_path().name, best_instructions(), platform.machine()]
    known += [ctx, start.weights]
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _compare(start: Start, runner: FastRunner) -> Finding:
    ids = [(7 + 7919 * i) % runner.vocab_size for i in range(min(TOKENS, start.ctx))]
    states, logits = runner.trace(0, ids)
    # By the pipe, not by a file: a disk that is full or can't be written must not change the engine.
    traced = io.BytesIO()
    np.savez(traced, ids=np.array(ids), states=states.numpy(), logits=logits.numpy())
    try:
        done = subprocess.run(
            COMMAND,
            input=msgspec.json.encode(start) + b"\n" + traced.getvalue(),
            stdout=subprocess.PIPE,
            timeout=TIMEOUT,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=Finding)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise NotFast(f"it could not be compared with transformers' own modules ({error})") from error
