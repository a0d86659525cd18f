"""The exact runner: transformers' own modules over static slots.

The oracle for every other runner. What is exact: tokens read alone, in a batch, whole or in pieces come
from the same modules and weights as ``generate()`` uses. What is not: the matrix products of a BLAS sum in
an order that depends on the number of rows, and attention sums in blocks, so logits of one row may differ in
their last bits between batch sizes and between pieces; a greedy token can differ only where two logits are
that close. Copies, exports, cuts and snapshots of a slot's state are exact to the bit.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from mashbox.engine.worker import architectures
from mashbox.engine.worker.attention import SLOT_ATTENTION, Step, running
from mashbox.engine.worker.cache import SlotCache, SlotState, Snapshot
from mashbox.engine.worker.load.model import LoadedModel
from mashbox.engine.worker.rope import fix_frequencies
from mashbox.engine.worker.selfcheck import check_against_plain
from mashbox.errors import UnsupportedModel

_log = logging.getLogger(__name__)


class ExactRunner:
    """A :class:`~mashbox.engine.worker.runner.Runner` over a module of transformers.

    Keys and values are kept in the module's dtype. One token is read at construction, so that all memory is
    allocated (``kv_bytes`` counts it) and an architecture that does not fit fails at once. A model type that
    the tests don't hold is compared with its own forward pass first, and a warning is logged. Experts run
    in transformers' own way (grouped products): only those that were chosen are read.

    A forward pass that raises leaves the slots it worked on empty, and the others as they were.
    """

    def __init__(self, loaded: LoadedModel, *, slots: int, ctx: int) -> None:
        if slots < 1 or ctx < 1:
            raise ValueError(f"slots and ctx must be at least 1, not {slots} and {ctx}.")
        self.slots = slots
        self.ctx = ctx
        self.weight_bytes = loaded.weight_bytes
        module: Any = loaded.module
        self._module = module
        self._decoder: Any = module.base_model
        self._device = next(loaded.module.parameters()).device
        self.vocab_size = int(module.get_output_embeddings().weight.shape[0])
        self._continues = architectures.continues(str(loaded.config.model_type))
        latent = bool(getattr(loaded.config, "kv_lora_rank", None))
        self._cache = SlotCache(slots, ctx, gather=latent)
        fix_frequencies(loaded.module, ctx)
        self._try_out(loaded)
        self.kv_bytes = self._cache.nbytes

    @property
    def recurrent(self) -> bool:
        return self._cache.recurrent

    @property
    def snapshot_bytes(self) -> int:
        return self._cache.snapshot_bytes

    def length(self, slot: int) -> int:
        self._check_slot(slot)
        return self._cache.lengths[slot]

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> Tensor | None:
        self._check_slot(slot)
        self._check_ids(ids)
        start = self._cache.lengths[slot]
        if start + len(ids) > self.ctx:
            raise ValueError(f"Slot {slot} holds {start} of {self.ctx} tokens: no room for {len(ids)} more.")
        if start and not self._continues:
            for token in ids[:-1]:
                self._read(slot, [token], logits=False)
            ids = ids[-1:]
        return self._read(slot, ids, logits=logits)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        if not slots or len(slots) != len(ids) or len(set(slots)) != len(slots):
            raise ValueError("decode needs one token for each of one or more distinct slots.")
        self._check_ids(ids)
        for slot in slots:
            self._check_slot(slot)
            if not 0 < self._cache.lengths[slot] < self.ctx:
                held = self._cache.lengths[slot]
                raise ValueError(f"Slot {slot} holds {held} of {self.ctx} tokens: it can't take a next one.")
        starts = [self._cache.lengths[slot] for slot in slots]
        tokens = torch.tensor(ids, device=self._device).unsqueeze(1)
        positions = torch.tensor(starts, device=self._device).unsqueeze(1)
        with self._forward(self._forward_step(list(slots), starts, 1)):
            return self._logits(tokens, positions)

    def reset(self, slot: int) -> None:
        self._check_slot(slot)
        self._cache.lengths[slot] = 0

    def truncate(self, slot: int, length: int) -> bool:
        self._check_slot(slot)
        held = self._cache.lengths[slot]
        if not 0 <= length <= held:
            raise ValueError(f"Slot {slot} holds {held} tokens, it can't be cut to {length}.")
        if self._cache.recurrent and 0 < length < held:
            return False
        self._cache.lengths[slot] = length
        return True

    @torch.inference_mode()
    def snapshot(self, slot: int) -> Snapshot:
        self._check_slot(slot)
        if not self._cache.lengths[slot]:
            raise ValueError(f"Slot {slot} is empty: there is no state to take a snapshot of.")
        return self._cache.snapshot(slot)

    @torch.inference_mode()
    def rewind(self, slot: int, length: int, snapshot: Snapshot) -> None:
        self._check_slot(slot)
        self._check_cut(length, self._cache.lengths[slot], snapshot)
        self._cache.rewind(slot, length, snapshot)

    @torch.inference_mode()
    def copy(
        self, source: int, target: int, length: int | None = None, snapshot: Snapshot | None = None
    ) -> None:
        self._check_slot(source)
        self._check_slot(target)
        held = self._cache.lengths[source]
        length = held if length is None else length
        self._check_cut(length, held, snapshot)
        if source != target or snapshot is not None or length < held:
            self._cache.copy(source, target, length, snapshot)

    @torch.inference_mode()
    def export(self, slot: int) -> SlotState:
        self._check_slot(slot)
        return self._cache.export(slot)

    @torch.inference_mode()
    def restore(
        self, slot: int, state: SlotState, length: int | None = None, snapshot: Snapshot | None = None
    ) -> None:
        self._check_slot(slot)
        if not self._cache.fits(state):
            raise ValueError("The exported state is not one of this model, or longer than the context.")
        length = state.length if length is None else length
        self._check_cut(length, state.length, snapshot)
        self._cache.restore(slot, state, length, snapshot)

    def _try_out(self, loaded: LoadedModel) -> None:
        """Read one token, and more of a type that is not proven; all slots are empty afterwards."""
        module: Any = loaded.module
        plain = module.config._attn_implementation
        module.set_attn_implementation(SLOT_ATTENTION)
        name = str(loaded.config.model_type)
        step = self._forward_step([0], [0], 1)
        with torch.inference_mode(), self._forward(step):
            self._logits(torch.zeros(1, 1, dtype=torch.int64, device=self._device), step.at.unsqueeze(0))
        self.reset(0)
        if step.reads < step.writes:
            raise UnsupportedModel(f"Models of type {name!r} can't be run: the type has its own attention.")
        if not architectures.proven(name):
            _log.warning("Models of type %r are not among those mashbox is tested with.", name)
            own = plain if plain != SLOT_ATTENTION else "eager"
            check_against_plain(loaded.module, own, self, loaded.dtype)

    def _read(self, slot: int, ids: Sequence[int], *, logits: bool) -> Tensor | None:
        """One forward pass over ids that are known to fit."""
        start = self._cache.lengths[slot]
        tokens = torch.tensor([ids], device=self._device)
        positions = torch.arange(start, start + len(ids), device=self._device).unsqueeze(0)
        with self._forward(self._forward_step([slot], [start], len(ids))):
            if logits:
                return self._logits(tokens, positions)[0]
            self._decoder(input_ids=tokens, position_ids=positions, cache=self._cache, use_cache=True)
            return None

    def _logits(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits of each row's last position, float32 [rows, vocab_size]; the caller may change them."""
        output = self._module(
            input_ids=tokens, position_ids=positions, cache=self._cache, use_cache=True, logits_to_keep=1
        )
        last: Tensor = output.logits[:, -1]
        with torch.inference_mode(False):
            logits = torch.empty(last.shape, dtype=torch.float32, device=last.device)
        return logits.copy_(last)

    def _forward_step(self, slots: list[int], starts: list[int], count: int) -> Step:
        rows = torch.tensor(slots, device=self._device)
        return Step(slots, starts, count, rows, torch.tensor(starts, device=self._device))

    @contextmanager
    def _forward(self, step: Step) -> Iterator[None]:
        self._cache.begin(step)
        try:
            with running(step):
                yield
        except BaseException:
            self._cache.abandon()
            raise
        self._cache.commit()

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.slots:
            raise ValueError(f"There is no slot {slot}: slots run from 0 to {self.slots - 1}.")

    def _check_cut(self, length: int, held: int, snapshot: Snapshot | None) -> None:
        if length == held and snapshot is None:
            return
        if not 0 < length <= held:
            raise ValueError(f"{held} tokens are held, they can't be cut to {length}.")
        if (self._cache.recurrent and snapshot is None) or (snapshot and not self._cache.fits(snapshot)):
            raise ValueError(f"{held} tokens can't be cut to {length} without a snapshot of this model.")

    def _check_ids(self, ids: Sequence[int]) -> None:
        if not ids or min(ids) < 0 or max(ids) >= self.vocab_size:
            raise ValueError(f"Token ids must be one or more, each from 0 to {self.vocab_size - 1}.")
