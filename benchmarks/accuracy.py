"""How far from the float32 reference are the distributions that tokens are drawn from, ours and the peer's?

    python benchmarks/accuracy.py --peer path/to/llama.cpp/build/bin --model smollm2-135m

The texts are sampled at temperature 1 by the fast engine behind a few beginnings. The reference is
transformers' own module in float32 on the file's weights, one plain forward pass. Ours is read token by
token, as in decoding, from the engine itself; the peer's from llama-server's /completion, one request a
position (its prompt is the text so far, of which its cache knows all but the last token), with the
log-probabilities of the --top likeliest tokens out of the whole vocabulary, before any sampling.

KL is KL(reference ‖ engine) in nats, the mean over positions. "whole": over the whole vocabulary. "top":
over the engine's own --top likeliest tokens and one more term for all others together, which is all that a
server tells:

    sum over the top of p ln(p / q)  +  P ln(P / Q),  P = 1 - sum p,  Q = 1 - sum q over the top

It is at most the whole one (merging tokens can only lower it), and the same for both. Top-1 agreement: the
share of positions at which the likeliest token is the reference's.
"""

import argparse
import json
import math
import os
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from servers import free_port, machine, peer_command, serving, url_of

from mashbox.engine.prompt import encode
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.wire import Start
from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.pull import Silent, ensure
from mashbox.store import LocalModel

BEGINNINGS = (
    "The ferry leaves at six, when the gulls are still asleep on the harbour wall.",
    "def total(rows):\n    return sum(",
    "Name three planets, and say which of them is the largest.",
    "In the year 1900 the city had",
)
SMALLEST = 1e-12
"""A probability that rounding made nothing of, or less."""


@dataclass(frozen=True)
class Row:
    """One engine; ``whole`` is None where only the top is known."""

    name: str
    whole: float | None
    top: float
    agreement: float
    positions: int


def logits_of(runner: Any, ids: Sequence[int]) -> torch.Tensor:
    """Float32 [tokens, vocab]: what follows each token, read one at a time as in decoding."""
    runner.reset(0)
    rows = [runner.prefill(0, ids[:1], logits=True).copy()]
    rows += [runner.decode([0], [token])[0].copy() for token in ids[1:]]
    return torch.from_numpy(np.stack(rows))


def sampled(runner: Any, beginning: list[int], tokens: int, seed: int) -> list[int]:
    """The beginning and ``tokens`` more, drawn at temperature 1."""
    random = torch.Generator().manual_seed(seed)
    ids = list(beginning)
    runner.reset(0)
    logits = runner.prefill(0, ids, logits=True)
    for _ in range(tokens):
        chances = torch.softmax(torch.from_numpy(logits.reshape(-1)), -1)
        ids.append(int(torch.multinomial(chances, 1, generator=random)))
        logits = runner.decode([0], [ids[-1]])
    return ids


def runner_of(model: LocalModel, options: argparse.Namespace, **more: Any) -> Any:
    wanted = Start(
        model=str(model.weights),
        format=model.format,
        ctx=2 * options.tokens + 64,
        slots=1,
        engine="fast",
        threads=options.threads,
        **more,
    )
    return build_runner(wanted, lambda *_: None)[0]


def reference(model: LocalModel, texts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Log-probabilities, float64 [tokens, vocab] for each text."""
    module: Any = load_gguf(Path(model.weights), torch.float32, lambda *_: None).module
    module.set_attn_implementation("sdpa" if module._supports_sdpa else "eager")
    found = []
    for ids in texts:
        with torch.inference_mode():
            logits = module(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0]
        found.append(torch.log_softmax(logits.double(), -1))
    return found


def top_kl(wanted: torch.Tensor, found: Mapping[int, float]) -> float:
    """KL over the tokens of ``found`` (their log-probabilities) and all others as one; ``wanted`` [vocab]."""
    ids = torch.tensor(list(found))
    q, p = torch.tensor(list(found.values()), dtype=torch.float64), wanted[ids]
    others = [max(SMALLEST, 1 - float(each.exp().sum())) for each in (p, q)]
    terms = torch.where(p.exp() > 0, p.exp() * (p - q), 0.0)
    return max(0.0, float(terms.sum()) + others[0] * math.log(others[0] / others[1]))


def peer_top(url: str, ids: Sequence[int], top: int) -> dict[int, float]:
    """llama-server's likeliest tokens behind ``ids`` and their log-probabilities."""
    body = {
        "prompt": list(ids),
        "n_predict": 1,
        "n_probs": top,
        "temperature": 0,
        "cache_prompt": True,
        "post_sampling_probs": False,
    }
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/completion", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        [position] = json.load(answer)["completion_probabilities"]
    return {each["id"]: each["logprob"] for each in position["top_logprobs"] if each["logprob"] > -math.inf}


Positions = Iterator[tuple[torch.Tensor, dict[int, float]]]


def row(name: str, positions: Iterable[tuple[torch.Tensor, dict[int, float]]], whole: float | None) -> Row:
    divergences, same = [], 0
    for wanted, found in positions:
        divergences.append(top_kl(wanted, found))
        same += int(wanted.argmax()) == max(found, key=found.__getitem__)
    count = len(divergences)
    return Row(name, whole, sum(divergences) / count, same / count, count)


def ours(name: str, runner: Any, texts: Sequence[list[int]], wanted: Sequence[torch.Tensor], top: int) -> Row:
    found = [torch.log_softmax(logits_of(runner, ids).double(), -1) for ids in texts]
    terms = [
        torch.where(p.exp() > 0, p.exp() * (p - q), 0.0).sum(-1) for p, q in zip(wanted, found, strict=True)
    ]
    whole = float(torch.cat(terms).clamp_min(0).mean())

    def positions() -> Positions:
        for text, logs in zip(wanted, found, strict=True):
            for p, q in zip(text, logs, strict=True):
                best = q.topk(min(top, len(q)))
                yield p, dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))

    return row(name, positions(), whole)


def theirs(
    options: argparse.Namespace, model: LocalModel, texts: Sequence[list[int]], wanted: Sequence[torch.Tensor]
) -> Row:
    port = free_port()
    command = peer_command(options.peer, str(model.weights), port, 2 * options.tokens + 64, 1)

    def positions() -> Positions:
        for ids, rows in zip(texts, wanted, strict=True):
            for place, p in enumerate(rows):
                yield p, peer_top(url_of(port), ids[: place + 1], options.top)

    with serving([*command, "--threads", str(options.threads)], port):
        return row("llama-server", positions(), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a catalogue id or a GGUF file")
    parser.add_argument("--peer", type=Path, help="folder with llama-server")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64, help="sampled behind each beginning")
    parser.add_argument("--top", type=int, default=256, help="tokens of each distribution that are compared")
    options = parser.parse_args()
    os.environ.pop("OMP_NUM_THREADS", None)
    model = ensure(options.model, Silent())
    tokenizer = ModelTokenizer.load(model.tokenizer)
    runner = runner_of(model, options)
    texts = [
        sampled(runner, encode(tokenizer, beginning).ids, options.tokens, seed)
        for seed, beginning in enumerate(BEGINNINGS)
    ]
    wanted = reference(model, texts)
    rows = [ours("mashbox, 16-bit activations", runner, texts, wanted, options.top)]
    del runner
    eight = runner_of(model, options, activations=8)
    rows.append(ours("mashbox, 8-bit activations", eight, texts, wanted, options.top))
    del eight
    if options.peer:
        print("llama-server, position by position ...", file=sys.stderr)
        rows.append(theirs(options, model, texts, wanted))
    print(f"{machine()}; {model.weights.name}, {rows[0].positions} positions\n")
    print(f"| engine | KL, whole | KL, top {options.top} and the rest | top-1 agreement |")
    print("|---|---|---|---|")
    for each in rows:
        whole = "" if each.whole is None else f"{each.whole:.1e}"
        print(f"| {each.name} | {whole} | {each.top:.1e} | {100 * each.agreement:.1f} % |")


if __name__ == "__main__":
    main()
