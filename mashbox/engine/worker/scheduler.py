"""Which rows run next: continuous batching over static slots.

A step reads at most one piece of one prompt, then decodes every row whose prompt is read, and reports all new
tokens at once. Knows token ids only.

With speculation a row may bring guesses into a step. Its tokens are drawn one after the other, each from the
logits and with the random number of its own position, and the first that is not the guessed one ends the run:
samplers and grammars only ever see tokens that stay.
"""

import time
from collections import deque
from typing import NamedTuple

import numpy as np

from mashbox.engine.wire import Failed, Finish, Row, Stats, Submit, Tokens
from mashbox.engine.worker.draft import Drafter
from mashbox.engine.worker.guide import Guide, GuideError, Guides
from mashbox.engine.worker.host_cache import HostCache
from mashbox.engine.worker.programs import programs_made
from mashbox.engine.worker.runner import Logits, Runner
from mashbox.engine.worker.sampler import RowSampler
from mashbox.engine.worker.slots import Slots
from mashbox.engine.worker.speculate import MOST_GUESSES, StepCosts, plan

PIECE_ALONE, PIECE_SHARED = 1024, 128
"""Most tokens of a prompt read in one step: alone long pieces make the best use of the machine; while other
rows stream, short ones keep the pause between their tokens small."""

_WORTH_DRAFTING = 8
"""Tokens of an answer below which its prompt is not looked through for guesses."""

_PIECE_LEAST = 16
_PIECE_WEIGHTS = 600_000_000
"""Bytes of weights up to which a piece of PIECE_ALONE tokens takes about two seconds on two cores."""

_FAR = 8192
"""Tokens that are seen for little beside what the weights cost; a piece is halved at each doubling."""


def pieces(weight_bytes: int) -> tuple[int, int]:
    """The two sizes for a model: as much shorter as its weights are larger, so that a step stays short.

    A function of the model only: sizes that followed the clock would round answers differently each time.
    """
    alone = PIECE_ALONE
    while alone > _PIECE_LEAST and alone * weight_bytes > PIECE_ALONE * _PIECE_WEIGHTS:
        alone //= 2
    return alone, max(alone * PIECE_SHARED // PIECE_ALONE, _PIECE_LEAST)


def at_depth(size: int, read: int) -> int:
    """The size of a piece behind ``read`` tokens: far into a prompt a token costs more, as it sees more."""
    far = _FAR
    while size > _PIECE_LEAST and read >= far:
        size, far = size // 2, far * 2
    return size


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
        self.drafter: Drafter | None = None

    @property
    def prompt_left(self) -> int:
        return len(self.ids) - self.read

    @property
    def guessable(self) -> int:
        """Tokens that it may still produce behind the next one."""
        return min(MOST_GUESSES, self.max_tokens - self.produced - 1)

    def read_whole(self) -> None:
        """The prompt is read, and tokens are to be guessed from it."""
        if self.max_tokens >= _WORTH_DRAFTING:
            self.drafter = Drafter(len(self.ids) + self.max_tokens)
            self.drafter.extend(self.ids.tolist())

    def finish_with(self, token: int) -> Finish | None:
        """Take a new token; the reason if the request ends with it."""
        self.produced += 1
        self.last_token = token
        if self.drafter:
            self.drafter.add(token)
        guide = self.sampler.guide
        if token in self.end_ids or (guide and guide.over and not self.end_ids):
            return "stop"
        return "length" if self.produced >= self.max_tokens else None

    def failure(self) -> Failed:
        """Why no token could be drawn."""
        if self.sampler.guide and self.sampler.guide.problem:
            return Failed(
                id=self.id,
                kind="request",
                message=self.sampler.guide.problem,
                remedy="Loosen the tool's schema, or don't force a call (tool_choice auto).",
            )
        return Failed(id=self.id, kind="device", message="The model produced NaN instead of logits.")


class Scheduler:
    """Owns the slots of one runner. Every submit ends in one terminal row or failure.

    ``guides`` None: requests with a grammar are refused. ``host`` is the prompt cache's second tier;
    ``share`` lets tenants use each other's prompts. ``speculate``: guess tokens if the runner takes runs.
    """

    def __init__(
        self,
        runner: Runner,
        guides: Guides | None = None,
        host: HostCache | None = None,
        *,
        share: bool = False,
        speculate: bool = False,
    ) -> None:
        self._runner = runner
        self._speculate = speculate and runner.takes_runs and not runner.recurrent
        self._costs = StepCosts()
        self._pieces = pieces(runner.weight_bytes)
        self._guides = guides or Guides("")
        self._host = HostCache(0) if host is None else host
        self._slots = Slots(runner, self._host, share=share)
        self._told = Stats()
        self._made_before = programs_made()
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
        """What was told last."""
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
                self._out.append(Row(request_id, [], "cancelled"))
                return
        for sequence in (*self._reading, *self._decoding):
            if sequence.id == request_id:
                self._out.append(Row(request_id, [], "cancelled"))
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
        size = at_depth(size, sequence.read)
        piece = sequence.ids[sequence.read :][: self._slots.piece(sequence.slot, size)]
        last = len(piece) == sequence.prompt_left
        logits = self._runner.prefill(sequence.slot, piece.tolist(), logits=last)
        self._slots.hold(sequence.slot, piece)
        sequence.read += len(piece)
        if last:
            self._reading.popleft()
            assert logits is not None
            self._decoding.append(sequence)
            if self._speculate:
                sequence.read_whole()
            self._tell(sequence, _draw(sequence, [], logits[None]))

    def _decode(self, rows: list[Live]) -> None:
        guesses = self._guess(rows)
        slots = [row.slot for row in rows]
        runs = [[row.last_token, *guess] for row, guess in zip(rows, guesses, strict=True)]
        began = time.perf_counter()
        if any(guesses):
            logits = self._runner.decode_runs(slots, runs)
        else:
            logits = self._runner.decode(slots, [run[0] for run in runs])
        first = 0
        for row, run in zip(rows, runs, strict=True):
            drawn = _draw(row, run[1:], logits[first : first + len(run)])
            first += len(run)
            self._hold(row.slot, run, drawn.rows)
            self._tell(row, drawn)
        self._costs.took(first, time.perf_counter() - began)

    def _guess(self, rows: list[Live]) -> list[list[int]]:
        """The tokens that each row brings into the step behind its last one."""
        if not self._speculate:
            return [[] for _ in rows]
        return plan([(row.drafter, row.guessable) for row in rows], self._costs)

    def _hold(self, slot: int, run: list[int], stay: int) -> None:
        """Note the tokens of a run that a slot keeps; what was guessed wrong leaves it."""
        self._slots.hold(slot, np.array(run[:stay], dtype=np.int32))
        if stay < len(run):
            self._runner.truncate(slot, self._runner.length(slot) - (len(run) - stay))

    def _tell(self, sequence: Live, drawn: "_Drawn") -> None:
        """Report what was drawn for a request, and let go of it if that is its end."""
        if drawn.tokens:
            first = sequence.produced == len(drawn.tokens)
            cached = (sequence.cached or 0) if first else 0
            self._out.append(
                Row(sequence.id, drawn.tokens, drawn.finish, cached, drawn.drafted, drawn.accepted)
            )
        if drawn.failed:
            failure = sequence.failure()
            self._failed.append(failure)
            # A state that gave NaN once would give it again; a grammar's own failure left it whole.
            self._release(sequence, keep=failure.kind == "request")
        elif drawn.finish:
            self._release(sequence)

    def _release(self, sequence: Live, *, keep: bool = True) -> None:
        if sequence in self._reading:
            self._reading.remove(sequence)
        else:
            self._decoding.remove(sequence)
        self._slots.release(sequence.slot, keep=keep)

    def _collect(self) -> list[Tokens | Failed | Stats]:
        messages: list[Tokens | Failed | Stats] = [Tokens(self._out)] if self._out else []
        # Behind the tokens: nothing follows what ends a request.
        messages += self._failed
        stats = Stats(
            host_cache_bytes=self._host.bytes,
            host_cache_evictions=self._host.evictions,
            snapshot_bytes=self._host.point_bytes,
            programs=programs_made() - self._made_before,
        )
        if stats != self._told:
            messages.append(stats)
            self._told = stats
        self._out, self._failed = [], []
        return messages


class _Drawn(NamedTuple):
    """The tokens that one row got in a step, from so many of its ``rows`` of logits.

    ``failed``: the last of these rows gave none.
    """

    tokens: list[int]
    rows: int
    finish: Finish | None
    failed: bool
    drafted: int
    accepted: int


def _draw(sequence: Live, guess: list[int], logits: Logits) -> _Drawn:
    """Draw from ``logits`` [1 + guesses, vocab_size], row after row, until a token is not the guessed one."""
    tokens: list[int] = []
    finish, token = None, None
    accepted = 0
    for number, row in enumerate(np.asarray(logits), start=1):
        token = sequence.sampler.token(row)
        if token is None:
            break
        tokens.append(token)
        finish = sequence.finish_with(token)
        right = number <= len(guess) and token == guess[number - 1]
        accepted += right
        if finish or not right:
            break
    return _Drawn(tokens, number, finish, token is None, len(guess), accepted)
