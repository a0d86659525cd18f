"""One worker's process: how it is started, spoken to, heard and ended."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from mashbox.engine.wire import Cancel, Shutdown, Start, Submit, Up, frame_length, pack, unpack_up
from mashbox.engine.words import Words

# Threads that wait for each other spin for a moment, then sleep: on a busy machine, spinning on takes the
# core from the very thread that is waited for, and made decoding five times slower.
ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false", "GOMP_SPINCOUNT": "1000"}

WORKER_COMMAND = (sys.executable, "-m", "mashbox.engine.worker.main")

# Seconds between two looks at a process that is about to end.
LOOK = 0.01


class WorkerProcess:
    """A worker that has been told what to serve: it is started, and its ``Start`` sent, when this is made.

    That needs no event loop, so that it loads while ours is still importing what a server needs. ``heard``:
    what it writes to stderr is for :class:`Connection`; otherwise it goes to our own stderr. Raises OSError
    where there is no memory, or no process, for it.
    """

    def __init__(
        self, start: Start, *, heard: bool = False, command: tuple[str, ...] = WORKER_COMMAND
    ) -> None:
        ours, theirs = os.pipe() if heard else (None, None)
        self.stderr = None if ours is None else os.fdopen(ours, "rb", 0)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=theirs,
                # Ctrl-C in the terminal is ours to act on, from the worker's first moment on.
                start_new_session=True,
                env=ENVIRONMENT | os.environ,
                bufsize=0,
            )
        except OSError:
            if self.stderr:
                self.stderr.close()
            raise
        finally:
            if theirs is not None:
                os.close(theirs)
        assert process.stdin and process.stdout
        self.stdin, self.stdout = process.stdin, process.stdout
        self.began = time.monotonic()
        self._process = process
        # A message far shorter than a pipe is long. Who reads from a worker that has ended already will see.
        with suppress(BrokenPipeError):
            self.stdin.write(pack(start))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        """Its exit status, once it has ended."""
        # Nothing tells of it but the system, and how differs from one to the other.
        while (code := self._process.poll()) is None:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing of it is left, however far it came."""
        self.kill()
        self._process.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe:
                pipe.close()


class Connection:
    """Messages to and from a process that runs, and its words. Made by :meth:`open`, in the event loop."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        source: asyncio.ReadTransport,
        sink: asyncio.WriteTransport,
        words: Words | None,
    ) -> None:
        self._reader = reader
        self._source = source
        self._sink = sink
        self._words = words

    @classmethod
    async def open(cls, process: WorkerProcess, on_words: Callable[[str], None] | None = None) -> Self:
        """``on_words`` gets each line that the process writes to stderr, if it is ``heard``."""
        loop = asyncio.get_running_loop()
        words = await Words.open(process.stderr, on_words) if process.stderr and on_words else None
        reader = asyncio.StreamReader()
        source, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        sink, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        return cls(reader, source, sink, words)

    def write(self, message: Submit | Cancel | Shutdown) -> None:
        """Send it, or nothing where the process has ended."""
        if not self._sink.is_closing():
            self._sink.write(pack(message))

    async def read(self) -> Up:
        """The next message. Raises IncompleteReadError, ConnectionError at the process' end."""
        head = await self._reader.readexactly(4)
        return unpack_up(await self._reader.readexactly(frame_length(head)))

    async def close(self) -> None:
        """After the process has ended: pass on its last words, and close the pipes."""
        self._source.close()
        if not self._sink.is_closing():
            self._sink.abort()
        if self._words:
            await self._words.end()
