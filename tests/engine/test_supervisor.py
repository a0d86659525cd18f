"""The supervisor with real worker processes: messages, faults, restarts, no orphan."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from mashbox.engine import supervisor
from mashbox.engine.request import Sampling
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.wire import (
    Cancel,
    Failed,
    Ready,
    Row,
    Start,
    Submit,
    Tokens,
    frame_length,
    pack,
    unpack_up,
)
from mashbox.errors import EngineLoading
from tests.engine.counting_worker import SPEAKABLE, VOCABULARY
from tests.engine.worker.counting import CountingRunner
from tests.patience import PATIENCE

START = Start(model="-", format="gguf", ctx=64, slots=2)


def command(fault: str = "") -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.engine.counting_worker", fault)


class Watched:
    """A supervisor and what it said."""

    def __init__(self, fault: str, step_timeout: float) -> None:
        self.messages: list[Tokens | Failed | Ready] = []
        self.deaths: list[str] = []
        self.words: list[str] = []
        self.supervisor = Supervisor(
            START,
            self.messages.append,
            self.deaths.append,
            command(fault),
            step_timeout,
            self.words.append if fault == "words" else None,
        )

    def rows(self, number: int) -> list[Row]:
        return [row for m in self.messages if isinstance(m, Tokens) for row in m.rows if row.id == number]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not condition():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def running(fault: str = "", step_timeout: float = 60.0) -> AsyncIterator[Watched]:
    watched = Watched(fault, step_timeout)
    watched.supervisor.start()
    try:
        await watched.supervisor.wait_ready()
        yield watched
    finally:
        await watched.supervisor.stop()


def submit(number: int, ids: list[int], max_tokens: int = 4) -> Submit:
    return Submit(id=number, ids=ids, max_tokens=max_tokens, end_ids=[], sampling=Sampling())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_request_goes_through_a_real_worker(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    """On the loop of the server too, whose way to start a process is its own."""

    async def go() -> None:
        async with running() as w:
            assert w.supervisor.ready and w.supervisor.ready.architecture == "counting"
            w.supervisor.send(submit(1, [5, 6]))
            await w.until(lambda: any(row.finish for row in w.rows(1)))
            assert [token for row in w.rows(1) for token in row.tokens] == CountingRunner(
                vocab_size=VOCABULARY, speakable=SPEAKABLE
            ).greedy([5, 6], 4)
            pid = w.supervisor.pid
        assert pid and not psutil.pid_exists(pid)
        assert w.supervisor.state == "stopped" and not w.deaths

    run(go())


@pytest.mark.slow
def test_a_cancelled_request_ends_and_its_slot_serves_the_next() -> None:
    async def go() -> None:
        async with running() as w:
            for number in (1, 2):
                w.supervisor.send(submit(number, [number], max_tokens=60))
            w.supervisor.send(submit(3, [3], max_tokens=2))
            await w.until(lambda: bool(w.rows(1)))
            w.supervisor.send(Cancel(1))
            await w.until(lambda: any(row.finish == "cancelled" for row in w.rows(1)))
            await w.until(lambda: any(row.finish for row in w.rows(3)))
            assert not any(row.finish for row in w.rows(2)[:5])

    asyncio.run(go())


@pytest.mark.slow
def test_a_killed_worker_is_started_again() -> None:
    async def go() -> None:
        async with running() as w:
            first = w.supervisor.pid
            assert first and os.getpgid(first) != os.getpgrp()
            os.kill(first, signal.SIGKILL)
            await w.until(lambda: w.supervisor.state == "loading")
            with pytest.raises(EngineLoading):
                w.supervisor.send(submit(1, [5]))
            await w.supervisor.wait_ready()
            assert w.supervisor.restarts == 1 and w.supervisor.pid != first
            assert w.deaths == [
                "The model's process was killed (SIGKILL), most often because memory ran out."
            ]
            w.supervisor.send(submit(2, [5]))
            await w.until(lambda: any(row.finish for row in w.rows(2)))

    asyncio.run(go())


@pytest.mark.slow
def test_what_a_worker_writes_comes_in_lines_up_to_its_end() -> None:
    async def go() -> None:
        async with running("words") as w:
            assert w.words[0] == "a library that prints must not hurt the messages"
            w.supervisor.send(submit(1, [49]))
            await w.until(lambda: bool(w.deaths))
            *lines, last = w.words[1:]
            assert lines == ["a bar 10%", "a bar 100%", "Traceback:", "  deep inä"]
            assert last == "no end" + "." * 9000

    asyncio.run(go())


@pytest.mark.slow
def test_what_was_loaded_once_is_tried_again_in_the_same_way(tmp_path: Path) -> None:
    """Too little memory is final at the first start, not at a restart: it may be short for a moment."""
    lives = tmp_path / "lives"
    lives.touch()

    async def go() -> None:
        async with running(f"short:{lives}") as w:
            assert w.supervisor.pid
            os.kill(w.supervisor.pid, signal.SIGKILL)
            await w.until(lambda: w.supervisor.state == "loading")
            assert w.supervisor.cache_bytes == 77
            await w.supervisor.wait_ready()
            assert (w.supervisor.state, w.supervisor.restarts) == ("ok", 2)
            # What the first life found of the engine holds: nothing is compared or measured anew.
            assert w.supervisor.ready and w.supervisor.ready.architecture == "unfit, name, 77"
            assert w.supervisor.failure is None and lives.read_text() == "xxx"
            w.supervisor.send(submit(1, [5]))
            await w.until(lambda: any(row.finish for row in w.rows(1)))

    asyncio.run(go())


@pytest.mark.slow
def test_a_pause_of_server_and_worker_is_no_silence() -> None:
    """As Ctrl-Z makes one: the clock goes on, and neither process does."""

    async def go() -> None:
        async with running(step_timeout=1.0) as w:
            first = w.supervisor.pid
            assert first
            os.kill(first, signal.SIGSTOP)
            w.supervisor.send(submit(1, [5]))
            time.sleep(1.5)
            os.kill(first, signal.SIGCONT)
            await w.until(lambda: any(row.finish for row in w.rows(1)))
            assert not w.deaths and w.supervisor.pid == first

    asyncio.run(go())


@pytest.mark.slow
def test_a_worker_that_stops_while_it_loads_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LOADING_SILENCE", 1.0)

    async def go() -> None:
        w = Watched("", 4.0)
        w.supervisor.start()
        try:
            await w.until(lambda: w.supervisor.pid is not None)
            assert w.supervisor.pid
            os.kill(w.supervisor.pid, signal.SIGSTOP)
            await w.until(lambda: bool(w.deaths))
            assert "no word for 1 s" in w.deaths[0]
        finally:
            await w.supervisor.stop()

    asyncio.run(go())


@pytest.mark.slow
def test_a_refused_model_is_final_and_keeps_its_message() -> None:
    async def go() -> None:
        async with running("model") as w:
            await w.until(lambda: bool(w.deaths))
            assert w.supervisor.state == "failed" and w.supervisor.restarts == 0
            assert w.supervisor.failure
            assert w.supervisor.failure.message == "model.gguf is damaged."
            assert w.supervisor.failure.remedy == "Pull it again."

    asyncio.run(go())


@pytest.mark.slow
def test_a_stopped_worker_is_noticed_while_it_has_requests() -> None:
    async def go() -> None:
        async with running(step_timeout=1.0) as w:
            first = w.supervisor.pid
            assert first
            os.kill(first, signal.SIGSTOP)
            await asyncio.sleep(1.5)
            assert w.supervisor.state == "ok", "an idle worker may be silent"
            w.supervisor.send(submit(1, [5]))
            await w.until(lambda: bool(w.deaths))
            assert "no word for 1 s" in w.deaths[0]
            await w.supervisor.wait_ready()
            assert w.supervisor.pid != first

    asyncio.run(go())


@pytest.mark.slow
def test_a_worker_that_dies_while_loading_is_given_up() -> None:
    async def go() -> None:
        async with running("stillborn") as w:
            await w.until(lambda: bool(w.supervisor.failure))
            assert w.supervisor.state == "failed" and w.supervisor.failure
            assert "died 3 times while it loaded" in w.supervisor.failure.message

    asyncio.run(go())


@pytest.mark.slow
def test_a_worker_ends_when_its_server_is_gone() -> None:
    with subprocess.Popen(command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as worker:
        assert worker.stdin
        worker.stdin.write(pack(START))
        worker.stdin.flush()
        time.sleep(0.2)
        worker.stdin.close()
        assert worker.wait(timeout=PATIENCE) == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells the address space")
def test_a_worker_that_has_no_memory_for_a_message_ends() -> None:
    """One that hears nothing more would look busy until its silence is noticed."""
    with subprocess.Popen(command("memory"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin and worker.stdout
        worker.stdin.write(pack(START))
        worker.stdin.flush()
        while not isinstance(unpack_up(worker.stdout.read(frame_length(worker.stdout.read(4)))), Ready):
            pass
        # The length of a message of 2 GB.
        worker.stdin.write(b"\xff\xff\xff\x7f")
        worker.stdin.flush()
        assert worker.wait(timeout=PATIENCE) == 1
