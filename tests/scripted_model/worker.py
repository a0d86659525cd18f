"""A real worker process that answers from a script: ``python -m tests.scripted_model.worker RULES.json``.

All but the forward pass is what serves a real model: loop, scheduler, slots, prompt cache, sampler. The
logits make the script's next token the likely one.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.wire import Start
from mashbox.engine.worker.main import main
from mashbox.engine.worker.runner import Built, Progress
from tests.engine.worker.counting import CountingRunner
from tests.scripted_model.script import Rule, answer, read

LIKELY = 100.0


class ScriptedRunner(CountingRunner):
    """Keeps each slot's tokens; answers a prompt when its last token has been read."""

    def __init__(self, tokenizer: ModelTokenizer, rules: list[Rule], *, slots: int, ctx: int) -> None:
        super().__init__(slots=slots, ctx=ctx, vocab_size=tokenizer.vocab_size)
        self._tokenizer = tokenizer
        self._rules = rules
        self._end = min(tokenizer.end_ids)
        self._answers: dict[int, list[int]] = {}
        self._begins: dict[int, int] = {}

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> torch.Tensor | None:
        self._append(slot, ids)
        if not logits:
            return None
        text = answer(self._rules, read(self._tokenizer, self.held[slot]))
        # As a raw prompt: the script's markers are the model's own tokens.
        self._answers[slot] = [*self._tokenizer.encode_text(text, specials=True), self._end]
        self._begins[slot] = self.length(slot)
        return self._next(slot)

    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
        return self.decode_runs(slots, [[token] for token in ids])

    def decode_runs(self, slots: Sequence[int], runs: Sequence[Sequence[int]]) -> torch.Tensor:
        rows = []
        for slot, ids in zip(slots, runs, strict=True):
            for token in ids:
                self._append(slot, [token])
                rows.append(self._next(slot))
        return torch.stack(rows)

    def _next(self, slot: int) -> torch.Tensor:
        said = self.length(slot) - self._begins[slot]
        row = torch.zeros(self.vocab_size)
        row[self._answers[slot][min(said, len(self._answers[slot]) - 1)]] = LIKELY
        return row


def build(start: Start, progress: Progress) -> tuple[ScriptedRunner, Built]:
    tokenizer = ModelTokenizer.load(Path(start.tokenizer))
    rules = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Rule])
    return ScriptedRunner(tokenizer, rules, slots=start.slots, ctx=start.ctx), Built("exact", "scripted")


if __name__ == "__main__":
    main(build)
