"""A worker's process before and after there is an event loop, and its end."""

import asyncio
import select
import signal
import sys
import time
from collections.abc import Callable

import psutil
import pytest
import uvloop

from mashbox.engine.process import Connection, WorkerProcess
from mashbox.engine.wire import Loading, Ready, Shutdown, Start, Up
from tests.patience import PATIENCE

START = Start(model="-", format="gguf", ctx=64, slots=2)
COUNTING = (sys.executable, "-m", "tests.engine.counting_worker")


def said(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[..., object]:
    def run(coroutine: object) -> object:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, PATIENCE))  # type: ignore[arg-type]

    return run


def test_it_loads_before_there_is_a_loop(run: Callable[..., object]) -> None:
    async def to_its_end(process: WorkerProcess) -> list[Up]:
        connection = await Connection.open(process)
        messages: list[Up] = []
        while not messages or not isinstance(messages[-1], Ready):
            messages.append(await connection.read())
        connection.write(Shutdown())
        with pytest.raises(asyncio.IncompleteReadError):
            await connection.read()
        assert await process.wait() == 0 == process.returncode
        connection.write(Shutdown())  # to nobody
        await connection.close()
        return messages

    with WorkerProcess(START, command=COUNTING) as process:
        # It has loaded, and waits for requests, before anybody listens.
        deadline = time.monotonic() + PATIENCE
        while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING or not readable(process):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        messages = run(to_its_end(process))
    assert isinstance(messages, list) and isinstance(messages[0], Loading)


def readable(process: WorkerProcess) -> bool:
    return bool(select.select([process.stdout], [], [], 0)[0])


def test_words_from_before_the_loop_are_heard(run: Callable[..., object]) -> None:
    words: list[str] = []

    async def to_its_end(process: WorkerProcess) -> None:
        connection = await Connection.open(process, words.append)
        with pytest.raises(asyncio.IncompleteReadError):
            await connection.read()
        assert await process.wait() == 3
        await connection.close()

    script = "import sys; print('one\\ntwo', file=sys.stderr, end=''); sys.exit(3)"
    with WorkerProcess(START, heard=True, command=said(script)) as process:
        while process.returncode is None:
            time.sleep(0.01)
        run(to_its_end(process))
    assert words == ["one", "two"]


def test_nothing_is_left_of_one_that_nobody_took_over() -> None:
    before = psutil.Process().num_fds()
    with (
        pytest.raises(RuntimeError),
        WorkerProcess(START, heard=True, command=said("import time; time.sleep(600)")) as process,
    ):
        raise RuntimeError
    assert process.returncode == -signal.SIGKILL and not psutil.pid_exists(process.pid)
    assert psutil.Process().num_fds() == before


def test_a_command_that_is_not_there_leaves_no_pipe() -> None:
    before = psutil.Process().num_fds()
    with pytest.raises(OSError, match="no such command"):
        WorkerProcess(START, heard=True, command=("./no such command",))
    assert psutil.Process().num_fds() == before
