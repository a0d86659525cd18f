"""A ``mashbox run``, of the starter if nothing else is named, as users start it: in a process of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE


class Server:
    """The process and what it says of itself. ``key``, if any, is sent where one is asked for."""

    def __init__(
        self, home: Path, log: Path, *options: str, key: str = "", model: str = "smollm2-135m"
    ) -> None:
        self.url = ""
        self.log = log
        # Without ``verify=False`` each client would read the certificates of all the world. No connection is
        # kept: the server may end it just as the next request is sent.
        self._http = httpx.Client(
            headers={"authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=False,
            timeout=PATIENCE,
        )
        command = [sys.executable, "-m", "mashbox", "run", model, "--port", "0"]
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, *options],
                env=os.environ | {"MASHBOX_HOME": str(home)},
                stdout=subprocess.DEVNULL,
                stderr=sink,
            )

    def get(self, path: str) -> httpx.Response:
        return self._http.get(self.url + path)

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self._http.post(self.url + path, json=body)

    def health(self) -> dict[str, Any]:
        return dict(self.get("/health").json())

    def figures(self) -> dict[str, float]:
        """Every sample of /metrics, without the prefix; requests that ended by their reason."""
        found = {}
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                name = sample.name.removeprefix("mashbox:")
                found[".".join(filter(None, (name, sample.labels.get("finished_reason"))))] = sample.value
        return found

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if condition():
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"it never happened; the log says: {self.log.read_text()}")

    def ready(self) -> None:
        """Wait until it serves, at the address that it prints: a port chosen here may be taken by then."""
        self.until(lambda: bool(self.url or self._printed_url()))
        self.until(lambda: self.health()["status"] == "ok")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def _printed_url(self) -> str:
        found = re.search(r"^Ready after .* s: (http://\S+)$", self.log.read_text(), re.MULTILINE)
        self.url = found[1] if found else ""
        return self.url

    def stop(self) -> int:
        """End it as a service manager does; its exit status."""
        self.nothing_compiled()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE)

    def nothing_compiled(self) -> None:
        """Whatever was asked of it since it was ready."""
        assert self.health()["compiles_after_ready"] in (0, None), self.log.read_text()


@contextmanager
def serving(
    home: Path, log: Path, *options: str, key: str = "", model: str = "smollm2-135m"
) -> Iterator[Server]:
    """A server that is ready; at the end it must have compiled nothing since."""
    server = Server(home, log, *options, key=key, model=model)
    try:
        server.ready()
        yield server
        server.nothing_compiled()
    finally:
        server.process.kill()
        server.process.wait()
