"""Unpacking in pieces into strided views gives what the ``gguf`` package gives for the whole."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from mashbox.engine.worker.load import dequant
from mashbox.engine.worker.load.dequant import can_unpack, unpack, unpacking_threads

QUANTISED = sorted(
    kind.name for kind in GGMLQuantizationType if can_unpack(kind.name) and kind.name not in dequant.PLAIN
)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dequant, "PIECE", 2048)


def packed(kind: str, rows: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of random bytes, which mean numbers in every format."""
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return np.random.default_rng(seed).integers(0, 256, (rows, width // block * block_bytes), np.uint8)


def whole(data: NDArray[Any], kind: str) -> torch.Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(dequantize(data, GGMLQuantizationType[kind]))


def assert_equal(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)


def test_all_formats_of_the_package_are_known() -> None:
    assert {"Q4_0", "Q4_K", "Q6_K", "Q2_K", "IQ4_XS", "IQ1_S", "MXFP4", "TQ1_0", "NVFP4"} <= set(QUANTISED)
    assert not can_unpack("Q8_K")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", QUANTISED)
def test_every_format_in_pieces(kind: str) -> None:
    data = packed(kind, 37, 512)
    out = torch.full((37, 512), 7.0)
    with unpacking_threads() as pool:
        unpack(data, kind, [out], pool)
    assert_equal(out, whole(data, kind))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("F32", "<f4"), ("F16", "<f2"), ("BF16", "<u2"), ("F64", "<f8"), ("I8", "i1"), ("I32", "<i4")],
)
def test_plain_types(kind: str, dtype: str) -> None:
    numbers = torch.randint(-100, 100, (50, 96)).float()
    raw = (
        numbers.bfloat16().view(torch.int16).numpy().view("<u2")
        if kind == "BF16"
        else numbers.numpy().astype(dtype)
    )
    out = torch.empty(50, 96)
    with ThreadPoolExecutor(2) as pool:
        unpack(raw, kind, [out], pool)
    assert_equal(out, numbers)


def rows_of(count: int, width: int = 64) -> tuple[NDArray[np.float32], torch.Tensor]:
    numbers = torch.arange(count * width, dtype=torch.float32).view(count, width)
    return numbers.numpy(), numbers


def test_a_transposed_view() -> None:
    data, numbers = rows_of(6 * 50)
    target = torch.empty(6, 64, 50)
    with ThreadPoolExecutor(2) as pool:
        unpack(data.reshape(6, 50, 64), "F32", [target.transpose(1, 2)], pool)
    assert_equal(target, numbers.view(6, 50, 64).transpose(1, 2))


def test_views_larger_than_a_piece_are_cut_further() -> None:
    data, numbers = rows_of(3 * 400)
    target = torch.empty(3, 800, 64)
    with ThreadPoolExecutor(2) as pool:
        unpack(data.reshape(3, 400, 64), "F32", [target[:, 1::2]], pool)
        unpack(-data.reshape(3, 400, 64), "F32", [target[:, 0::2]], pool)
    assert_equal(target[:, 1::2], numbers.view(3, 400, 64))
    assert_equal(target[:, 0::2], -numbers.view(3, 400, 64))


def test_columns_in_another_order() -> None:
    data, numbers = rows_of(90)
    target = torch.empty(90, 64)
    with ThreadPoolExecutor(2) as pool:
        unpack(data, "F32", [target.view(90, 2, 4, 8).transpose(1, 2)], pool)
    order = [(key * 4 + each) * 8 + i for each in range(4) for key in range(2) for i in range(8)]
    assert_equal(target[:, order], numbers)


def test_one_tensor_fills_several_views_in_turn() -> None:
    data, numbers = rows_of(100)
    first, second = torch.empty(33, 64), torch.empty(67, 64)
    with ThreadPoolExecutor(2) as pool:
        unpack(data, "F32", [first, second], pool)
    assert_equal(torch.cat([first, second]), numbers)


def test_a_vector_into_a_permuted_view() -> None:
    target = torch.empty(6)
    with ThreadPoolExecutor(2) as pool:
        unpack(np.arange(6, dtype=np.float32), "F32", [target.view(2, 3).T], pool)
    assert target.tolist() == [0, 2, 4, 1, 3, 5]


def test_values_are_changed_before_they_are_rounded() -> None:
    target = torch.empty(4, dtype=torch.bfloat16)
    stored = np.array([1.001, 1.002, 0.999, 1.0], np.float32)
    with ThreadPoolExecutor(2) as pool:
        unpack(stored, "F32", [target], pool, lambda numbers: numbers - 1)
    torch.testing.assert_close(target.float(), torch.from_numpy(stored - 1), rtol=2**-8, atol=0)


def test_an_error_in_a_thread_comes_out() -> None:
    with ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        unpack(np.ones(4, np.float32), "F32", [torch.empty(4)], pool, lambda numbers: numbers / (1 // 0))
