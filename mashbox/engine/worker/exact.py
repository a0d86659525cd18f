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
from mashbox.engine.worker.cache import SlotCache
from mashbox.engine.worker.load.model import LoadedModel
from mashbox.engine.worker.rope import fix_frequencies
from mashbox.engine.worker.selfcheck import check_against_plain
from mashbox.engine.worker.slot_runner import SlotRunner
from mashbox.errors import UnsupportedModel

_log = logging.getLogger(__name__)


class ExactRunner(SlotRunner):
    """A :class:`~mashbox.engine.worker.runner.Runner` over a module of transformers.

    Keys and values are kept in the module's dtype. One token is read at construction, so that all memory is
    allocated (``kv_bytes`` counts it) and an architecture that does not fit fails at once. A model type that
    the tests don't hold is compared with its own forward pass first, and a warning is logged. Experts run
    in transformers' own way (grouped products): only those that were chosen are read.

    A forward pass that raises leaves the slots it worked on empty, and the others as they were.
    """

    _cache: SlotCache

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

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> Tensor | None:
        self._check_prefill(slot, ids)
        if self._cache.lengths[slot] and not self._continues:
            for token in ids[:-1]:
                self._read(slot, [token], logits=False)
            ids = ids[-1:]
        return self._read(slot, ids, logits=logits)

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
        self._check_decode(slots, ids)
        starts = [self._cache.lengths[slot] for slot in slots]
        tokens = torch.tensor(ids, device=self._device).unsqueeze(1)
        positions = torch.tensor(starts, device=self._device).unsqueeze(1)
        with self._forward(self._forward_step(list(slots), starts, 1)):
            return self._logits(tokens, positions)

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
