"""300 clients at once over four slots: mixed, some leaving, some malformed, and the worker killed."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.test_local import expected
from tests.load_server import SLOTS, WAITING
from tests.patience import PATIENCE
from tests.server.live import events_of
from tests.server.schema import check_response

CLIENTS, LEAVING, MALFORMED = 300, 15, 6
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


@dataclass
class Client:
    """One client: what it asks, when it leaves (None: never), and what it got."""

    path: str
    stream: bool
    prompt: str
    max_tokens: int
    malformed: bool = False
    leaves_s: float | None = None
    status: int = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    text: str = ""
    left: bool = False

    @property
    def body(self) -> dict[str, Any]:
        messages = [{"role": "user", "content": self.prompt}]
        body: dict[str, Any] = {
            "/v1/chat/completions": {"messages": messages, "max_tokens": self.max_tokens},
            "/v1/messages": {"messages": messages, "max_tokens": self.max_tokens},
            "/v1/completions": {"prompt": self.prompt, "max_tokens": self.max_tokens},
            "/v1/responses": {"input": self.prompt, "max_output_tokens": self.max_tokens},
        }[self.path]
        if self.malformed:
            body["temperature"] = "warm"
        return {**body, "stream": self.stream, "ignore_eos": True}

    @property
    def expected(self) -> str:
        """The right answer, computed without a server."""
        plain = self.path == "/v1/completions"
        return expected(self.prompt if plain else f"user:{self.prompt};assistant:", self.max_tokens)

    @property
    def answer(self) -> str | None:
        """The text that came; None where the answer broke off with an error event."""
        if not self.stream:
            return _text_of(self.path, json.loads(self.text))
        events = [event for event in events_of_any(self.text) if event != "[DONE]"]
        if any("error" in event or event.get("type") == "response.failed" for event in events):
            return None
        return "".join(_delta_of(self.path, event) for event in events)

    async def run(self, http: httpx.AsyncClient) -> None:
        try:
            async with asyncio.timeout(self.leaves_s), http.stream("POST", self.path, json=self.body) as it:
                self.status, self.headers = it.status_code, it.headers
                self.text = (await it.aread()).decode()
        except TimeoutError:
            self.left = True


def events_of_any(text: str) -> list[Any]:
    """The data of every event, named or not."""
    lines = [line for line in text.split("\n") if line.startswith("data: ")]
    return [event for line in lines for event in events_of(line)]


def _text_of(path: str, body: dict[str, Any]) -> str:
    match path:
        case "/v1/chat/completions":
            return str(body["choices"][0]["message"]["content"])
        case "/v1/completions":
            return str(body["choices"][0]["text"])
        case "/v1/messages":
            return "".join(block["text"] for block in body["content"])
        case _:
            return "".join(part["text"] for item in body["output"] for part in item["content"])


def _delta_of(path: str, event: dict[str, Any]) -> str:
    match path:
        case "/v1/chat/completions":
            return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
        case "/v1/completions":
            return "".join(choice["text"] for choice in event["choices"])
        case "/v1/messages":
            return str(event["delta"].get("text", "")) if event["type"] == "content_block_delta" else ""
        case _:
            return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""


def clients() -> list[Client]:
    dice = random.Random(300)
    made = [Client(PATHS[i % 4], i % 8 < 4, f"p{i % 50}", dice.randrange(4, 24)) for i in range(CLIENTS)]
    dice.shuffle(made)
    for one in made[:LEAVING]:
        one.leaves_s = dice.uniform(0.2, 6.0)
    for one in made[LEAVING : LEAVING + MALFORMED]:
        one.malformed = True
    dice.shuffle(made)
    return made


class Running:
    """The server's process, and what it says of itself."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process, self.url = psutil.Process(process.pid), url

    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = httpx.get(f"{self.url}/health", trust_env=False, timeout=PATIENCE).json()
        return health

    def figures(self) -> dict[str, float]:
        """Every sample of /metrics; counters of ends by their reason."""
        page = httpx.get(f"{self.url}/metrics", trust_env=False, timeout=PATIENCE).text
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                reason = sample.labels.get("finished_reason")
                found[f"{sample.name.removeprefix('mashbox:')}{'.' + reason if reason else ''}"] = (
                    sample.value
                )
        return found

    def until_idle(self) -> None:
        end = time.monotonic() + PATIENCE
        while (self.health()["live_rows"], self.health()["waiting"]) != (0, 0):
            assert time.monotonic() < end, f"it never became idle: {self.health()}"
            time.sleep(0.1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    argv = [sys.executable, "-m", "tests.load_server", str(tmp_path)]
    errors = tmp_path / "stderr"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=Path(__file__).parent.parent
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, errors.read_text()
            running = Running(process, url)
            yield running
            assert running.health()["compiles_after_ready"] == 0
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(PATIENCE)
    assert status == 0
    assert "Traceback" not in errors.read_text()


async def wave(server: Running, wanted: Sequence[Client], kill_after: float | None = None) -> None:
    """All of them at once; the worker dies when so many answers are whole."""

    async def killer() -> None:
        while True:
            await asyncio.sleep(0.05)
            figures = await asyncio.to_thread(server.figures)
            whole = figures["request_success_total.length"] + figures["request_success_total.stop"]
            health = await asyncio.to_thread(server.health)
            if whole >= (kill_after or 0) and health["live_rows"]:
                os.kill(health["worker_pid"], signal.SIGKILL)
                return

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=server.url, limits=limits, timeout=PATIENCE, trust_env=False
    ) as http:
        tasks = [asyncio.create_task(one.run(http)) for one in wanted]
        if kill_after is not None:
            tasks.append(asyncio.create_task(killer()))
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)


def judge(one: Client) -> str:
    """How it ended, in a word; asserts that it was right."""
    if one.left:
        return "left"
    check_response(one.path, "POST", one.status, one.text)
    if one.malformed:
        assert one.status == 400
        return "malformed"
    if one.status in (429, 529):
        assert one.status == (529 if one.path == "/v1/messages" else 429)
        assert 1 <= int(one.headers["retry-after"]) <= 60
        return "refused"
    assert one.status == 200, one.text
    if one.answer is None:
        return "broken"
    assert one.answer == one.expected
    return "whole"


@pytest.mark.slow
def test_every_one_of_300_clients_gets_its_due(server: Running) -> None:
    asyncio.run(wave(server, [Client(path, i % 2 == 0, "warm", 4) for path in PATHS for i in range(15)]))
    server.until_idle()
    before, memory, files = server.figures(), server.process.memory_info().rss, server.process.num_fds()

    crowd = clients()
    asyncio.run(wave(server, crowd, kill_after=60 + 80))
    server.until_idle()

    ends = Counter(judge(one) for one in crowd)
    print(
        "ENDS",
        ends,
        server.process.memory_info().rss - memory,
        server.process.num_fds() - files,
        Counter(o.status for o in crowd),
    )
    assert sum(ends.values()) == CLIENTS
    assert ends["malformed"] == MALFORMED
    assert 0 < ends["left"] <= LEAVING
    # One that streams may end with the worker; all else that was taken is answered, and most are taken.
    assert ends["broken"] <= SLOTS
    assert ends["whole"] >= WAITING - LEAVING - SLOTS
    _adds_up(before, server.figures(), crowd, ends)
    assert server.health()["status"] == "ok"
    assert server.process.num_fds() <= files + 4
    assert server.process.memory_info().rss - memory < 48 << 20


def _adds_up(
    before: dict[str, float], after: dict[str, float], crowd: list[Client], ends: Counter[str]
) -> None:
    """The counters hold what the clients saw; those who left may have been whole, or refused."""
    ended = {
        reason: after[f"request_success_total.{reason}"] - before[f"request_success_total.{reason}"]
        for reason in ("stop", "length", "abort", "error")
    }
    whole = ended["stop"] + ended["length"]
    assert ends["whole"] <= whole <= ends["whole"] + ends["left"]
    assert ended["error"] == ends["broken"]
    assert ended["abort"] <= ends["left"]
    assert after["worker_restarts_total"] - before["worker_restarts_total"] == 1
    assert (after["num_requests_running"], after["num_requests_waiting"]) == (0, 0)
    seen = sum(one.max_tokens for one in crowd if not one.left and one.status == 200 and one.answer)
    counted = after["generation_tokens_total"] - before["generation_tokens_total"]
    unseen = sum(one.max_tokens for one in crowd if one.left or (one.status == 200 and not one.answer))
    assert seen <= counted <= seen + unseen
    assert after["request_prompt_tokens_count"] - before["request_prompt_tokens_count"] == whole
