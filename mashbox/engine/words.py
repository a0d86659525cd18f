"""What another process writes to stderr, a line at a time."""

import asyncio
import codecs
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Self

# Seconds for what a dead process has written: one that it started may still hold the pipe.
LAST_WORDS = 1.0

# Characters without the end of a line after which they are one.
LONGEST_LINE = 8192


class Words:
    """A pipe for one process: give it ``fd`` as its stderr, then call :meth:`began`, and at last :meth:`end`.

    A pipe of our own, since asyncio's belong to the process, which counts as running while another holds one.
    """

    def __init__(self, fd: int, transport: asyncio.ReadTransport, task: asyncio.Task[None]) -> None:
        self.fd = fd
        self._transport = transport
        self._task = task

    @classmethod
    async def open(cls, say: Callable[[str], None]) -> Self:
        """Must run where the process is started; ``say`` gets each line that is not blank."""
        ours, theirs = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0)
        )
        return cls(theirs, transport, asyncio.create_task(_pass_on(reader, say), name="words"))

    def began(self) -> None:
        """The process has its end of the pipe: ours of it is closed."""
        os.close(self.fd)

    async def end(self) -> None:
        """Pass on what is left, and close the pipe."""
        await asyncio.wait({self._task}, timeout=LAST_WORDS)
        self._task.cancel()
        self._transport.close()


async def _pass_on(source: asyncio.StreamReader, say: Callable[[str], None]) -> None:
    """Read to the end, whatever becomes of the lines: a full pipe would stop the process."""
    decoder, rest, data = codecs.getincrementaldecoder("utf-8")("replace"), "", b"-"
    while data:
        data = await source.read(65536)
        # A bar that is drawn over itself is lines too.
        *lines, rest = re.split(r"[\r\n]+", rest + decoder.decode(data, not data))
        if not data or len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        for line in filter(str.strip, lines):
            with suppress(OSError, ValueError):
                say(line)
