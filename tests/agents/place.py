"""Where an agent runs: an empty home, a scratch folder, and no network but this machine's."""

import os
import signal
import subprocess
from pathlib import Path

import msgspec

SECONDS = 120
NOWHERE = "http://127.0.0.1:9"
"""A proxy that does not exist, for all that is not on this machine."""


class Said(msgspec.Struct):
    """What an agent printed."""

    out: str
    err: str


class Place:
    """``work`` is the folder the agent runs in, ``home`` its home."""

    def __init__(self, folder: Path, bin: Path, key: str) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self._environment = {
            "PATH": f"{bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(folder),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "MASHBOX_API_KEY": key,
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
            "PI_OFFLINE": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def run(self, line: str, **more: str) -> Said:
        """Run a line of the shell to its good end; ``more`` are variables."""
        process = subprocess.Popen(
            line,
            shell=True,
            cwd=self.work,
            env=self._environment | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        assert process.returncode == 0, f"{line}\n{out}\n{err}"
        return Said(out, err)
