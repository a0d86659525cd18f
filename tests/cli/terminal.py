"""A program on a pseudo-terminal, for tests of what a person sees."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests.patience import PATIENCE

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")


def _take_terminal() -> None:
    """In the child: make standard input its controlling terminal, so that Ctrl-C becomes a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """``mashbox``, or another ``module``, with these arguments, on 24 lines of ``columns``."""

    def __init__(self, *args: str, home: Path, columns: int = 80, module: str = "mashbox") -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {"MASHBOX_HOME": str(home), "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)
        self.raw = ""
        self._read_to = 0

    @property
    def text(self) -> str:
        """Everything that was written, without escape sequences."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def send(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def expect(self, words: str, seconds: float = PATIENCE) -> None:
        """Wait until ``words`` appear behind what was expected before."""
        deadline = time.monotonic() + seconds
        while words not in self.text[self._read_to :]:
            if not self._more(deadline - time.monotonic()):
                raise AssertionError(f"{words!r} did not come; seen: {self.text[self._read_to :]!r}")
        self._read_to = self.text.index(words, self._read_to) + len(words)

    def _more(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def exit_status(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self._more(deadline - time.monotonic()):
            pass
        assert time.monotonic() < deadline, f"it goes on; seen: {self.text[self._read_to :]!r}"
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._fd)
