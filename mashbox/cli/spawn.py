"""A server that a command starts for itself, and ends with itself."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mashbox.cli.client import Client
from mashbox.errors import RemoteError, Unreachable
from mashbox.paths import state_dir

POLL_SECONDS = 0.2
STOP_SECONDS = 10.0

COMMAND: Sequence[str] = (sys.executable, "-m", "mashbox")

Show = Callable[[str], None]


class OwnServer:
    """A ``mashbox run`` process on a free port of this machine, with a key that only we know.

    Its standard input is a pipe from us: when we die, however we die, the pipe closes and it ends.
    """

    def __init__(self, model: str | None, options: Sequence[str] = ()) -> None:
        self.key = secrets.token_urlsafe(24)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = state_dir() / "logs" / f"chat-server-{port}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        words = [*COMMAND, "run", *([model] if model else []), "--host", "127.0.0.1", "--port", str(port)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*words, *options, "--drain", "0", "--until-eof"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(self.key),
                # Its own session: Ctrl-C in the terminal stops an answer, not the server.
                start_new_session=True,
            )

    def last_words(self) -> str:
        """The newest line of its log."""
        return last_line(self.log)

    def died(self) -> RemoteError | None:
        """Why it has ended, None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        words = self.last_words().removeprefix("error: ") or f"exit status {status}."
        return RemoteError(f"The server did not start: {words}", f"Its log: {self.log}")

    def stop(self) -> None:
        """End it. The log is removed unless the server had failed."""
        failed = self._process.poll() not in (None, 0)
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if not failed:
            self.log.unlink(missing_ok=True)


def last_line(path: Path) -> str:
    """The last line of a file that is not blank, from its last 4 KiB."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


@contextlib.contextmanager
def own_server(model: str | None, show: Show, options: Sequence[str] = ()) -> Iterator[Client]:
    """A client of a server of our own, ready; ``options`` are of ``mashbox run``.

    Raises RemoteError when it does not start.
    """
    server = OwnServer(model, options)
    try:
        with Client(server.url, server.key) as client:
            while not _ready(client):
                if problem := server.died():
                    raise problem
                show(server.last_words() or "Starting a server")
                time.sleep(POLL_SECONDS)
            yield client
    finally:
        server.stop()


def wait_ready(client: Client, show: Show) -> None:
    """Wait until a server that answers has loaded its model. Raises Unreachable."""
    while (health := client.health()) is not None and not health.ready:
        show("The server is loading its model")
        time.sleep(POLL_SECONDS)


def _ready(client: Client) -> bool:
    try:
        health = client.health()
    except Unreachable:
        return False
    return health is not None and health.ready


def _environment(key: str) -> dict[str, str]:
    return {**os.environ, "MASHBOX_API_KEY": key, "PYTHONUNBUFFERED": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
