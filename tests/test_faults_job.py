"""What goes wrong in real use, on the real starter: clients that leave, tenants, a full cache, a dead worker.

One server for the module, started as a user starts it: fast engine, two slots, two tenants.
"""

import concurrent.futures
import json
import os
import resource
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from mashbox.server import keyfile
from tests.real_server import Server, serving

pytestmark = [pytest.mark.real, pytest.mark.slow]

MIB = 1 << 20
CAP = 64 * MIB
QUESTION = [{"role": "user", "content": "Name three planets."}]
LONG = 4096
STUCK = 15
"""Seconds: far above a step, on a busy machine too."""


class Place(NamedTuple):
    """The server, and a client of each tenant."""

    server: Server
    a: httpx.Client
    b: httpx.Client


@pytest.fixture(scope="module")
def place(model_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("run")
    keys = [keyfile.add(folder / "keys", tenant, print)[1] for tenant in "ab"]
    options = ["--engine", "fast", "--ctx", "8192", "--slots", "2", "--cache-ram", str(CAP // MIB)]
    options += ["--step-timeout", str(STUCK), "--api-key-file", str(folder / "keys")]
    with ExitStack() as stack:
        server = stack.enter_context(serving(model_home, folder / "log", *options, key=keys[0]))
        clients = [
            stack.enter_context(
                httpx.Client(
                    base_url=server.url,
                    headers={"authorization": f"Bearer {key}"},
                    timeout=120,
                    trust_env=False,
                    verify=False,
                )
            )
            for key in keys
        ]
        yield Place(server, *clients)


def prompt(name: str, tokens: int) -> str:
    """About so many tokens; what has another name begins otherwise."""
    return f"{name}: " + "the keeper wrote down every ship that passed " * (tokens // 8)


def counting(name: str) -> str:
    """A short prompt that the starter goes on with for thousands of tokens."""
    return f"{name}: " + ", ".join(map(str, range(1, 25))) + ","


def body(text: str, count: int, **more: Any) -> dict[str, Any]:
    return {"prompt": text, "max_tokens": count, "temperature": 0} | more


def ask(client: httpx.Client, text: str, count: int = 8, **more: Any) -> tuple[str, dict[str, Any]]:
    """The text that follows, and the usage."""
    answer = client.post("/v1/completions", json=body(text, count, **more))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"]), dict(answer.json()["usage"])


def turn(client: httpx.Client, messages: list[Any]) -> tuple[str, dict[str, Any]]:
    """A short answer to a conversation, and the usage."""
    asked = {"messages": messages, "max_tokens": 12, "temperature": 0}
    answer = client.post("/v1/chat/completions", json=asked).raise_for_status().json()
    return answer["choices"][0]["message"]["content"], answer["usage"]


def cached(usage: dict[str, Any]) -> int:
    return int(usage["prompt_tokens_details"]["cached_tokens"])


class Stream:
    """An answer that is read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = (line for line in response.iter_lines() if line.startswith("data: "))
        self.text = ""
        self.events: list[Any] = []
        while not self.text:
            self._read(next(self._lines))

    def rest(self) -> None:
        for line in self._lines:
            self._read(line)

    def _read(self, line: str) -> None:
        data = line.removeprefix("data: ")
        self.events.append(data if data == "[DONE]" else json.loads(data))
        if data != "[DONE]" and "choices" in self.events[-1]:
            self.text += "".join(choice["text"] for choice in self.events[-1]["choices"])


@contextmanager
def streaming(client: httpx.Client, text: str, count: int = LONG, **more: Any) -> Iterator[Stream]:
    """An answer of which the first words have come; to leave the block is to leave the server."""
    asked = body(text, count, stream=True, **more)
    with client.stream("POST", "/v1/completions", json=asked) as response:
        # Kept here: with its reader gone, httpx would close the response.
        stream = Stream(response)
        yield stream


@contextmanager
def sent(place: Place, text: str, *, stream: bool) -> Iterator[None]:
    """A request whose answer is not read; to leave the block is to leave the server."""
    raw = json.dumps(body(text, LONG, stream=stream)).encode()
    head = [
        "POST /v1/completions HTTP/1.1",
        f"Host: 127.0.0.1:{place.server.port}",
        f"Authorization: {place.a.headers['authorization']}",
        "Content-Type: application/json",
        f"Content-Length: {len(raw)}",
    ]
    with socket.create_connection(("127.0.0.1", place.server.port)) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode() + raw)
        yield


def busy(server: Server) -> tuple[int, int]:
    """Requests that have a slot, and those that wait for one."""
    health = server.health()
    return health["live_rows"], health["waiting"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("while_it", ["reads", "answers"])
def test_a_client_that_leaves_frees_its_slot(place: Place, while_it: str, stream: bool) -> None:
    server, before = place.server, place.server.figures()
    name = f"{while_it} {stream}"
    text = prompt(name, 2000) if while_it == "reads" else counting(name)
    with sent(place, text, stream=stream):
        server.until(lambda: busy(server) == (1, 0))
        if while_it == "answers" and stream:
            server.until(
                lambda: server.figures()["generation_tokens_total"] > before["generation_tokens_total"]
            )
    server.until(lambda: busy(server) == (0, 0), seconds=10)
    after = server.figures()
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0
    ended = {
        reason: after[f"request_success_total.{reason}"] - before[f"request_success_total.{reason}"]
        for reason in ("abort", "stop", "length", "error")
    }
    assert ended == {"abort": 1, "stop": 0, "length": 0, "error": 0}
    if while_it == "reads":
        # It was not read to its end.
        assert after["generation_tokens_total"] == before["generation_tokens_total"]
        assert ask(place.a, "hello", 1)[1]["completion_tokens"] == 1


def test_a_client_that_leaves_the_line_is_never_begun(place: Place) -> None:
    server, before = place.server, place.server.figures()
    others = [counting(name) for name in ("one", "two")]
    with ExitStack() as stack:
        for client, text in zip((place.a, place.b), others, strict=True):
            stack.enter_context(streaming(client, text))
        with sent(place, counting("three"), stream=True):
            server.until(lambda: busy(server) == (2, 1))
        server.until(lambda: busy(server) == (2, 0), seconds=10)
    server.until(lambda: busy(server) == (0, 0), seconds=10)
    after = server.figures()
    assert after["request_success_total.abort"] - before["request_success_total.abort"] == 3
    read = after["prompt_tokens_total"] - before["prompt_tokens_total"]
    assert read == sum(ask(place.a, text, 1)[1]["prompt_tokens"] for text in others)


def test_no_tenant_has_a_hit_on_what_another_one_read(place: Place) -> None:
    messages = [{"role": "user", "content": prompt("shared", 1000)}]
    (first, unread), (second, still), (again, mine), (last, own) = (
        turn(client, messages) for client in (place.a, place.b, place.a, place.b)
    )
    assert cached(unread) == cached(still) == 0
    assert cached(mine) == cached(own) == mine["prompt_tokens"] - 1
    assert first == second == again == last


def test_a_turn_reads_only_what_is_new_and_answers_as_if_all_was_read(place: Place) -> None:
    system = {"role": "system", "content": prompt("rule", 600)}
    talk: list[Any] = [system, *QUESTION]
    answer, first = turn(place.a, talk)
    second = [*talk, {"role": "assistant", "content": answer}, {"role": "user", "content": "And one more?"}]
    edited = [system, {"role": "user", "content": "Name four rivers."}]
    found = [turn(place.a, each) for each in (second, edited)]
    assert cached(found[0][1]) >= first["prompt_tokens"]
    assert first["prompt_tokens"] - 16 <= cached(found[1][1]) < first["prompt_tokens"]
    # The other tenant has read none of it: it is answered as by a server without a cache.
    cold = [turn(place.b, each) for each in (edited, second)]
    assert cached(cold[0][1]) < 16
    assert [text for text, _ in found] == [text for text, _ in reversed(cold)]


def test_a_request_is_answered_by_its_own_parameters_alone(place: Place) -> None:
    text = "The lighthouse keeper wrote down every ship that passed, and"
    mine: list[dict[str, Any]] = [
        {"repetition_penalty": 2.0},
        {"temperature": 1.0, "top_k": 1, "seed": 99},
        {"temperature": 1.0, "seed": 42},
    ]
    alone = [ask(place.a, text, 120, **each)[0] for each in mine]
    assert len(set(alone)) == 3
    for beside, short in ((0, 1), (1, 0)):
        with streaming(place.b, text, 120, **mine[beside]) as stream:
            assert alone[short].startswith(ask(place.a, text, 24, **mine[short])[0])
            stream.rest()
        assert stream.text == alone[beside]
    with streaming(place.b, text, temperature=1.5, top_k=50):
        for _ in range(2):
            assert alone[2].startswith(ask(place.a, text, 24, **mine[2])[0])


def told(books: Mapping[str, Any]) -> int:
    """Bytes in the host cache."""
    return int(books["host_cache_bytes"] + books["snapshot_bytes"])


def settled(server: Server) -> tuple[dict[str, Any], dict[str, float]]:
    """Health and figures once nothing changes them any more: the worker tells its books behind an answer."""
    seen: list[tuple[dict[str, Any], dict[str, float]]] = []

    def agree() -> bool:
        seen.append((server.health(), server.figures()))
        return len(seen) > 1 and len({told(books) for pair in seen[-2:] for books in pair}) == 1

    server.until(agree)
    return seen[-1]


def own_bytes(pid: int) -> int:
    """Bytes of a process that are of no file."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what is not of a file")
def test_the_host_cache_holds_what_it_says_and_no_more_than_its_cap(place: Place) -> None:
    server = place.server
    outside = []
    for number in range(11):
        ask(place.a, prompt(f"distinct {number}", 450), 1)
        health, figures = settled(server)
        held = told(health)
        assert held == health["cache_bytes"] == figures["host_cache_bytes"] + figures["snapshot_bytes"]
        assert 0 <= held <= health["host_cache_cap_bytes"] == figures["host_cache_cap_bytes"] == CAP
        assert health["host_cache_evictions"] == figures["host_cache_evictions_total"]
        outside.append(own_bytes(health["worker_pid"]) - held)
    assert held > CAP // 2 and health["host_cache_evictions"] > 3
    # From when both slots have been filled so far on, all that the worker grows by is in the books.
    assert max(outside[5:]) - min(outside[5:]) < CAP // 10


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="no other process can be bounded here")
def test_a_worker_that_gets_no_more_memory_answers_all_the_same(place: Place) -> None:
    """Prompts are no longer kept; should that not be enough, a new worker takes its place."""
    server, text = place.server, prompt("shortage", 450)

    def answer(client: httpx.Client, text: str, count: int) -> str:
        """Asked again while a new worker loads."""
        found: list[httpx.Response] = []

        def taken() -> bool:
            found.append(client.post("/v1/completions", json=body(text, count)))
            return found[-1].status_code != 503

        server.until(taken)
        assert found[-1].status_code == 200, found[-1].text
        return str(found[-1].json()["choices"][0]["text"])

    wanted = answer(place.a, text, 8)
    health = server.health()
    pages = int(Path(f"/proc/{health['worker_pid']}/statm").read_text().split()[0])
    before = resource.prlimit(health["worker_pid"], resource.RLIMIT_AS)
    room = pages * resource.getpagesize()
    resource.prlimit(health["worker_pid"], resource.RLIMIT_AS, (room, before[1]))
    for number in range(4):
        # Others take the slots in between, and something has to be kept.
        answer(place.b, prompt(f"other {number}", 300), 1)
    assert answer(place.a, text, 8) == wanted
    after = server.health()
    if after["worker_pid"] == health["worker_pid"]:
        resource.prlimit(after["worker_pid"], resource.RLIMIT_AS, before)


@pytest.fixture
def planets(place: Place) -> Iterator[Any]:
    """Asks, and holds the answer to the one that a calm server gives."""

    calm, _ = turn(place.a, QUESTION)

    def same() -> bool:
        return turn(place.a, QUESTION)[0] == calm

    yield same
    assert same()


def test_a_request_that_nobody_has_heard_of_survives_its_worker(place: Place, planets: Any) -> None:
    server, health = place.server, place.server.health()
    os.kill(health["worker_pid"], signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answered = pool.submit(planets)
        server.until(lambda: busy(server) == (1, 0))
        os.kill(health["worker_pid"], signal.SIGKILL)
        assert answered.result()
    after = server.health()
    assert after["worker_restarts"] == health["worker_restarts"] + 1
    assert after["worker_pid"] != health["worker_pid"]


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_stops_ends_its_streams_and_comes_back(
    place: Place, planets: Any, fault: signal.Signals
) -> None:
    server, health, before = place.server, place.server.health(), place.server.figures()
    with streaming(place.a, counting(fault.name)) as stream:
        os.kill(health["worker_pid"], fault)
        stream.rest()
    last = stream.events[-1]
    assert last["error"]["type"] == "server_error"
    assert last["request_id"] == stream.events[0]["id"]
    assert (f"stuck: no word for {STUCK} s" if fault == signal.SIGSTOP else "SIGKILL") in last["error"][
        "message"
    ]
    loading = server.get("/health")
    assert (loading.status_code, loading.json()["status"]) == (503, "loading")
    refused = place.b.post("/v1/completions", json=body("hello", 1))
    assert refused.status_code == 503 and 1 <= int(refused.headers["retry-after"]) <= 60
    server.ready()
    after = server.figures()
    assert after["worker_restarts_total"] == before["worker_restarts_total"] + 1
    assert after["request_success_total.error"] == before["request_success_total.error"] + 1
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0
