"""Starts the worker process, talks to it, and starts it again when it dies."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import msgspec

from mashbox.engine.endings import how_it_ended
from mashbox.engine.process import WORKER_COMMAND, Connection, WorkerProcess
from mashbox.engine.wire import (
    Cancel,
    Failed,
    Loading,
    Ready,
    Shutdown,
    Start,
    Stats,
    Submit,
    Tokens,
    Up,
)
from mashbox.errors import EngineLoading

# Seconds before a restart: doubled at each death, set back once a worker has been ready for this long.
FIRST_BACKOFF, LAST_BACKOFF, CALM = 0.5, 30.0, 60.0

# A worker that dies this often without ever having been ready will not be ready the next time either.
GIVE_UP = 3

# Seconds without a word of a worker that loads. It tells of every tensor; what is silent longest is the
# comparison at a model's first start, which may have to wait for another server's.
LOADING_SILENCE = 900.0

State = Literal["loading", "ok", "failed", "stopped"]


class Supervisor:
    """One worker at a time. ``on_message`` gets what concerns requests, and each worker's ``Ready``;
    ``on_death`` the reason of an end.

    ``stats`` are those of the worker that runs, its counts over all workers there were. ``on_words`` gets
    what it writes to stderr, a line at a time; without it that is our own stderr. ``first`` is a worker that
    has been started already, with ``start``.
    """

    def __init__(
        self,
        start: Start,
        on_message: Callable[[Tokens | Failed | Ready], None],
        on_death: Callable[[str], None],
        command: tuple[str, ...] = WORKER_COMMAND,
        step_timeout: float = 60.0,
        on_words: Callable[[str], None] | None = None,
        first: WorkerProcess | None = None,
    ) -> None:
        self._start = start
        self._first = first
        self._on_words = on_words
        self._step_timeout = step_timeout
        self._outstanding: set[int] = set()
        self._heard = 0
        self._stuck = 0.0
        self._on_message = on_message
        self._on_death = on_death
        self._command = command
        self._process: WorkerProcess | None = None
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self.state: State = "stopped"
        self.stage = ""
        self.progress = 0.0
        self.ready: Ready | None = None
        self.failure: Failed | None = None
        self.stats = Stats()
        self._stats_before = Stats()
        self.restarts = 0

    @property
    def cache_bytes(self) -> int:
        """The cap of the worker's prompt cache."""
        return self._start.cache_bytes

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    def start(self) -> None:
        """Begin loading; returns at once."""
        self.state = "loading"
        self._task = asyncio.create_task(self._run(), name="worker supervisor")
        self._task.add_done_callback(self._ended)

    async def stop(self, patience: float = 5.0) -> None:
        """Shut the worker down; it is killed when it has not ended after ``patience`` seconds."""
        loading, self.state = self.state == "loading", "stopped"
        process = self._process
        # A worker that reads weights hears nothing until it is done, and holds nothing worth waiting for.
        if process and process.returncode is None and not loading:
            self._write(Shutdown())
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), patience)
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if process:
            await process.wait()
        await self._announce()

    async def wait_ready(self) -> None:
        """Returns when the worker is ready, or when it never will be (see ``state``)."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state != "loading")

    def send(self, message: Submit | Cancel) -> None:
        """Raises EngineLoading while no worker is ready."""
        if self.state != "ok":
            raise EngineLoading
        if isinstance(message, Submit):
            if not self._outstanding:
                self._heard += 1
            self._outstanding.add(message.id)
        self._write(message)

    def _write(self, message: Submit | Cancel | Shutdown) -> None:
        if self._connection:
            self._connection.write(message)

    async def _run(self) -> None:
        backoff, stillborn, was_ready = FIRST_BACKOFF, 0, False
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                reason = await self._one_life()
            except OSError as error:
                # No memory, or no more processes: it may pass.
                reason = f"The model's process could not be started ({error})."
            if self.state == "stopped":
                return
            stillborn = 0 if self.ready else stillborn + 1
            was_ready = was_ready or self.ready is not None
            if was_ready and stillborn < GIVE_UP:
                # What was loaded once may be again: memory may be short for a moment.
                self.failure = None
            elif stillborn == GIVE_UP and self.failure is None:
                self.failure = Failed(
                    id=None,
                    kind="device",
                    message=f"The worker died {GIVE_UP} times while it loaded. {reason}",
                    remedy="Its own words are above; if memory is short, lower --ctx or --slots.",
                )
            if self.failure is not None:
                self.state = "failed"
                await self._announce()
                self._on_death(reason)
                return
            self.state = "loading"
            self.stage, self.progress, self.ready = "restarting", 0.0, None
            self.stats = self._stats_before = _counts_of(self.stats)
            self.restarts += 1
            self._on_death(reason)
            backoff = FIRST_BACKOFF if clock() - began > CALM else min(backoff * 2, LAST_BACKOFF)
            await asyncio.sleep(backoff)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A fault in the supervision itself must not look like loading for ever."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.state = "failed"
        self.failure = Failed(id=None, kind="model", message=f"The worker can't be run: {error}")
        self._on_death(self.failure.message)
        task.get_loop().create_task(self._announce())

    async def _one_life(self) -> str:
        """Start a worker and read from it until it ends; returns why it ended."""
        process, self._first = self._first, None
        process = process or WorkerProcess(
            self._start, heard=self._on_words is not None, command=self._command
        )
        self._process = process
        self._outstanding.clear()
        self._stuck = 0.0
        self._heard += 1
        with process:
            connection = self._connection = await Connection.open(process, self._on_words)
            watch = asyncio.create_task(self._watch(process), name="worker watch")
            try:
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    while True:
                        await self._handle(await connection.read())
                code = await process.wait()
            finally:
                watch.cancel()
                process.kill()
                await process.wait()
                await connection.close()
        if self._stuck:
            return f"The model's process was stuck: no word for {self._stuck:g} s. It was ended."
        return f"The model's process {how_it_ended(code)}."

    async def _watch(self, process: WorkerProcess) -> None:
        """Kill a worker that has requests, or loads, and says nothing: a step without end, a stopped process.

        Its silence is counted in our own looks at it, not on the clock: while this process was stopped too
        (Ctrl-Z stops both) it could not be heard.
        """
        between = min(1.0, self._step_timeout / 4)
        silent, heard = 0.0, self._heard
        while True:
            await asyncio.sleep(between)
            loading = self.state == "loading"
            silent = silent + between if heard == self._heard and (loading or self._outstanding) else 0.0
            heard = self._heard
            if silent >= (LOADING_SILENCE if loading else self._step_timeout):
                self._stuck = silent
                process.kill()
                return

    async def _handle(self, message: Up) -> None:
        self._heard += 1
        match message:
            case Loading():
                self.stage = message.stage
                self.progress = message.done / message.total if message.total else 0.0
            case Ready():
                self.ready, self.state, self.progress = message, "ok", 1.0
                self._start = _as_found(self._start, message)
                self._on_message(message)
                await self._announce()
            case Failed(id=None):
                self.failure = message
            case Stats():
                self.stats = _over_all(self._stats_before, message)
            case Tokens(rows):
                self._outstanding -= {row.id for row in rows if row.finish}
                self._on_message(message)
            case Failed(id=int(number)):
                self._outstanding.discard(number)
                self._on_message(message)

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _as_found(start: Start, ready: Ready) -> Start:
    """How to start again what is running: on the same engine with the same slots, nothing compared twice, no
    larger a cache.
    """
    return msgspec.structs.replace(
        start,
        ctx=ready.ctx,
        slots=ready.slots,
        ctx_auto=False,
        slots_auto=False,
        agreed=ready.agreed,
        refused=ready.engine_why,
        cache_bytes=ready.cache_bytes,
    )


def _counts_of(stats: Stats) -> Stats:
    """What stays of a worker's figures when it has ended: its counts."""
    return Stats(host_cache_evictions=stats.host_cache_evictions, programs=stats.programs)


def _over_all(before: Stats, now: Stats) -> Stats:
    """The figures of the worker that runs, with the counts of those ``before`` it."""
    return msgspec.structs.replace(
        now,
        host_cache_evictions=before.host_cache_evictions + now.host_cache_evictions,
        programs=before.programs + now.programs,
    )
