"""The server as a process: its socket, its signals, its end."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mashbox.errors import BadWeights, UsageError
from mashbox.server.app import create_app
from mashbox.server.listen import BUFFER_BYTES, check_exposure, open_socket
from mashbox.server.serve import serve
from mashbox.server.settings import ServerSettings, is_loopback
from tests.patience import PATIENCE
from tests.server.live import events_of, eventually
from tests.server.scripted import ScriptedEngine

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "hi"}]}

PROGRAM = """
import asyncio, json, sys
from mashbox.server.app import create_app
from mashbox.server.serve import serve
from mashbox.server.settings import ServerSettings
from tests.server.scripted import ScriptedEngine

async def listening(url):
    print(json.dumps({"url": url, "torch": "torch" in sys.modules}), flush=True)
    await asyncio.sleep(3600)

settings = ServerSettings(port=0, drain_s=float(sys.argv[1]))
engine = ScriptedEngine(["a", float(sys.argv[2]), "b"])
serve(create_app(engine, settings), settings, on_listening=listening)
print(json.dumps({"stopped": engine.stopped}), flush=True)
"""


class Process:
    """A server of its own; ``url`` once it listens."""

    def __init__(self, drain_s: float, pause_s: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(drain_s), str(pause_s)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.hello: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.url = str(self.hello["url"])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


def takes_no_more(server: Process) -> bool:
    """Whether it has heard a signal: it listens no longer."""
    try:
        httpx.get(f"{server.url}/health", trust_env=False, verify=False)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:
        pass
    return False


@contextlib.contextmanager
def started(drain_s: float = 5.0, pause_s: float = 0.0) -> Iterator[Process]:
    server = Process(drain_s, pause_s)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_with_status_0(number: int) -> None:
    with (
        started(drain_s=600) as server,
        httpx.Client(base_url=server.url, trust_env=False, verify=False) as client,
    ):
        assert server.hello["torch"] is False
        assert client.post(CHAT, json=ASK).status_code == 200
        server.signal(number)
        status, out, err = server.end()
    assert status == 0, err
    assert json.loads(out) == {"stopped": True}
    assert "Traceback" not in err


def test_a_running_answer_is_finished_and_new_ones_are_not_taken() -> None:
    with started(drain_s=10, pause_s=1.0) as server:
        with (
            httpx.Client(base_url=server.url, trust_env=False, verify=False) as client,
            client.stream("POST", CHAT, json={**ASK, "stream": True}) as answer,
        ):
            parts = answer.iter_text()
            text = next(parts)
            server.signal(signal.SIGTERM)
            eventually(lambda: takes_no_more(server))
            text += "".join(parts)
        status, _, err = server.end()
    assert status == 0, err
    events = events_of(text)
    assert events[-1] == "[DONE]"
    assert [event["choices"][0]["delta"].get("content") for event in events[:-1]] == ["", "a", "b", None]


@pytest.mark.parametrize("twice", [False, True])
def test_what_outlasts_the_drain_ends_with_the_error_event(twice: bool) -> None:
    with started(drain_s=60 if twice else 0.5, pause_s=60) as server:
        with (
            httpx.Client(base_url=server.url, trust_env=False, verify=False) as client,
            client.stream("POST", CHAT, json={**ASK, "stream": True}) as answer,
        ):
            parts = answer.iter_text()
            text = next(parts)
            server.signal(signal.SIGINT)
            if twice:
                eventually(lambda: takes_no_more(server))
                server.signal(signal.SIGINT)
            text += "".join(parts)
        status, _, err = server.end()
    assert status == 0, err
    *_, last = events_of(text)
    assert last["error"]["type"] == "unavailable"
    assert last["request_id"].startswith("chatcmpl-")


def test_a_taken_port_is_a_wrong_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} on 127.0.0.1 is taken") as refused:
            open_socket(ServerSettings(port=port))
    assert "--port" in refused.value.remedy


def test_little_of_an_answer_is_held_for_a_client_that_does_not_read() -> None:
    """What buffers hold is not seen to stall."""
    with open_socket(ServerSettings(port=0)) as sock:
        # Linux counts its own books into it: twice what was asked for.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 32 * 1024
    assert BUFFER_BYTES <= 32 * 1024


def test_an_address_of_another_machine_is_a_wrong_use() -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1"):
        open_socket(ServerSettings(host="192.0.2.1", port=0))
    with pytest.raises(UsageError, match="--host"):
        open_socket(ServerSettings(host="no such name", port=0))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "box.lan"])
def test_reachable_without_a_key_refuses_to_start(host: str) -> None:
    with pytest.raises(UsageError, match=r"mashbox keys add.*--api-key-file.*MASHBOX_API_KEY") as refused:
        check_exposure(ServerSettings(host=host))
    assert refused.value.exit_code == 2
    check_exposure(ServerSettings(host=host, api_keys=("k",)))
    check_exposure(ServerSettings(host=host, key_file=Path("keys")))
    check_exposure(ServerSettings(host=host), keys=True)


def test_loopback_is_fine_without_a_key() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"):
        assert is_loopback(host)
        check_exposure(ServerSettings(host=host))


def test_an_error_beside_the_server_ends_it() -> None:
    engine = ScriptedEngine()
    settings = ServerSettings(port=0)

    async def fail(url: str) -> None:
        raise BadWeights(f"damaged at {url}")

    with pytest.raises(BadWeights, match=r"damaged at http://127\.0\.0\.1:"):
        serve(create_app(engine, settings), settings, on_listening=fail)
    assert engine.stopped


def test_an_engine_that_can_not_start_is_named() -> None:
    class Broken(ScriptedEngine):
        async def start(self) -> None:
            raise BadWeights("no such file")

    settings = ServerSettings(port=0)
    with pytest.raises(BadWeights, match="no such file"):
        serve(create_app(Broken(), settings), settings)
