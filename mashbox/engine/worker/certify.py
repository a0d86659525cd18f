"""The gate: the engine that serves, against transformers' own modules in float32 on the same tokens.

``python -m mashbox.engine.worker.certify`` reads one :class:`Job` from stdin, as JSON, and writes one
:class:`~mashbox.engine.certificates.Report` or :class:`~mashbox.engine.wire.Failed` to stdout.

The prompts run greedily through the real scheduler, runner and prompt cache, which tell the logits that each
token was drawn from. Then the weights are loaded once more, in float32, and a plain forward pass over prompt
and answer, with the library's own attention and no cache, gives the distributions that these tokens should
have been drawn from. An answer whose every token is the most likely one there is the one that the reference
would have given by itself, so the comparison of greedy tokens is whole. The two never lie in memory together.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch
from torch import Tensor

from mashbox.engine.certificates import Bounds, Check, Report
from mashbox.engine.request import Sampling
from mashbox.engine.wire import Failed, Start, Submit, Tokens
from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.host_cache import HostCache
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.safetensors import load_safetensors
from mashbox.engine.worker.programs import programs_made
from mashbox.engine.worker.runner import Logits, Progress, Runner
from mashbox.engine.worker.scheduler import Scheduler, pieces
from mashbox.errors import MashboxError, UsageError, WorkerFault

NEW_TOKENS = 16
"""Greedy tokens of each request."""

_FOLLOW_UP = 16
"""Tokens behind an answer that the next turn of a conversation adds."""

LEAST_CTX = 128

BOUNDS = {
    "f32": Bounds(kl_mean=1e-7, kl_max=1e-5, tie=1e-3, other_tokens=0.0),
    "bf16": Bounds(kl_mean=0.05, kl_max=0.5, tie=0.25, other_tokens=0.05),
    "fast": Bounds(kl_mean=1e-5, kl_max=1e-3, tie=0.02, other_tokens=0.0),
    "fast8": Bounds(kl_mean=0.05, kl_max=0.5, tie=0.25, other_tokens=0.05),
}
"""By what rounds. Float32 differs from the reference only in the order of sums: by 1e-10 nats at most on a
model of 135 M parameters. bfloat16 rounds to 8 bits at every layer: means of 0.002 to 0.02 and 0.2 at most,
on models of 135 M and 270 M. The fast engine rounds activations to 16 bits, and the caches to half:
means of 1e-6 and 3e-5 at most on the model of 135 M."""


def bounds_of(engine: str, weights: str, activations: int) -> Bounds:
    """Those of an engine over weights and activations as they were chosen."""
    if engine == "fast":
        return BOUNDS["fast" if activations == 16 else "fast8"]
    return BOUNDS["bf16" if weights == "bf16" else "f32"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to certify on which prompts. ``text`` is long: as much of it is read as takes several pieces."""

    start: Start
    prompts: list[list[int]]
    text: list[int]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was run: its prompt and tokens, and the logits [tokens, vocab] they came from."""

    prompt: list[int]
    tokens: list[int]
    logits: Tensor
    cached: int


class _Recorder:
    """A runner that keeps the logits it gives, one row after the other, until they are taken."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._rows: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> Logits | None:
        row = self._runner.prefill(slot, ids, logits=logits)
        if row is not None:
            self._rows.append(torch.tensor(np.asarray(row)))
        return row

    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> Logits:
        rows = self._runner.decode(slots, ids)
        self._rows += torch.tensor(np.asarray(rows)).unbind()
        return rows

    def take(self) -> list[Tensor]:
        rows, self._rows = self._rows, []
        return rows


class _Engine:
    """The scheduler over a recording runner; requests go in, whole answers come out."""

    def __init__(self, start: Start, progress: Progress) -> None:
        runner, self.built = build_runner(start, progress)
        self.ctx, self.slots = runner.ctx, runner.slots
        self.pieces = pieces(runner.weight_bytes)
        self._recorder = _Recorder(runner)
        host = HostCache(start.cache_bytes)
        # Without speculation: each step gives each row one token, drawn from the logits that it recorded.
        self._scheduler = Scheduler(cast(Runner, self._recorder), host=host)

    def run(self, prompts: list[list[int]], tenants: list[str]) -> list[Answer]:
        """All of them at once. Raises WorkerFault if one fails."""
        rows: dict[int, list[tuple[int, Tensor]]] = {number: [] for number in range(len(prompts))}
        cached = dict.fromkeys(rows, 0)
        for number, (ids, tenant) in enumerate(zip(prompts, tenants, strict=True)):
            self._scheduler.submit(
                Submit(
                    id=number,
                    ids=ids,
                    max_tokens=NEW_TOKENS,
                    end_ids=[],
                    sampling=Sampling(),
                    tenant=tenant,
                )
            )
        # What was refused at once is told by the next step, though nothing runs.
        while (messages := self._scheduler.step()) or not self._scheduler.idle:
            for message in messages:
                if isinstance(message, Failed):
                    raise WorkerFault(f"A request failed: {message.message}", message.remedy)
                if isinstance(message, Tokens):
                    # A step samples its rows in the order in which the runner gave their logits.
                    for row, logits in zip(message.rows, self._recorder.take(), strict=True):
                        rows[row.id].append((row.tokens[0], logits))
                        cached[row.id] += row.cached
        return [
            Answer(
                prompt=ids,
                tokens=[token for token, _ in rows[number]],
                logits=torch.stack([logits for _, logits in rows[number]]),
                cached=cached[number],
            )
            for number, ids in enumerate(prompts)
        ]


def certify(job: Job, progress: Progress) -> Report:
    """Run and compare. Raises UsageError for a context that is too short, and what loading raises."""
    if job.start.ctx < LEAST_CTX:
        raise UsageError(
            f"A context of {job.start.ctx} tokens is too short to certify.",
            f"Use --ctx {LEAST_CTX} or more.",
        )
    engine = _Engine(job.start, progress)
    built, ctx, slots = engine.built, engine.ctx, engine.slots
    compiled = programs_made()
    ways = _run(engine, _prompts(job, ctx, engine.pieces[0]), job.text, progress)
    compiled = programs_made() - compiled
    del engine
    gc.collect()
    bounds = bounds_of(built.engine, job.start.weights, job.start.activations)
    reference = _Reference(job.start, progress)
    checks = [_check(name, answers, reference, bounds, progress) for name, answers in ways.items()]
    return Report(
        engine=built.engine,
        architecture=built.architecture,
        ctx=ctx,
        slots=slots,
        bounds=bounds,
        checks=checks,
        compiles_after_ready=compiled,
    )


def _prompts(job: Job, ctx: int, piece: int) -> list[list[int]]:
    """The prompts that leave room for two turns, and one that is read in more than one piece."""
    room = ctx - 2 * NEW_TOKENS - _FOLLOW_UP
    long = job.text[: min(room, piece + piece // 4)]
    return [*(ids[:room] for ids in job.prompts), long]


def _run(
    engine: _Engine, prompts: list[list[int]], text: list[int], progress: Progress
) -> dict[str, list[Answer]]:
    """The answers by the way they were run; tenants keep the ways out of each other's cache."""
    alone, again = [], []
    for number, ids in enumerate(prompts):
        progress("running the prompts", number, len(prompts))
        [first] = engine.run([ids], [f"alone {number}"])
        follow_up = [*ids, *first.tokens, *text[:_FOLLOW_UP]]
        again += engine.run([follow_up], [f"alone {number}"])
        alone.append(first)
    progress("running them together", 0, 0)
    together = engine.run(prompts, [f"together {number}" for number in range(len(prompts))])
    return {"alone": alone, "from the cache": again, "together": together}


class _Reference:
    """transformers' module in float32 with its own attention, and the distributions it gives."""

    def __init__(self, start: Start, progress: Progress) -> None:
        load = load_gguf if start.format == "gguf" else load_safetensors
        module: Any = load(Path(start.model), torch.float32, progress).module
        module.set_attn_implementation("sdpa" if module._supports_sdpa else "eager")
        self._module = module
        self._known: dict[tuple[int, ...], Tensor] = {}

    @torch.inference_mode()
    def logits(self, answer: Answer) -> Tensor:
        """Float32 [tokens, vocab]: what each token of the answer should have been drawn from."""
        ids = (*answer.prompt, *answer.tokens[:-1])
        if ids not in self._known:
            count = len(answer.tokens)
            output = self._module(input_ids=torch.tensor([ids]), use_cache=False, logits_to_keep=count)
            self._known[ids] = output.logits[0, -count:].float()
        return self._known[ids]


def _check(
    name: str, answers: list[Answer], reference: _Reference, bounds: Bounds, progress: Progress
) -> Check:
    """All answers of one way against the reference."""
    divergences, gaps = [], []
    for number, answer in enumerate(answers):
        progress(f"comparing: {name}", number, len(answers))
        kl, gap = compare(reference.logits(answer), answer.logits, answer.tokens)
        divergences.append(kl)
        gaps.append(gap)
    kl, gap = np.concatenate(divergences), np.concatenate(gaps)
    same, near = int((gap == 0).sum()), int((gap <= bounds.tie).sum())
    cached = sum(answer.cached for answer in answers)
    # Written so that NaN does not pass.
    close = bool(kl.mean() <= bounds.kl_mean and kl.max() <= bounds.kl_max)
    hits = all(answer.cached for answer in answers) if name == "from the cache" else not cached
    return Check(
        name=name,
        requests=len(answers),
        tokens=len(kl),
        same=same,
        ties=near - same,
        kl_mean=float(kl.mean()),
        kl_max=float(kl.max()),
        cached=cached,
        passed=close and hits and len(kl) - near <= bounds.other_tokens * len(kl),
    )


def compare(
    reference: Tensor, found: Tensor, tokens: list[int]
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """By position: the divergence of ``found`` from ``reference`` (both logits [tokens, vocab]), in nats, and
    how much less likely there the token is than the most likely one, in nats (0: it is that one).
    """
    wanted = torch.log_softmax(reference.double(), -1)
    ours = torch.log_softmax(found.double(), -1)
    # 0 · (-inf) is 0 here: what can't come at all adds nothing.
    terms = torch.where(wanted.exp() > 0, wanted.exp() * (wanted - ours), 0.0)
    chosen = wanted.gather(-1, torch.tensor(tokens).unsqueeze(-1)).squeeze(-1)
    kl = terms.sum(-1).clamp_min(0.0)
    return kl.numpy(), (wanted.max(-1).values - chosen).numpy()


def main() -> None:
    """One job in, one outcome out; whatever a library prints goes to stderr."""
    with os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)
        job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
        outcome: Report | Failed
        try:
            outcome = certify(job, _told())
        except MashboxError as error:
            outcome = Failed(id=None, kind="model", message=error.message, remedy=error.remedy)
        sink.write(msgspec.json.encode(outcome))


def _told() -> Progress:
    """Tells each new stage on stderr."""
    told = ""

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal told
        del done, total
        if stage != told:
            told = stage
            sys.stderr.write(f"{stage[0].upper()}{stage[1:]} ...\n")
            sys.stderr.flush()

    return progress


if __name__ == "__main__":
    main()
