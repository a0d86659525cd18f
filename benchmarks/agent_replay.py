"""Replay of coding agents' sessions: prompts sent again and again with a little more at the end.

    python benchmarks/agent_replay.py --model smollm2-135m --peer path/to/llama.cpp/build/bin
    python benchmarks/agent_replay.py --model smollm2-135m --peer path/to/llama.cpp/build/bin --long

A session begins with a system prompt that describes tools (all sessions have the same) and grows by an
assistant's text and a tool's result each turn. The assistant's texts are scripted, whatever the servers
answered, so that both read the same prompts. Each server is started afresh for each replay, `mashbox run` and
then llama-server, on the same file, slots, context, threads and limit of host memory for cached prompts.

``--long`` replays one session from 8,000 tokens towards ``--long-to``, on a copy of the file whose context
length is raised. Prompts are the script's own, so what a model of a shorter context answers does not matter.

Tokens that had to be read are those of each prompt behind the longest beginning that it shares with any other
prompt before it, one at least. A server can come out a few below that where its answer happened to begin like
the script's.
"""

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import free_port, mashbox_command, peer_command, serving, url_of

from mashbox.engine.dialect import Dialect
from mashbox.engine.request import Conversation, Request
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.store import LocalModel, find

TURNS, LONG_TURNS = 15, 30
LONG_FROM = 8_000
SYSTEM_TOKENS = 1_500
# Lines are whole: with one more or less, each turn adds 100 to 300 tokens.
GROWTH = (110, 290)
# What a turn has besides its lines: the markers of two messages, their first lines, half a line too many.
FRAME = 54
TURN_SECONDS = 1_800
WARM_UP = [{"role": "user", "content": "Say hello."}]

Messages = list[dict[str, Any]]
Count = Callable[[str], int]


@dataclass(frozen=True)
class Turn:
    """One answer: seconds to its first text, tokens of its prompt, how many were read, and written."""

    first: float
    prompt: int
    read: int
    written: int


@dataclass(frozen=True)
class Replay:
    """All turns of all sessions on one server; ``seconds`` from the first request to the last answer."""

    seconds: float
    turns: list[Turn]

    def first(self, share: float) -> float:
        """Seconds to the first text that ``share`` of the turns took at most (nearest rank)."""
        times = sorted(turn.first for turn in self.turns)
        return times[math.ceil(share * len(times)) - 1]

    @property
    def read(self) -> int:
        return sum(turn.read for turn in self.turns)

    @property
    def written(self) -> int:
        return sum(turn.written for turn in self.turns)


def lines(rng: random.Random, tokens: int, count: Count) -> str:
    """Lines as a tool prints them, of about ``tokens`` tokens."""
    verbs = ("opens", "reads", "writes", "checks", "joins", "splits", "moves", "keeps", "drops")
    things = ("file", "branch", "record", "parser", "buffer", "index", "socket", "field", "header", "queue")
    text: list[str] = []
    while tokens > 0:
        path = f"src/{rng.choice(things)}_{rng.choice(things)}.py"
        line = f"{path}:{rng.randrange(1, 900)}: {rng.choice(verbs)} the {rng.choice(things)}"
        tokens -= count(line + "\n")
        text.append(line)
    return "\n".join(text)


def system_prompt(count: Count) -> str:
    """Rules and tools of an agent, about ``SYSTEM_TOKENS`` tokens. In the text, since templates differ."""
    rng = random.Random("system")
    text = "You are a coding agent. Use the tools below, one call at a time, and keep to the rules.\n"
    for name in ("read_file", "write_file", "edit_file", "list_files", "search", "run_command", "ask_user"):
        fields = {field: {"type": "string"} for field in ("path", "text", "reason")}
        tool = {"name": name, "description": lines(rng, 60, count), "parameters": fields}
        text += json.dumps(tool) + "\n"
    return text + "Rules:\n" + lines(rng, SYSTEM_TOKENS - count(text), count)


def session(
    number: int, turns: int, system: str, first: int, growth: tuple[int, int], count: Count
) -> Messages:
    """The whole session: a system message, then a user's and an assistant's in turn.

    The first user message has ``first`` tokens, and each turn adds between the two of ``growth``, a third of
    them the assistant's.
    """
    rng = random.Random(f"session {number}")
    messages = [{"role": "system", "content": system}]
    asked = f"Task {number}: tell at length what these lines do.\n" + lines(rng, first, count)
    for turn in range(1, turns + 1):
        messages.append({"role": "user", "content": asked})
        added = rng.randint(*growth)
        said = f"Step {turn}: I looked at these lines.\n" + lines(rng, added // 3, count)
        messages.append({"role": "assistant", "content": said})
        asked = f"The result of step {turn}; tell at length.\n" + lines(
            rng, added - added // 3 - FRAME, count
        )
    return messages


def prompts_of(messages: Messages) -> list[Messages]:
    """What is sent at each turn: everything before each of the assistant's texts."""
    return [messages[:at] for at, message in enumerate(messages) if message["role"] == "assistant"]


def had_to_be_read(prompts: list[list[int]], before: list[int]) -> int:
    """Tokens of ``prompts`` that no earlier one began with, ``before`` being read first.

    The order of sessions does not matter: together they are the branches of one tree.
    """
    earlier, total = [before], 0
    for ids in prompts:
        shared = max(_shared(ids, other) for other in earlier)
        total += max(1, len(ids) - shared)
        earlier.append(ids)
    return total


def _shared(left: list[int], right: list[int]) -> int:
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))


def ask(url: str, messages: Messages, limit: int) -> Turn:
    """One streamed answer, greedy, of at most ``limit`` tokens."""
    body = {"messages": messages, "max_tokens": limit, "temperature": 0, "stream": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    began = time.monotonic()
    first: float | None = None
    timings: dict[str, Any] | None = None
    with urllib.request.urlopen(request, timeout=TURN_SECONDS) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            if "error" in chunk:
                raise SystemExit(f"{url} answered {chunk['error']}")
            timings = chunk.get("timings") or timings
            if first is None and any(choice["delta"].get("content") for choice in chunk["choices"]):
                first = time.monotonic() - began
    if timings is None:
        raise SystemExit(f"{url} reported no timings.")
    # An answer that is empty has no first text: its end is what the client waited for.
    seconds = first if first is not None else time.monotonic() - began
    prompt = timings["prompt_n"] + timings["cache_n"]
    return Turn(first=seconds, prompt=prompt, read=timings["prompt_n"], written=timings["predicted_n"])


def replay(url: str, sessions: list[list[Messages]], limit: int) -> Replay:
    """Every session in a thread of its own; each sends its next turn when it has its answer."""

    def one(prompts: list[Messages]) -> list[Turn]:
        return [ask(url, messages, limit) for messages in prompts]

    ask(url, WARM_UP, limit)
    with ThreadPoolExecutor(len(sessions)) as pool:
        began = time.monotonic()
        turns = list(pool.map(one, sessions))
        seconds = time.monotonic() - began
    return Replay(seconds, [turn for each in turns for turn in each])


@contextmanager
def longer_copy(weights: Path, context: int) -> Iterator[Path]:
    """A copy of a GGUF file that says it takes ``context`` tokens, in a folder that goes away."""
    import gguf

    with tempfile.TemporaryDirectory(prefix="agent-replay-") as folder:
        copy = Path(shutil.copyfile(weights, Path(folder) / f"{weights.stem}-long.gguf"))
        reader = gguf.GGUFReader(copy, "r+")
        family = reader.get_field("general.architecture").contents()
        field = reader.get_field(f"{family}.context_length")
        field.parts[field.data[0]][0] = context
        reader.data.flush()
        yield copy


@dataclass(frozen=True)
class Shape:
    """What both servers are started with; ``home`` is the folder of mashbox's files, None for the usual."""

    model: str
    weights: Path
    ctx: int
    slots: int
    threads: int
    cache_mib: int
    peer: Path | None
    home: str | None = None

    def servers(self) -> Iterator[tuple[str, list[str], int, dict[str, str]]]:
        """Name, command, port and further environment of each server."""
        same = ["--threads", str(self.threads), "--cache-ram", str(self.cache_mib)]
        port = free_port()
        command = mashbox_command(self.model, port, self.ctx, self.slots)
        yield "mashbox run", [*command, *same], port, {"MASHBOX_HOME": self.home} if self.home else {}
        if self.peer:
            port = free_port()
            command = peer_command(self.peer, str(self.weights), port, self.ctx, self.slots)
            yield "llama-server", [*command, *same], port, {}


def compare(shape: Shape, sessions: list[Messages], dialect: Dialect, limit: int) -> None:
    """Replays on each server and prints the rows of the table."""
    prompts = [prompts_of(messages) for messages in sessions]
    ids = [[encoded(dialect, messages) for messages in each] for each in prompts]
    needed = had_to_be_read([one for each in ids for one in each], encoded(dialect, WARM_UP))
    lengths = [len(one) for each in ids for one in each]
    if max(lengths) + limit > shape.ctx:
        raise SystemExit(f"A prompt of {max(lengths):,} tokens does not fit: take a larger --ctx.")
    results = []
    for name, command, port, env in shape.servers():
        with serving(command, port, env):
            result = replay(url_of(port), prompts, limit)
        if [turn.prompt for turn in result.turns] != lengths:
            print(f"{name} rendered other prompts: its tokens don't compare.", file=sys.stderr)
        print(f"| {len(sessions)} | {name} | {figures(result, needed)} |", flush=True)
        results.append(result)
    if len(results) == 2:
        print(f"| {len(sessions)} | ratio | {ratios(*results)} |", flush=True)


def encoded(dialect: Dialect, messages: Messages) -> list[int]:
    return dialect.encode(Request(id="count", prompt=Conversation(messages=messages))).ids


def figures(result: Replay, needed: int) -> str:
    cells = [
        f"{result.seconds:.1f}",
        f"{result.first(0.5):.2f}",
        f"{result.first(0.95):.2f}",
        f"{result.read:,}",
        f"{needed:,}",
        f"{result.read / needed:.3f}",
        f"{result.written:,}",
    ]
    return " | ".join(cells)


def ratios(ours: Replay, peer: Replay) -> str:
    """Ours by the peer's, for what compares."""
    cells = [
        f"{ours.seconds / peer.seconds:.2f}",
        f"{ours.first(0.5) / peer.first(0.5):.2f}",
        f"{ours.first(0.95) / peer.first(0.95):.2f}",
        f"{ours.read / peer.read:.2f}",
        "",
        "",
        f"{ours.written / peer.written:.2f}",
    ]
    return " | ".join(cells)


def short(options: argparse.Namespace, model: LocalModel, dialect: Dialect, count: Count) -> None:
    system = system_prompt(count)
    shape = Shape(
        model=options.model,
        weights=model.weights,
        ctx=options.ctx or 8_192,
        slots=options.slots,
        threads=options.threads,
        cache_mib=options.cache_ram,
        peer=options.peer,
    )
    for number in options.sessions:
        turns = options.turns or TURNS
        sessions = [session(each, turns, system, GROWTH[0], GROWTH, count) for each in range(1, number + 1)]
        compare(shape, sessions, dialect, options.answer)


def long(options: argparse.Namespace, model: LocalModel, dialect: Dialect, count: Count) -> None:
    turns = options.turns or LONG_TURNS
    growth = (options.long_to - options.long_from) // max(1, turns - 1)
    first = max(GROWTH[0], options.long_from - SYSTEM_TOKENS)
    script = session(1, turns, system_prompt(count), first, (growth, growth), count)
    # A line more or less a turn: what the last prompt has, and its answer, decide how much context it takes.
    needed = len(encoded(dialect, script[:-1])) + options.answer
    ctx = options.ctx or math.ceil(needed / 1_024) * 1_024
    with longer_copy(model.weights, ctx) as copy, tempfile.TemporaryDirectory(prefix="mashbox-") as home:
        shape = Shape(
            model=str(copy),
            weights=copy,
            ctx=ctx,
            slots=options.slots,
            threads=options.threads,
            cache_mib=options.cache_ram,
            peer=options.peer,
            home=home,
        )
        compare(shape, [script], dialect, options.answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a pulled GGUF model or a path")
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--sessions", type=int, nargs="+", default=[1, 4], help="how many at once, each a replay"
    )
    parser.add_argument("--turns", type=int, help=f"default {TURNS}, with --long {LONG_TURNS}")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--ctx", type=int, help="tokens a slot; default 8,192, with --long what it takes")
    parser.add_argument("--answer", type=int, default=16, help="most tokens of an answer")
    parser.add_argument("--cache-ram", type=int, default=4_096, help="MiB of host memory for cached prompts")
    parser.add_argument("--long", action="store_true", help="the long session instead")
    parser.add_argument("--long-from", type=int, default=LONG_FROM, help="tokens of its first prompt")
    parser.add_argument("--long-to", type=int, default=40_000, help="tokens of its last prompt, about")
    options = parser.parse_args()
    model = find(options.model)
    tokenizer = ModelTokenizer.load(model.tokenizer)
    dialect = Dialect(tokenizer, model.spec.tools if model.spec else None)
    print(
        "| sessions | server | total s | first text p50 s | p95 s"
        " | tokens read | had to be read | read by had to | written |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    replays = long if options.long else short
    replays(options, model, dialect, lambda text: len(tokenizer.encode_text(text, specials=False)))


if __name__ == "__main__":
    main()
