"""Serving speed against llama-server over HTTP, on the same file, slots and threads, in turn.

    python benchmarks/serving.py --peer path/to/llama.cpp/build/bin --model smollm2-135m

Both servers run all the time and each figure is taken from one and then the other, A B B A, so that a
drifting clock hits both; ratios are ours by the peer's pair by pair, above 1 where ours is better. Prints a
table.

decode     answers of --tokens tokens to prompts of about 75, so many at a time; tokens a second of all
           streams together while all are at work. Sampled (temperature 1, top_k 40, top_p 0.95), since greedy
           answers of small models run in circles, which flatters guessing.
context    the same for one stream behind a prompt of about 2,000 tokens
prefill    tokens of a new prompt by the time to the first token of its answer
edit       a text that was in the prompt three times goes on, greedy: what guessing by lookup can win
bandwidth  bytes that a decode step of one stream must read (weights of the file, and the cache's keys and
           values in half precision) by its time, as a share of the best that a plain loop reads with as many
           threads (bandwidth.c)
start      from the command to the first answer of /health that says ok, and resident memory of all processes
           after one answered request, each server started alone
engine     benchmarks/engine.py: without a server, against llama-bench
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import start
from servers import free_port, machine, mashbox_command, peer_command, ratio_row, serving, url_of

from mashbox.cli.measure.target import Target
from mashbox.cli.measure.texts import Messages, Texts, plain
from mashbox.cli.measure.units import Streams, rate_in_all, waited
from mashbox.engine.dialect import Dialect
from mashbox.engine.prompt import encode
from mashbox.engine.request import Conversation, Request
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.facts import read_facts
from mashbox.gguf_file import GGUFFile
from mashbox.pull import Silent, ensure
from mashbox.store import LocalModel

FIGURES = ("decode", "context", "prefill", "edit", "bandwidth", "start", "engine")
STREAMS = (1, 4, 8)
PROMPTS = (512, 2_048)
LONG = 2_000
SHORT = 75
EDIT_WORDS = 120
PATIENCE = 600.0
TRIES = 8
PROBE_MIB, PROBE_PASSES = 512, 10

SAMPLED = {"temperature": 1.0, "top_k": 40, "top_p": 0.95, "min_p": 0.0}
GREEDY = {"temperature": 0.0}

Measure = Callable[[Target, Texts], float]


@dataclass(frozen=True)
class Bench:
    """What all figures are taken with."""

    model: LocalModel
    chat: bool
    count: Callable[[Messages], int]
    tokens: int
    threads: int
    pairs: int
    slots: int
    ctx: int
    peer: Path | None
    engine: str
    activations: int

    def commands(self) -> list[tuple[str, list[str], int]]:
        """Name, command and port of each server."""
        same = ["--threads", str(self.threads)]
        port = free_port()
        ours = [
            *mashbox_command(str(self.model.weights), port, self.ctx, self.slots),
            "--engine",
            self.engine,
            "--activations",
            str(self.activations),
        ]
        found = [("mashbox", [*ours, *same], port)]
        if self.peer:
            port = free_port()
            command = peer_command(self.peer, str(self.model.weights), port, self.ctx, self.slots)
            found.append(("llama-server", [*command, *same], port))
        return found

    def target(self, name: str, port: int, sampling: dict[str, float], *, chat: bool | None = None) -> Target:
        chat = self.chat if chat is None else chat
        return Target(name, url_of(port), chat=chat, sampling=sampling)

    def prompt(self, texts: Texts, tokens: int) -> Messages:
        """A new prompt of just about ``tokens`` tokens, by the model's own tokenizer."""
        fixed = self.count(texts.story(1))
        each = (self.count(texts.story(101)) - fixed) / 100
        return texts.story(max(1, round((tokens - fixed) / each)))


def counter(model: LocalModel, tokenizer: ModelTokenizer, *, chat: bool) -> Callable[[Messages], int]:
    """How many tokens a prompt has, as both servers must count it."""
    if not chat:
        return lambda messages: len(encode(tokenizer, plain(messages)).ids)
    dialect = Dialect(tokenizer, model.spec.tools if model.spec else None)

    def count(messages: Messages) -> int:
        prompt = Conversation(messages=[dict(message) for message in messages])
        return len(dialect.encode(Request(id="count", prompt=prompt)).ids)

    return count


def decode(bench: Bench, streams: int) -> Measure:
    def measure(target: Target, texts: Texts) -> float:
        unit = Streams(streams, tokens=bench.tokens)
        rate = rate_in_all(unit.run(target, texts, time.monotonic() + PATIENCE))
        return known(rate, target)

    return measure


def after(bench: Bench, prompt: Callable[[Texts], Messages]) -> Measure:
    """Tokens a second behind a prompt, its reading apart."""

    def measure(target: Target, texts: Texts) -> float:
        # A sampled answer may end at once: another prompt then.
        for seed in range(TRIES):
            answer = target.ask(prompt(texts), bench.tokens, time.monotonic() + PATIENCE, seed=seed)
            if answer.tokens >= bench.tokens // 4:
                break
        return known(rate_in_all([answer]), target)

    return measure


def prefill(bench: Bench, tokens: int) -> Measure:
    def measure(target: Target, texts: Texts) -> float:
        prompt = bench.prompt(texts, tokens)
        answer = target.ask(prompt, 1, time.monotonic() + PATIENCE)
        return (bench.count(prompt) - (answer.cached or 0)) / waited(answer)

    return measure


def repeated(texts: Texts) -> Messages:
    """A text three times and its beginning once more."""
    words = texts.words(EDIT_WORDS)
    return [{"role": "user", "content": f"{words}\n\n{words}\n\n{words}\n\n{' '.join(words.split()[:8])}"}]


def known(rate: float | None, target: Target) -> float:
    if rate is None:
        raise SystemExit(f"{target.name} gave no second token: its answers end at once.")
    return rate


def in_turn(bench: Bench, targets: Sequence[Target], name: str, measure: Measure) -> list[list[float]]:
    """What was measured of each server, pair by pair; both read the same texts."""
    results: list[list[float]] = [[] for _ in targets]
    for pair in range(bench.pairs):
        order = range(len(targets)) if pair % 2 == 0 else reversed(range(len(targets)))
        for place in order:
            results[place].append(measure(targets[place], Texts(f"{name} {pair}")))
    return results


def served(bench: Bench, figures: Sequence[str]) -> None:
    """Print the rows of all figures that need both servers to run, each as it is known."""
    with ExitStack() as stack:
        ports = []
        for name, command, port in bench.commands():
            stack.enter_context(serving(command, port))
            ports.append((name, port))
        sampled = [bench.target(name, port, SAMPLED) for name, port in ports]
        greedy = [bench.target(name, port, GREEDY, chat=False) for name, port in ports]
        for target in (*sampled, *greedy):  # what is only slow at first
            target.ask(Texts("warm up").story(40), 16, time.monotonic() + PATIENCE)

        def take(name: str, targets: Sequence[Target], measure: Measure) -> None:
            print(f"{name} ...", file=sys.stderr, flush=True)
            results = in_turn(bench, targets, name, measure)
            peer = results[1] if len(results) > 1 else []
            print(ratio_row(name, results[0], peer, unit="t/s"), flush=True)

        for streams in STREAMS if "decode" in figures else ():
            name = f"decode, {streams} stream{'s in all' if streams > 1 else ''}"
            take(name, sampled, decode(bench, streams))
        if "bandwidth" in figures:
            bandwidth(bench, sampled)
        if "context" in figures:
            name = f"decode at {LONG:,} tokens of context"
            take(name, sampled, after(bench, lambda texts: bench.prompt(texts, LONG)))
        for tokens in PROMPTS if "prefill" in figures else ():
            take(f"prefill, {tokens:,} tokens", sampled, prefill(bench, tokens))
        if "edit" in figures:
            take("copying a text, 1 stream", greedy, after(bench, repeated))


def step_bytes(model: LocalModel, context: float) -> float:
    """What a decode step must read: weights (an embedding only where it is the output too), and the cache.

    Of the cache, half-precision keys and values of ``context`` tokens; windows are longer than that here.
    """
    file = GGUFFile(model.weights)
    skipped = "token_embd.weight" if "output.weight" in file.tensors else ""
    weights = sum(info.nbytes for name, info in file.tensors.items() if name != skipped)
    return weights + context * read_facts(model.weights, model.format).kv_bytes_per_token(2)


def bandwidth(bench: Bench, targets: Sequence[Target]) -> None:
    """Share of the machine's read bandwidth that decoding reaches; the probe runs before each pair."""
    print("memory bandwidth ...", file=sys.stderr, flush=True)
    needed = step_bytes(bench.model, SHORT + bench.tokens / 2)
    shares: list[list[float]] = [[] for _ in targets]
    probes = []
    with tempfile.TemporaryDirectory(prefix="bandwidth-") as folder:
        probe = Path(folder) / "bandwidth"
        source = Path(__file__).with_name("bandwidth.c")
        subprocess.run(["cc", "-O3", "-march=native", "-pthread", source, "-o", probe], check=True)
        command = [str(probe), str(bench.threads), str(PROBE_MIB), str(PROBE_PASSES)]
        for pair in range(bench.pairs):
            probes.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            for place, target in enumerate(targets):
                rate = decode(bench, 1)(target, Texts(f"bandwidth {pair}"))
                shares[place].append(rate * needed / probes[-1])
    name = f"share of read bandwidth in decode ({statistics.median(probes) / 1e9:.1f} GB/s measured)"
    print(ratio_row(name, shares[0], shares[1] if len(shares) > 1 else [], unit=""), flush=True)


def starts(bench: Bench) -> None:
    """Seconds to ready and resident megabytes, second starts and later ones only."""
    print("start ...", file=sys.stderr, flush=True)
    seconds: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for pair in range(bench.pairs + 1):
        for name, command, port in bench.commands():
            took, parts = start.measure(command, port)
            if pair:
                seconds.setdefault(name, []).append(took)
                memory.setdefault(name, []).append(sum(parts))
    both = [list(each.values()) for each in (seconds, memory)]
    for name, unit, results in zip(
        ("command to ready", "resident memory, all processes"), ("s", "MB"), both, strict=True
    ):
        peer = results[1] if len(results) > 1 else []
        print(ratio_row(name, results[0], peer, unit=unit, lower=True), flush=True)


def without_server(bench: Bench) -> None:
    """benchmarks/engine.py's own table."""
    command = [
        sys.executable,
        str(Path(__file__).with_name("engine.py")),
        "--model",
        str(bench.model.weights),
    ]
    command += ["--engine", bench.engine, "--activations", str(bench.activations)]
    command += ["--threads", str(bench.threads), "--runs", str(bench.pairs)]
    subprocess.run([*command, *(["--peer", str(bench.peer)] if bench.peer else [])], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a catalogue id or a GGUF file")
    parser.add_argument("--peer", type=Path, help="folder with llama-server and llama-bench")
    parser.add_argument("--figures", default=",".join(FIGURES[:-1]), help="some of them")
    parser.add_argument("--engine", default="fast", help="as of mashbox run")
    parser.add_argument("--activations", type=int, default=16, choices=(16, 8), help="as of mashbox run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--ctx", type=int, default=4_096, help="tokens a slot")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    figures = options.figures.split(",")
    if unknown := set(figures) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(unknown)}")
    # Both are told how many threads they have; an inherited limit would bind one of them only.
    os.environ.pop("OMP_NUM_THREADS", None)
    model = ensure(options.model, Silent())
    chat = (model.tokenizer / "chat_template.jinja").is_file()
    bench = Bench(
        model=model,
        chat=chat,
        count=counter(model, ModelTokenizer.load(model.tokenizer), chat=chat),
        tokens=options.tokens,
        threads=options.threads,
        pairs=options.pairs,
        slots=options.slots,
        ctx=options.ctx,
        peer=options.peer,
        engine=options.engine,
        activations=options.activations,
    )
    shape = f"{bench.threads} threads, {bench.slots} slots of {bench.ctx:,} tokens"
    print(f"{machine()}; {model.weights.name}, {shape}; {bench.pairs} pairs\n")
    if figures != ["engine"]:
        print("| figure | mashbox | llama-server | ratio, median | ratio, range |")
        print("|---|---|---|---|---|", flush=True)
    if set(figures) - {"start", "engine"}:
        served(bench, figures)
    if "start" in figures:
        starts(bench)
    if "engine" in figures:
        print(flush=True)
        without_server(bench)


if __name__ == "__main__":
    main()
