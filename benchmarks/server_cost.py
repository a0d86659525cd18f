"""What the server process costs a token: processor seconds per 1,000 tokens, without a model.

    python benchmarks/server_cost.py --model smollm2-135m --streams 16 --rate 2000

A worker that speaks the engine's messages hands out the tokens of a real text at a fixed rate, one to every
stream a step, as a model would. All else is real: pipe, detokenizer, parser, encoder, HTTP. Clients read as
fast as they can, in this process, whose cost does not count. ``--profile FILE`` writes the server's profile.
"""

import argparse
import asyncio
import cProfile
import json
import queue
import statistics
import sys
import threading
import time
from pathlib import Path

import psutil
from servers import free_port, serving, url_of

TEXT = (
    "The quick brown fox jumps over the lazy dog, and nobody minds. for (int i = 0; i < 10; ++i) { total += "
    "values[i]; }  Straße, naïve, 東京, 🙂.\n\n- first, 12,345.67\n- second\n"
)


def work(tokens: list[int], rate: float) -> None:
    """The worker: tokens for every live request, ``rate`` in all a second."""
    from mashbox.engine import wire

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    start = wire.read_down(source)
    assert isinstance(start, wire.Start)

    def listen() -> None:
        while (message := wire.read_down(source)) is not None:
            inbox.put(message)
        inbox.put(None)

    threading.Thread(target=listen, daemon=True).start()

    def send(message: object) -> None:
        sink.write(wire.pack(message))  # type: ignore[arg-type]
        sink.flush()

    send(
        wire.Ready(
            engine="fast",
            architecture="none",
            ctx=start.ctx,
            slots=start.slots,
            weight_bytes=0,
            kv_bytes=0,
            vocab_size=1,
        )
    )
    live: dict[int, list[int]] = {}
    due = time.monotonic()
    while True:
        while not live or not inbox.empty():
            message = inbox.get()
            if message is None or isinstance(message, wire.Shutdown):
                return
            if isinstance(message, wire.Submit):
                live[message.id] = [0, message.max_tokens]
                due = max(due, time.monotonic())
            elif isinstance(message, wire.Cancel):
                live.pop(message.id, None)
        due += len(live) / rate
        time.sleep(max(0.0, due - time.monotonic()))
        rows = []
        for number, state in live.items():
            state[0] += 1
            token = tokens[(state[0] + 7 * number) % len(tokens)]
            rows.append(wire.Row(number, [token], "length" if state[0] == state[1] else None))
        live = {number: state for number, state in live.items() if state[0] < state[1]}
        send(wire.Tokens(rows))


def serve_here(model: str, port: int, slots: int, rate: float, profile: str | None) -> None:
    """The server, over that worker."""
    from mashbox.engine.local import LocalEngine
    from mashbox.engine.settings import EngineSettings
    from mashbox.engine.tokenizer import ModelTokenizer
    from mashbox.facts import read_facts
    from mashbox.server.app import create_app
    from mashbox.server.serve import serve
    from mashbox.server.settings import ServerSettings
    from mashbox.store import find

    local = find(model)
    tokens = ModelTokenizer.load(local.tokenizer).encode_text(TEXT, specials=False)
    worker = (sys.executable, __file__, "--worker", json.dumps(tokens), "--rate", str(rate))
    facts = read_facts(local.weights, local.format)
    engine = LocalEngine(local, facts, EngineSettings(ctx=8192, slots=slots), worker)
    settings = ServerSettings(port=port, waiting_in_all=512, waiting_per_tenant=512)
    if profile:
        with cProfile.Profile() as found:
            serve(create_app(engine, settings), settings)
        found.dump_stats(profile)
    else:
        serve(create_app(engine, settings), settings)


async def stream(port: int, route: str, body: dict[str, object]) -> int:
    """One streamed answer over a plain socket; the events that came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = (
        f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    whole = await reader.read()
    writer.close()
    if b" 200 " not in whole[:20]:
        raise SystemExit(f"The server said: {whole[:300]!r}")
    return whole.count(b"\ndata: ")


async def streams(port: int, route: str, count: int, tokens: int) -> int:
    content: dict[str, object] = {"messages": [{"role": "user", "content": "Hello"}]}
    if route == "/v1/completions":
        content = {"prompt": "Hello"}
    body = {**content, "max_tokens": tokens, "stream": True}
    return sum(await asyncio.gather(*(stream(port, route, body) for _ in range(count))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer and template are used")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=500, help="new tokens of each stream")
    parser.add_argument("--rate", type=float, default=2000.0, help="tokens a second in all")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--route", default="/v1/chat/completions")
    parser.add_argument("--profile", help="write the server's profile there (it then costs more)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(json.loads(options.worker), options.rate)
    elif options.serve:
        serve_here(options.model, options.serve, options.streams, options.rate, options.profile)
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    port = free_port()
    command = [sys.executable, __file__, "--serve", str(port), "--model", options.model]
    command += ["--streams", str(options.streams), "--rate", str(options.rate)]
    if options.profile:
        command += ["--profile", str(Path(options.profile).absolute())]
    costs = []
    with serving(command, port) as process:
        server = psutil.Process(process.pid)
        asyncio.run(streams(port, options.route, options.streams, 20))
        for _ in range(options.runs):
            before, began = sum(server.cpu_times()[:2]), time.monotonic()
            events = asyncio.run(streams(port, options.route, options.streams, options.tokens))
            took, cost = time.monotonic() - began, sum(server.cpu_times()[:2]) - before
            tokens = options.streams * options.tokens
            costs.append(cost / tokens * 1000)
            print(f"{tokens} tokens in {took:.2f} s, {events} events: {cost:.2f} s of the server's processor")
    print(f"{url_of(port)}{options.route}, {options.streams} streams")
    print(f"processor seconds per 1,000 tokens: {statistics.median(costs):.3f} (median of {options.runs})")


if __name__ == "__main__":
    main()
