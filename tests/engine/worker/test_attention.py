"""Attention over slots against the plain formula, row by row and key by key."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mashbox.engine.worker import attention
from mashbox.engine.worker.attention import Step, running, slot_attention, slot_mask
from mashbox.errors import UnsupportedModel

HEADS, KV_HEADS, CTX = 6, 2, 96


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    start: int,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """[heads, count, d] over [kv_heads, keys, d], one query after the other, in float64."""
    rows = []
    for head in range(HEADS):
        group = head // (HEADS // KV_HEADS)
        for index in range(query.shape[1]):
            position = start + index
            begin = max(0, position + 1 - window) if window else 0
            keys, values = (t[group, begin : position + 1].double() for t in (key, value))
            scores = keys @ query[head, index].double() * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            if sinks is not None:
                scores = torch.cat([scores, sinks[head : head + 1].double()])
            weights = torch.softmax(scores, 0)[: len(keys)]
            rows.append(weights @ values)
    return torch.stack(rows).view(HEADS, query.shape[1], -1).float()


def run(
    slots: list[int], starts: list[int], count: int, *, dims: tuple[int, int] = (16, 16), **options: Any
) -> tuple[Tensor, Tensor]:
    """What slot attention gives for random rows, and what it should; unused keys are NaN."""
    generator = torch.Generator().manual_seed(count + sum(slots))
    span = max(slots) - min(slots) + 1
    query = torch.randn(len(slots), HEADS, count, dims[0], generator=generator)
    key = torch.randn(span, KV_HEADS, CTX, dims[0], generator=generator)
    value = torch.randn(span, KV_HEADS, CTX, dims[1], generator=generator)
    for slot in range(span):
        used = dict(zip(slots, starts, strict=True)).get(slot + min(slots))
        key[slot, :, 0 if used is None else used + count :] = math.nan
        value[slot, :, 0 if used is None else used + count :] = math.nan
    window = options.pop("window", None)
    mask = None if window is None else torch.zeros(()).expand(1, 1, 1, window)
    step = Step(slots, starts, count, torch.tensor(slots), torch.tensor(starts))
    module = nn.Module()
    with running(step):
        found, weights = slot_attention(module, query, key, value, mask, scaling=0.3, **options)
    assert weights is None
    wanted = [
        plain(
            query[row],
            key[slot - min(slots)],
            value[slot - min(slots)],
            starts[row],
            0.3,
            window,
            options.get("softcap"),
            options.get("s_aux"),
        )
        for row, slot in enumerate(slots)
    ]
    return found, torch.stack(wanted).transpose(1, 2)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"window": 5},
    {"softcap": 2.0},
    {"s_aux": torch.linspace(-1, 2, HEADS)},
    {"window": 7, "s_aux": torch.linspace(-1, 2, HEADS)},
    {"dims": (16, 12)},
    {"dims": (12, 16), "window": 4, "softcap": 1.5},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 2), (0, 40), (33, 1), (33, 40), (95, 1), (0, 96)])
def test_one_row(start: int, count: int, options: dict[str, Any]) -> None:
    found, wanted = run([2], [start], count, **options)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("slots", [[0, 1, 2, 3], [5, 1, 4, 0], [3, 7, 0, 6]])
def test_rows_of_different_lengths(slots: list[int], options: dict[str, Any]) -> None:
    found, wanted = run(slots, [3, 80, 1, 20], 1, **options)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("block", "elements"), [(8, 1 << 22), (256, 300), (256, 1)])
def test_blocks_of_queries(
    block: int, elements: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_BLOCK", block)
    monkeypatch.setattr(attention, "_MASK_ELEMENTS", elements)
    monkeypatch.setattr(attention, "_SCORE_ELEMENTS", elements)
    found, wanted = run([1], [20], 50, **options)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_masks_are_made_once_a_step_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_BLOCK", 8)
    monkeypatch.setattr(attention, "_MASK_ELEMENTS", 500)
    step = Step([0], [0], 80, torch.tensor([0]), torch.tensor([0]))
    data = [torch.randn(1, heads, 80, 16) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    with running(step):
        first, _ = slot_attention(nn.Module(), *data, None)
        kept = dict(step.masks)
        second, _ = slot_attention(nn.Module(), *data, None)
    assert torch.equal(first, second)
    assert 0 < sum(mask.numel() for mask in kept.values()) <= 1000
    assert step.masks.keys() == kept.keys()
    assert step.reads == 2


def test_fewer_queries_than_tokens_are_the_last_ones() -> None:
    step = Step([0], [10], 6, torch.tensor([0]), torch.tensor([10]))
    query, key, value = (
        torch.randn(1, heads, n, 16) for heads, n in ((HEADS, 6), (KV_HEADS, 16), (KV_HEADS, 16))
    )
    with running(step):
        whole, _ = slot_attention(nn.Module(), query, key, value, None)
        last, _ = slot_attention(nn.Module(), query[:, :, -1:], key, value, None)
    torch.testing.assert_close(last, whole[:, -1:])


def test_gathered_rows() -> None:
    step = Step([4, 1], [7, 3], 1, torch.tensor([4, 1]), torch.tensor([7, 3]))
    query, key, value = (
        torch.randn(2, heads, n, 16) for heads, n in ((HEADS, 1), (KV_HEADS, 8), (KV_HEADS, 8))
    )
    with running(step):
        found, _ = slot_attention(nn.Module(), query, key, value, None)
    for row, start in enumerate((7, 3)):
        wanted = plain(query[row], key[row], value[row], start, 0.25, None, None, None)
        torch.testing.assert_close(found[row, 0], wanted[:, 0])


def test_masks_that_are_not_causal_are_refused() -> None:
    def chunks_of_four(batch: int, head: int, q: Tensor, k: Tensor) -> Tensor:
        return (k <= q) & (q // 4 == k // 4)

    with pytest.raises(UnsupportedModel, match="chunks"):
        slot_mask(mask_function=chunks_of_four, local_size=4)
    with pytest.raises(UnsupportedModel, match="overlays"):
        slot_mask(mask_function=chunks_of_four, use_vmap=True)
    bidirectional = nn.Module()
    bidirectional.is_causal = False
    with running(Step([0], [0], 1, torch.tensor([0]), torch.tensor([0]))), pytest.raises(UnsupportedModel):
        slot_attention(bidirectional, *(torch.randn(1, 2, 1, 4) for _ in range(3)), None)


def test_outside_a_step_it_refuses() -> None:
    with pytest.raises(LookupError):
        slot_attention(nn.Module(), *(torch.randn(1, 2, 1, 4) for _ in range(3)), None)
