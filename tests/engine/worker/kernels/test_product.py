"""Packed products against the ``gguf`` package's arithmetic in float64, and bit for bit among themselves."""

import math

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from mashbox.engine.worker.kernels.cpu import Instructions, instructions_here, pack
from tests.engine.worker.kernels.packing import (
    KINDS,
    half_bits,
    inputs_of,
    numbers_of,
    random_blocks,
    random_matrix,
)
from tests.engine.worker.kernels.tensors import product, tensor


def activations(rows: int, cols: int, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    # Groups of very different sizes: each must have a scale of its own.
    sizes = 10.0 ** torch.randint(-3, 3, (rows, cols // 32, 1), generator=generator)
    return (torch.randn(rows, cols // 32, 32, generator=generator) * sizes).reshape(rows, cols)


@pytest.fixture(params=Instructions, ids=lambda one: one.name.lower())
def instructions(request: pytest.FixtureRequest) -> Instructions:
    chosen: Instructions = request.param
    if chosen not in instructions_here():
        pytest.skip("this processor lacks the instruction set")
    return chosen


@pytest.fixture(params=[False, True], ids=["16-bit", "8-bit"])
def narrow(request: pytest.FixtureRequest) -> bool:
    """Whether activations are rounded to 8 bits."""
    return bool(request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_the_numbers_of_the_file(kind: str) -> None:
    blocks = random_blocks(13, 512, kind)
    matrix = pack(kind, blocks, 512)
    found = torch.stack([tensor(matrix.row(number)) for number in range(13)])
    wanted = numbers_of(blocks, kind)
    # With a minimum the order of two roundings differs; nothing else is rounded at all.
    slack = 1e-6 * float(wanted.abs().max()) if kind in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else 0
    torch.testing.assert_close(found, wanted, rtol=0, atol=slack)
    with pytest.raises(IndexError):
        matrix.row(13)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_little_more_than_the_file(kind: str) -> None:
    blocks = random_blocks(16, 512, kind)
    assert pack(kind, blocks, 512).data.nbytes <= 1.04 * blocks.nbytes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "blocks"), [(8, 1), (64, 9), (13, 3), (1, 2)])
def test_equals_the_unpacked_product(
    kind: str, outputs: int, blocks: int, instructions: Instructions, narrow: bool
) -> None:
    inputs = blocks * inputs_of(kind)
    matrix, weights = random_matrix(outputs, inputs, kind)
    x = activations(5, inputs)
    found = product(matrix, x, narrow=narrow, instructions=instructions)
    # Each input is off by half a step of its group at most, 1/65534 of the group's largest, or 1/254.
    step = 65534 if not narrow or kind in ("F32", "F16", "BF16") else 254
    largest = x.reshape(5, -1, 32).abs().amax(-1, keepdim=True).expand(-1, -1, 32).reshape(5, inputs)
    bound = (largest.double() / step + 1e-6 * x.abs().double()) @ weights.abs().T
    # What is taken out of a weight and put back, its minimum or offset, can cancel.
    slack = 1e-6 * largest.double().sum(-1, keepdim=True) * weights.abs().max()
    assert ((found.double() - x.double() @ weights.T).abs() <= bound + slack).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_the_same_bits_alone_in_any_batch_and_with_any_threads(
    kind: str, instructions: Instructions, narrow: bool
) -> None:
    # More than the 8 or 16 blocks and the 64 rows that go together, with a rest of either.
    inputs = 768 if inputs_of(kind) > 32 else 736
    matrix, _ = random_matrix(77, inputs, kind)
    x = activations(90, inputs)
    how = {"instructions": instructions, "narrow": narrow}
    alone = torch.cat([product(matrix, row[None], **how) for row in x])
    for rows in (*range(1, 18), 23, 24, 31, 65, 71, 90):
        for threads in (1, 2, 3, 16)[: 1 + rows % 4]:
            found = product(matrix, x[:rows], threads=threads, **how)
            assert torch.equal(found, alone[:rows])
    assert torch.equal(product(matrix, x.flip(0), **how), alone.flip(0))


@pytest.mark.parametrize("kind", KINDS)
def test_vector_instructions_give_the_same_bits(kind: str, narrow: bool) -> None:
    vectors = [one for one in instructions_here() if one != Instructions.PLAIN]
    if len(vectors) < 2:
        pytest.skip("this processor has no two sets of vector instructions")
    matrix, _ = random_matrix(77, 768, kind)
    x = activations(90, 768)
    for rows in (1, 19, 90):
        first, *others = (product(matrix, x[:rows], narrow=narrow, instructions=one) for one in vectors)
        assert all(torch.equal(other, first) for other in others)


@pytest.mark.parametrize("kind", ["Q4_1", "Q6_K", "F16"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_in_its_row_and_shows(
    bad: float, kind: str, instructions: Instructions, narrow: bool
) -> None:
    matrix, _ = random_matrix(16, 256, kind)
    x = activations(6, 256)
    clean = product(matrix, x, narrow=narrow, instructions=instructions)
    x[2, 40] = bad
    found = product(matrix, x, narrow=narrow, instructions=instructions)
    assert found[2].isnan().all()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(found[others], clean[others])


def test_zeros_and_tiny_numbers_give_no_more_than_themselves(
    instructions: Instructions, narrow: bool
) -> None:
    matrix, _ = random_matrix(16, 64, "Q8_0")
    x = torch.zeros(2, 64)
    x[1] = 1e-38
    found = product(matrix, x, narrow=narrow, instructions=instructions)
    assert torch.equal(found[0], torch.zeros(16))
    assert found[1].abs().max() < 1e-36


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("Q")])
@pytest.mark.parametrize("code", [0x00, 0x7F, 0x80, 0xFF])
def test_the_largest_whole_numbers_do_not_overflow(
    kind: str, code: int, instructions: Instructions, narrow: bool
) -> None:
    inputs = inputs_of(kind)
    blocks = random_blocks(1, inputs, kind, code=code)
    matrix, weights = pack(kind, blocks, inputs), numbers_of(blocks, kind).double()
    for x in (torch.full((1, inputs), 3.0), torch.full((1, inputs), -3.0)):
        found = product(matrix, x, narrow=narrow, instructions=instructions)
        slack = 1e-5 * float(x.abs().double() @ weights.abs().T)
        assert found.item() == pytest.approx((x.double() @ weights.T).item(), abs=slack)


@pytest.mark.parametrize("scale", [0x0000, 0x8000, 0x0001, 0x03FF, 0x83FF, 0x0400, 0x3C01, 0xB800, 0x7BFF])
def test_any_scale_is_kept_exactly(scale: int, instructions: Instructions) -> None:
    codes = np.arange(16, dtype=np.uint8) * 0x11
    blocks = np.concatenate([half_bits(scale), codes])[None]
    wanted = dequantize(blocks, GGMLQuantizationType.Q4_0)
    matrix = pack("Q4_0", blocks, 32)
    assert np.array_equal(matrix.row(0), wanted[0])
    found = product(matrix, torch.eye(32), instructions=instructions)[:, 0]
    torch.testing.assert_close(found, tensor(matrix.row(0)), rtol=1e-6, atol=0)


def test_what_does_not_fit_is_refused() -> None:
    matrix, _ = random_matrix(8, 64, "Q4_1")
    with pytest.raises(ValueError, match="64"):
        product(matrix, torch.zeros(1, 32))
    with pytest.raises(ValueError, match="float32"):
        product(matrix, torch.zeros(1, 64, dtype=torch.float64))
    with pytest.raises(ValueError, match="instruction set 9"):
        product(matrix, torch.zeros(1, 64), instructions=9)
    with pytest.raises(ValueError, match="Q4_1"):
        pack("Q4_1", np.zeros((8, 39), np.uint8), 64)
