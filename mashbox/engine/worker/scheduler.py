"""Which rows run next: continuous batching over static slots.

A step reads at most one piece of one prompt, then decodes every row whose prompt is read, and reports all new
tokens at once. Knows token ids only.
"""

from collections import deque

import numpy as np

from mashbox.engine.wire import Failed, Finish, Row, Stats, Submit, Tokens
from mashbox.engine.worker.guide import Guide, GuideError, Guides
from mashbox.engine.worker.host_cache import HostCache
from mashbox.engine.worker.runner import Runner
from mashbox.engine.worker.sampler import RowSampler, sample
from mashbox.engine.worker.slots import Slots

PIECE_ALONE, PIECE_SHARED = 1024, 128
"""Most tokens of a prompt read in one step: alone long pieces make the best use of the machine; while other
rows stream, short ones keep the pause between their tokens small."""

_PIECE_LEAST = 16
_PIECE_WEIGHTS = 600_000_000
"""Bytes of weights up to which a piece of PIECE_ALONE tokens takes about two seconds on two cores."""


def pieces(weight_bytes: int) -> tuple[int, int]:
    """The two sizes for a model: as much shorter as its weights are larger, so that a step stays short.

    A function of the model only: sizes that followed the clock would round answers differently each time.
    """
    alone = PIECE_ALONE
    while alone > _PIECE_LEAST and alone * weight_bytes > PIECE_ALONE * _PIECE_WEIGHTS:
        alone //= 2
    return alone, max(alone * PIECE_SHARED // PIECE_ALONE, _PIECE_LEAST)


class Live:
    """One request in a slot, from its first prompt piece to its last token."""

    def __init__(self, submit: Submit, slot: int, vocab_size: int, guide: Guide | None = None) -> None:
        self.id = submit.id
        self.ids = np.array(submit.ids, dtype=np.int32)
        self.tenant = submit.tenant
        self.slot = slot
        self.max_tokens = submit.max_tokens
        self.end_ids = frozenset(submit.end_ids)
        self.sampler = RowSampler(submit.sampling, submit.ids, vocab_size, guide)
        self.read = 0
        self.cached: int | None = None
        self.produced = 0
        self.last_token = -1

    @property
    def prompt_left(self) -> int:
        return len(self.ids) - self.read

    def finish_with(self, token: int) -> Finish | None:
        """Take a new token; the reason if the request ends with it."""
        self.produced += 1
        self.last_token = token
        guide = self.sampler.guide
        if token in self.end_ids or (guide and guide.over and not self.end_ids):
            return "stop"
        return "length" if self.produced >= self.max_tokens else None

    def failure(self) -> Failed:
        """Why no token could be drawn."""
        if self.sampler.guide and self.sampler.guide.problem:
            return Failed(id=self.id, kind="request", message=self.sampler.guide.problem)
        return Failed(id=self.id, kind="device", message="The model produced NaN instead of logits.")


class Scheduler:
    """Owns the slots of one runner. Every submit ends in one terminal row or failure.

    ``guides`` None: requests with a grammar are refused. ``host`` is the prompt cache's second tier;
    ``share`` lets tenants use each other's prompts.
    """

    def __init__(
        self,
        runner: Runner,
        guides: Guides | None = None,
        host: HostCache | None = None,
        *,
        share: bool = False,
    ) -> None:
        self._runner = runner
        self._pieces = pieces(runner.weight_bytes)
        self._guides = guides or Guides("")
        self._host = HostCache(0) if host is None else host
        self._slots = Slots(runner, self._host, share=share)
        self._told = Stats()
        self._waiting: deque[Submit] = deque()
        self._reading: deque[Live] = deque()
        self._decoding: list[Live] = []
        self._out: list[Row] = []
        self._failed: list[Failed] = []

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._reading or self._decoding)

    @property
    def stats(self) -> Stats:
        """What was told last of the host tier."""
        return self._told

    def submit(self, submit: Submit) -> None:
        """Take a request; it starts at the next step with a free slot."""
        problem = self._refusal(submit)
        if problem:
            self._failed.append(Failed(id=submit.id, kind="request", message=problem))
        else:
            self._waiting.append(submit)

    def cancel(self, request_id: int) -> None:
        """Drop a request wherever it is; unknown ids are done already."""
        for submit in self._waiting:
            if submit.id == request_id:
                self._waiting.remove(submit)
                self._out.append(Row(request_id, None, "cancelled"))
                return
        for sequence in (*self._reading, *self._decoding):
            if sequence.id == request_id:
                self._out.append(Row(request_id, None, "cancelled"))
                self._release(sequence)
                return

    def step(self) -> list[Tokens | Failed | Stats]:
        """Run one step; the messages that it and the calls before it produced."""
        self._admit()
        # Rows that finish reading their prompt in this step decode from the next one on.
        rows = list(self._decoding)
        if self._reading:
            alone, shared = self._pieces
            self._read_piece(self._reading[0], shared if rows else alone)
        if rows:
            self._decode(rows)
        return self._collect()

    def _refusal(self, submit: Submit) -> str | None:
        if not submit.ids:
            return "The prompt holds no tokens."
        if submit.max_tokens < 1 or len(submit.ids) + submit.max_tokens > self._runner.ctx:
            return (
                f"{len(submit.ids)} prompt tokens and {submit.max_tokens} new ones do not fit "
                f"the context of {self._runner.ctx}."
            )
        if not 0 <= min(submit.ids) <= max(submit.ids) < self._runner.vocab_size:
            return f"A token id lies outside the vocabulary of {self._runner.vocab_size}."
        return None

    def _admit(self) -> None:
        while self._waiting and self._slots.free:
            submit = self._waiting.popleft()
            guide = None
            if submit.grammar is not None:
                try:
                    guide = self._guides.guide(submit.grammar, submit.end_ids)
                except GuideError as error:
                    self._failed.append(Failed(id=submit.id, kind="request", message=str(error)))
                    continue
            ids = np.array(submit.ids, dtype=np.int32)
            slot = self._slots.take(ids, submit.tenant, submit.session)
            self._reading.append(Live(submit, slot, self._runner.vocab_size, guide))

    def _read_piece(self, sequence: Live, size: int) -> None:
        if sequence.cached is None:
            # Looked for now, not when the slot was taken: what was read since then counts too.
            sequence.cached = self._slots.begin(sequence.slot, sequence.ids, sequence.tenant)
            sequence.read = sequence.cached
        piece = sequence.ids[sequence.read :][: self._slots.piece(sequence.slot, size)]
        last = len(piece) == sequence.prompt_left
        logits = self._runner.prefill(sequence.slot, piece.tolist(), logits=last)
        self._slots.hold(sequence.slot, piece)
        sequence.read += len(piece)
        if last:
            self._reading.popleft()
            assert logits is not None
            self._decoding.append(sequence)
            self._take(sequence, sample(logits[None], [sequence.sampler])[0])

    def _decode(self, rows: list[Live]) -> None:
        logits = self._runner.decode([r.slot for r in rows], [r.last_token for r in rows])
        for row in rows:
            self._slots.hold(row.slot, np.array([row.last_token], dtype=np.int32))
        tokens = sample(logits, [r.sampler for r in rows])
        for row, token in zip(rows, tokens, strict=True):
            self._take(row, token)

    def _take(self, sequence: Live, token: int | None) -> None:
        if token is None:
            self._failed.append(sequence.failure())
            # A state that gave NaN once would give it again.
            self._release(sequence, keep=sequence.sampler.guide is not None)
            return
        first = not sequence.produced
        finish = sequence.finish_with(token)
        self._out.append(Row(sequence.id, token, finish, (sequence.cached or 0) if first else 0))
        if finish:
            self._release(sequence)

    def _release(self, sequence: Live, *, keep: bool = True) -> None:
        if sequence in self._reading:
            self._reading.remove(sequence)
        else:
            self._decoding.remove(sequence)
        self._slots.release(sequence.slot, keep=keep)

    def _collect(self) -> list[Tokens | Failed | Stats]:
        messages: list[Tokens | Failed | Stats] = [*self._failed]
        if self._out:
            messages.append(Tokens(self._out))
        stats = Stats(
            host_cache_bytes=self._host.bytes,
            host_cache_evictions=self._host.evictions,
            snapshot_bytes=self._host.point_bytes,
        )
        if stats != self._told:
            messages.append(stats)
            self._told = stats
        self._out, self._failed = [], []
        return messages
