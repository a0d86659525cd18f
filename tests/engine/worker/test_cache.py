"""The slot cache as transformers' modules use it."""

import pytest
import torch
from torch import Tensor

from mashbox.engine.worker.attention import Step
from mashbox.engine.worker.cache import SlotCache

SLOTS, CTX = 4, 10


def step(slots: list[int], starts: list[int], count: int) -> Step:
    return Step(slots, starts, count, torch.tensor(slots), torch.tensor(starts))


def tokens(rows: int, count: int, value: float, heads: int = 2, dim: int = 3) -> Tensor:
    return torch.full((rows, heads, count, dim), value)


def test_keys_are_written_in_place_and_read_as_views() -> None:
    cache = SlotCache(SLOTS, CTX)
    cache.begin(step([2], [0], 4))
    keys, values = cache.update(tokens(1, 4, 1.0), tokens(1, 4, 2.0, dim=5), 0)
    cache.commit()
    assert keys.shape == (1, 2, 4, 3)
    assert values.shape == (1, 2, 4, 5)
    cache.begin(step([2], [4], 2))
    more, _ = cache.update(tokens(1, 2, 3.0), tokens(1, 2, 4.0, dim=5), 0)
    cache.commit()
    assert more[0, 0, :, 0].tolist() == [1, 1, 1, 1, 3, 3]
    assert more.data_ptr() == keys.data_ptr()
    assert cache.lengths == [0, 0, 6, 0]
    assert cache.nbytes == 4 * SLOTS * CTX * 2 * (3 + 5)


@pytest.mark.parametrize("gather", [False, True])
def test_rows_of_different_lengths(gather: bool) -> None:
    cache = SlotCache(SLOTS, CTX, gather=gather)
    for slot, length in ((3, 5), (1, 2)):
        cache.begin(step([slot], [0], length))
        cache.update(tokens(1, length, float(slot)), tokens(1, length, 0.0), 7)
        cache.commit()
    cache.begin(step([3, 1], [5, 2], 1))
    new = torch.stack([tokens(1, 1, 30.0)[0], tokens(1, 1, 10.0)[0]])
    keys, _ = cache.update(new, new, 7)
    cache.commit()
    # A view runs over slots 1 to 3; gathered rows come in the step's order.
    assert keys.shape[0] == (2 if gather else 3)
    third, first = (0, 1) if gather else (2, 0)
    assert keys[third, 0, :, 0].tolist() == [3, 3, 3, 3, 3, 30]
    assert keys[first, 0, :3, 0].tolist() == [1, 1, 10]
    assert cache.lengths == [0, 3, 0, 6]


def test_convolution_keeps_its_last_inputs() -> None:
    cache = SlotCache(SLOTS, CTX)
    cache.begin(step([1], [0], 2))
    assert cache.get_conv_state(0) is None
    assert not cache.has_previous_state(0)
    seen = cache.update_conv_state(torch.tensor([[[1.0, 2.0]]]), 0, conv_kernel_size=3)
    cache.commit()
    assert seen.tolist() == [[[0, 1, 2]]]
    cache.begin(step([1], [2], 2))
    assert cache.has_previous_state(0)
    assert cache.update_conv_state(torch.tensor([[[3.0, 4.0]]]), 0, conv_kernel_size=3).tolist() == [
        [[0, 1, 2, 3, 4]]
    ]
    state = cache.get_conv_state(0)
    assert state is not None
    assert state.tolist() == [[[2, 3, 4]]]


def _two_rows() -> SlotCache:
    cache = SlotCache(SLOTS, CTX)
    for slot in (0, 2):
        cache.begin(step([slot], [0], 1))
        cache.update_conv_state(torch.full((1, 1, 3), float(slot)), 0)
        cache.update_recurrent_state(torch.full((1, 2), float(slot)), 0)
        cache.commit()
    return cache


def test_states_changed_in_place_are_written_back() -> None:
    cache = _two_rows()
    cache.begin(step([2, 0], [1, 1], 1))
    state = cache.get_conv_state(0)
    assert state is not None
    assert state[:, 0, 0].tolist() == [2, 0]
    state.add_(10)
    cache.commit()
    cache.begin(step([0], [2], 1))
    alone = cache.get_conv_state(0)
    assert alone is not None
    assert alone.tolist() == [[[10, 10, 10]]]
    alone.add_(5)
    cache.commit()
    cache.begin(step([0, 2], [3, 2], 1))
    both = cache.get_conv_state(0)
    assert both is not None
    assert both[:, 0, 0].tolist() == [15, 12]


def test_what_was_gathered_does_not_undo_what_was_written() -> None:
    cache = _two_rows()
    cache.begin(step([2, 0], [1, 1], 1))
    old = cache.get_recurrent_state(0)
    assert old is not None
    cache.update_recurrent_state(old + 1, 0)
    cache.commit()
    cache.begin(step([0, 2], [2, 2], 1))
    new = cache.get_recurrent_state(0)
    assert new is not None
    assert new[:, 0].tolist() == [1, 3]


def test_a_failed_step_empties_its_slots() -> None:
    cache = _two_rows()
    cache.begin(step([2], [1], 1))
    cache.abandon()
    assert cache.lengths == [1, 0, 0, 0]
    cache.begin(step([2], [0], 1))
    assert cache.get_recurrent_state(0) is None


def test_nothing_runs_outside_a_step() -> None:
    cache = _two_rows()
    with pytest.raises(RuntimeError, match="outside"):
        cache.get_conv_state(0)
    with pytest.raises(RuntimeError, match="outside"):
        cache.update(tokens(1, 1, 1.0), tokens(1, 1, 1.0), 0)


def test_export_counts_its_bytes_and_fits_only_its_own_kind() -> None:
    cache = _two_rows()
    cache.begin(step([2], [1], 3))
    cache.update(tokens(1, 3, 1.0), tokens(1, 3, 1.0), 1)
    cache.commit()
    state = cache.export(2)
    assert state.length == 4
    assert state.nbytes == 4 * (2 * 2 * 4 * 3 + 3 + 2)
    assert cache.fits(state)
    assert not SlotCache(SLOTS, CTX).fits(state)
    assert not _two_rows().fits(state)
