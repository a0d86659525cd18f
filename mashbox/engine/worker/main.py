"""The worker process: ``python -m mashbox.engine.worker.main``, started by the supervisor.

Speaks :mod:`mashbox.engine.wire` on stdin and stdout; whatever a library prints goes to stderr. Ends when
its stdin ends, so that no worker outlives its server.
"""

import faulthandler
import gc
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mashbox.engine.wire import (
    Cancel,
    Down,
    Failed,
    Loading,
    Ready,
    Shutdown,
    Start,
    Submit,
    Up,
    pack,
    read_down,
)
from mashbox.errors import DoesNotFit, MashboxError

if TYPE_CHECKING:
    from mashbox.engine.worker.runner import Built, Progress, Runner
    from mashbox.engine.worker.scheduler import Scheduler

# Seconds without a message after which the worker says that it goes on.
SIGN_OF_LIFE = 0.5

Send = Callable[[Up], None]
Build = Callable[[Start, "Progress"], "tuple[Runner, Built]"]


def main(build: Build | None = None) -> None:
    """Serve one model until the pipe closes. ``build`` replaces the loading of a real one in tests."""
    faulthandler.enable()
    # Ctrl-C reaches the whole process group; only the server decides when the worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, sink = _claim_pipes()
    start = read_down(source)
    if not isinstance(start, Start):
        return
    inbox: queue.SimpleQueue[Down] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(source, inbox), daemon=True).start()

    def send(message: Up) -> None:
        sink.write(pack(message))
        sink.flush()

    try:
        _serve(start, inbox, send, build)
    except BrokenPipeError:
        return
    except MashboxError as error:
        send(
            Failed(
                id=None,
                kind="memory" if isinstance(error, DoesNotFit) else "model",
                message=error.message,
                remedy=error.remedy,
            )
        )
        sys.exit(1)


def _claim_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the real stdin and stdout for messages; give stderr to everyone who prints."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    return source, sink


def _listen(source: BinaryIO, inbox: "queue.SimpleQueue[Down]") -> None:
    try:
        while (message := read_down(source)) is not None:
            inbox.put(message)
    except BaseException:
        # No memory for a message, say. A worker that hears nothing more would look busy until it is missed.
        try:
            traceback.print_exc()
        finally:
            os._exit(1)
    # The server is gone: a step that still runs has no reader.
    os._exit(0)


def _serve(start: Start, inbox: "queue.SimpleQueue[Down]", send: Send, build: Build | None) -> None:
    send(Loading(stage="starting"))
    threading.Thread(target=_read_ahead, args=(Path(start.model),), daemon=True).start()
    # What imports make stays for good: to look through it for garbage, again and again, took a fifth of the
    # start, and would take 0.25 s of every full collection later.
    gc.disable()
    # Imported here: it takes a while, and the server should hear from the worker before.
    from mashbox.engine.worker.guide import Guides
    from mashbox.engine.worker.host_cache import HostCache
    from mashbox.engine.worker.scheduler import Scheduler

    build = build or _builder()
    gc.freeze()
    gc.enable()
    guides = Guides(start.tokenizer)
    runner, built = build(start, _throttled(send))
    guides.wait()
    cache_bytes = start.cache_bytes if built.cache_bytes is None else built.cache_bytes
    scheduler = Scheduler(
        runner,
        guides,
        HostCache(cache_bytes),
        share=start.share_cache,
        speculate=start.speculation == "auto",
    )
    send(
        Ready(
            engine=built.engine,
            architecture=built.architecture,
            ctx=runner.ctx,
            slots=runner.slots,
            weight_bytes=runner.weight_bytes,
            kv_bytes=runner.kv_bytes,
            vocab_size=runner.vocab_size,
            routed_experts=built.routed_experts,
            engine_why=built.why,
            cache_bytes=cache_bytes,
            agreed=built.agreed,
        )
    )
    last_sent = time.monotonic()
    while True:
        # Sleep only when there is nothing to do; otherwise take what came during the last step.
        if scheduler.idle and not _take(inbox.get(), scheduler):
            return
        while not inbox.empty():
            if not _take(inbox.get(), scheduler):
                return
        messages = scheduler.step()
        for message in messages:
            send(message)
        # A long prompt is read in many steps that produce nothing: the supervisor hears that each ended.
        if messages:
            last_sent = time.monotonic()
        elif time.monotonic() - last_sent > SIGN_OF_LIFE:
            last_sent = time.monotonic()
            send(scheduler.stats)


def _read_ahead(model: Path) -> None:
    """Ask the system to read the weights from disk while libraries are imported; errors are told later."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in sorted(model.glob("*.safetensors")) if model.is_dir() else [model]:
        with suppress(OSError), path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _builder() -> Build:
    from mashbox.engine.worker.build import build_runner

    return build_runner


def _take(message: Down, scheduler: "Scheduler") -> bool:
    match message:
        case Submit():
            scheduler.submit(message)
        case Cancel():
            scheduler.cancel(message.id)
        case Shutdown():
            return False
        case Start():
            raise RuntimeError("a second Start")
    return True


def _throttled(send: Send) -> Callable[[str, int, int], None]:
    """Progress at most ten times a second, and every change of stage."""
    last_stage, last_time = "", 0.0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last_stage, last_time
        now = time.monotonic()
        if stage != last_stage or now - last_time >= 0.1 or done >= total > 0:
            last_stage, last_time = stage, now
            send(Loading(stage=stage, done=done, total=total))

    return progress


if __name__ == "__main__":
    main()
