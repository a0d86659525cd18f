"""The seam between the engine and the device.

The scheduler, the prefix cache and the fault handling know a model only through :class:`Runner`. Every
runner is held by the same contract tests, with the exact one (transformers' modules) as the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Logits: TypeAlias = "NDArray[np.float32] | Tensor"
"""float32 in the memory of the host: ``numpy.asarray`` reads it without a copy."""

Progress = Callable[[str, int, int], None]
"""Told while a model loads: the stage in words, bytes done, bytes in all (0: unknown)."""


class Built(NamedTuple):
    """Which engine was chosen for which architecture, and how its experts run (None: it has none).

    ``why`` tells why it is not the fast one, where the choice was open. ``agreed`` names the comparison that
    the fast one passed. ``cache_bytes``: what the prompt cache may take, where that is not what was asked.
    """

    engine: str
    architecture: str
    routed_experts: dict[str, Any] | None = None
    why: str = ""
    agreed: str = ""
    cache_bytes: int | None = None


class Runner(Protocol):
    """A model over ``slots`` static slots, each holding one sequence of up to ``ctx`` tokens.

    A slot's ``length`` is the number of tokens whose state it holds. The caller keeps the bounds:
    ``start + len(ids) <= ctx``; a runner raises ValueError on a violation before it touches any state.
    """

    slots: int
    ctx: int
    vocab_size: int
    weight_bytes: int
    kv_bytes: int

    @property
    def recurrent(self) -> bool:
        """Whether a slot's state has a part that can't be cut to an earlier length, except to none."""
        ...

    @property
    def snapshot_bytes(self) -> int:
        """Size of every :meth:`snapshot`: what that part takes in one slot; 0 if there is none."""
        ...

    def length(self, slot: int) -> int:
        """Tokens whose state the slot holds."""
        ...

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> Logits | None:
        """Read ``ids`` (1 or more) behind what the slot holds.

        Returns the logits of the last position, float32 [vocab_size], when ``logits`` is set, else None.
        """
        ...

    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> Logits:
        """One step of several rows: append ``ids[i]`` to ``slots[i]`` (distinct, each non-empty).

        Returns float32 [rows, vocab_size].
        """
        ...

    @property
    def takes_runs(self) -> bool:
        """Whether :meth:`decode_runs` works, and gives every row the bits that it has in any other step."""
        ...

    def decode_runs(self, slots: Sequence[int], runs: Sequence[Sequence[int]]) -> Logits:
        """One step that appends ``runs[i]``, one token or more, to ``slots[i]`` (distinct, each non-empty).

        Returns the logits behind every token, float32 [tokens of all runs, vocab_size], run after run.
        """
        ...

    def reset(self, slot: int) -> None:
        """Forget the slot's sequence."""
        ...

    def truncate(self, slot: int, length: int) -> bool:
        """Keep only the first ``length`` tokens; False (slot unchanged) if the state can't be cut there."""
        ...

    def snapshot(self, slot: int) -> Any:
        """An object of its own: the part of a slot's state (not empty) that can't be cut, as it is now.

        It belongs to the tokens that the slot holds, and to every slot that begins with them.
        """
        ...

    def rewind(self, slot: int, length: int, snapshot: Any) -> None:
        """Keep the first ``length`` tokens (1 or more), behind which ``snapshot`` was taken."""
        ...

    def copy(self, source: int, target: int, length: int | None = None, snapshot: Any = None) -> None:
        """Make ``target`` hold the first ``length`` tokens of ``source`` (None: all).

        A recurrent runner needs the snapshot of that length for less than all.
        """
        ...

    def export(self, slot: int, start: int = 0) -> Any:
        """The slot's state from token ``start`` on as an object of its own, for the host tier.

        ``nbytes`` tells its size: ``snapshot_bytes`` and the same number of bytes for each token; none if the
        slot is empty. ``end`` is the snapshot behind its last token.
        """
        ...

    def restore(
        self,
        slot: int,
        states: Sequence[Any],
        length: int | None = None,
        snapshot: Any = None,
        *,
        source: int | None = None,
        kept: int = 0,
    ) -> None:
        """Make ``slot`` hold ``length`` tokens (None: all) out of pieces of one and the same sequence.

        Those are the first ``kept`` tokens of slot ``source`` (which may be the same one) and exported
        states, each of which begins no later than where those before it end. A recurrent runner needs
        ``snapshot`` unless the last piece ends at ``length``.
        """
        ...
