"""What another process writes to stderr, a line at a time."""

import asyncio
import codecs
import re
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Self

# Seconds for what a dead process has written: one that it started may still hold the pipe.
LAST_WORDS = 1.0

# Characters without the end of a line after which they are one.
LONGEST_LINE = 8192


class Words:
    """What comes out of one process' stderr. Made by :meth:`open`; call :meth:`end` when it has ended."""

    def __init__(self, transport: asyncio.ReadTransport, task: asyncio.Task[None]) -> None:
        self._transport = transport
        self._task = task

    @classmethod
    async def open(cls, pipe: BinaryIO, say: Callable[[str], None]) -> Self:
        """Reads our end of the pipe; ``say`` gets each line that is not blank."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        return cls(transport, asyncio.create_task(_pass_on(reader, say), name="words"))

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
