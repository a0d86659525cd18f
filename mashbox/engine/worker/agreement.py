"""The fast engine's layers against transformers' modules, before a model is served for the first time.

What the kernels computed for a few tokens, layer by layer, is handed to a process of its own
(``python -m mashbox.engine.worker.agreement_check``), which has transformers; this one does without. What was
found is remembered, by the files and everything that computes, so that later starts pay nothing. The
process runs before the slots and the prompt cache are filled, and only where there is room for it then.
"""

import contextlib
import hashlib
import io
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import filelock
import msgspec
import numpy as np

from mashbox import __version__
from mashbox.engine.endings import how_it_ended
from mashbox.engine.wire import Start
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.kernels.compile import library_path
from mashbox.engine.worker.kernels.cpu import best_instructions
from mashbox.engine.worker.load.shapes import NotFast
from mashbox.engine.worker.runner import Progress
from mashbox.facts import read_facts, safetensors_files
from mashbox.gguf_file import parts
from mashbox.memory import available_memory, comparison_bytes
from mashbox.paths import state_dir

TOKENS = 12
"""Tokens that are compared; what shows only beyond them (where a window ends, say) is for the tests."""

BOUND = 0.01
"""Largest error allowed of what a layer adds: its root mean square, as a share of the layer's own."""

TIMEOUT = 300.0
"""Seconds that the comparison may take."""

COMMAND = (sys.executable, "-m", "mashbox.engine.worker.agreement_check")

_log = logging.getLogger(__name__)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the model that differed most, in words, and its error (a finite number); ``layers`` counts
    those compared.
    """

    worst: float
    where: str
    layers: int

    def check(self) -> None:
        """Raise NotFast for a model that differs."""
        # Written so that NaN does not agree.
        if not self.worst <= BOUND:
            raise NotFast(
                f"{self.where} differs from transformers' own by {self.worst:.2g} of its size, "
                f"more than {BOUND:g}"
            )


def check_known(start: Start) -> None:
    """Raise NotFast if an earlier start has found that the model differs: then nothing need be loaded."""
    # A file that is missing is told by what loads it.
    with contextlib.suppress(OSError):
        for ctx in (0, start.ctx):
            if finding := _known(_record(_key(start, ctx))):
                finding.check()


def check_agreement(start: Start, runner: FastRunner, progress: Progress, *, of_context: bool = True) -> str:
    """Raise NotFast unless the runner (with an empty slot 0) agrees with transformers' modules.

    Returns the name of what was decided, which ``start.agreed`` takes up when the worker starts again.
    ``of_context``: what is computed depends on the context's length, which is chosen by the memory that is
    free, and may be another at every start. Where there is no memory for the comparison the model is served
    without one, with a warning; the next start tries again.
    """
    key = _key(start, start.ctx if of_context else 0)
    record = _record(key)
    if start.agreed == key:
        return key
    if finding := _known(record):
        finding.check()
        return key
    progress("comparing its layers with transformers' own, once", 0, 0)
    # One at a time on this machine: two would each count on the memory that is free.
    with _alone(record.parent):
        finding = _known(record)
        if finding is None:
            if not _room(start):
                return key
            finding = _compare(start, runner)
            # On a disk that can't be written it is compared again at the next start.
            with contextlib.suppress(OSError):
                record.write_bytes(msgspec.json.encode(finding) + b"\n")
    finding.check()
    return key


def _record(key: str) -> Path:
    return state_dir() / "agreements" / f"{key}.json"


def _known(record: Path) -> Finding | None:
    """What an earlier start has found, if it can be read."""
    try:
        return msgspec.json.decode(record.read_bytes(), type=Finding)
    except (OSError, msgspec.DecodeError):
        return None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which is made with it; go on without where that can't be done."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, filelock.Timeout):
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(filelock.FileLock(folder / "lock", timeout=TIMEOUT))
        yield


def _room(start: Start) -> bool:
    need, free = comparison_bytes(read_facts(Path(start.model), start.format)), available_memory()
    if need > free:
        _log.warning(
            "The fast engine's layers are not compared with transformers' own: that takes %d MB, and %d are "
            "free. The next start tries again.",
            need // 10**6,
            free // 10**6,
        )
    return need <= free


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
    np.savez(traced, ids=np.array(ids), states=states, logits=logits)
    what = "its comparison with transformers' own modules"
    try:
        done = subprocess.run(
            [*COMMAND, str(os.getpid())],
            input=msgspec.json.encode(start) + b"\n" + traced.getvalue(),
            stdout=subprocess.PIPE,
            timeout=TIMEOUT,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=Finding)
    except subprocess.TimeoutExpired as error:
        raise NotFast(
            f"{what} took more than {TIMEOUT:g} s", "Start again when less runs beside it."
        ) from error
    except subprocess.CalledProcessError as error:
        mend = "Start again when more memory is free." if error.returncode < 0 else "See its own words above."
        raise NotFast(f"{what} {how_it_ended(error.returncode)}", mend) from error
    except (OSError, msgspec.DecodeError) as error:
        raise NotFast(f"{what} could not be run ({error})") from error
