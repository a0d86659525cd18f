"""Packed products against the ``gguf`` package's arithmetic in float64, and bit for bit among themselves."""

import math

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from mashbox.engine.worker.kernels.cpu import best_instructions, pack, product
from tests.engine.worker.kernels.packing import half_bits, random_matrix

KINDS = ["Q4_0", "Q4_1", "Q8_0"]


def activations(rows: int, cols: int, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    # Groups of very different sizes: each must have a scale of its own.
    sizes = 10.0 ** torch.randint(-3, 3, (rows, cols // 32, 1), generator=generator)
    return (torch.randn(rows, cols // 32, 32, generator=generator) * sizes).reshape(rows, cols)


@pytest.fixture(params=[0, 1, 2], ids=["plain", "avx2", "avx512"])
def instructions(request: pytest.FixtureRequest) -> int:
    chosen: int = request.param
    if chosen > best_instructions():
        pytest.skip("this processor lacks the instruction set")
    return chosen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("outputs", "inputs"), [(8, 32), (64, 576), (13, 96), (1, 64)])
def test_equals_the_unpacked_product(kind: str, outputs: int, inputs: int, instructions: int) -> None:
    matrix, weights = random_matrix(outputs, inputs, kind)
    x = activations(5, inputs)
    found = product(matrix, x, instructions=instructions)
    # Each input is off by half a step of its group at most, 1/65534 of the group's largest.
    steps = x.reshape(5, -1, 32).abs().amax(-1, keepdim=True).expand(-1, -1, 32).reshape(5, inputs) / 65534
    bound = (steps.double() + 1e-6 * x.abs().double()) @ weights.abs().T
    # The minimum is taken out of a 4-bit weight and put back: its product can cancel.
    slack = 1e-6 * (x.abs().double().sum(-1, keepdim=True))
    assert ((found.double() - x.double() @ weights.T).abs() <= bound + slack).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_the_same_bits_alone_in_any_batch_and_with_any_threads(kind: str, instructions: int) -> None:
    matrix, _ = random_matrix(77, 160, kind)
    x = activations(11, 160)
    alone = torch.cat([product(matrix, row[None], instructions=instructions) for row in x])
    for rows in range(1, 12):
        for threads in (1, 2, 3, 16):
            found = product(matrix, x[:rows], threads=threads, instructions=instructions)
            assert torch.equal(found, alone[:rows])
    assert torch.equal(product(matrix, x.flip(0), instructions=instructions), alone.flip(0))


@pytest.mark.parametrize("kind", KINDS)
def test_vector_instructions_give_the_same_bits(kind: str) -> None:
    if best_instructions() < 2:
        pytest.skip("this processor has one set of vector instructions")
    matrix, _ = random_matrix(64, 320, kind)
    x = activations(7, 320)
    assert torch.equal(product(matrix, x, instructions=1), product(matrix, x, instructions=2))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_in_its_row_and_shows(bad: float, instructions: int) -> None:
    matrix, _ = random_matrix(16, 64, "Q4_1")
    x = activations(6, 64)
    clean = product(matrix, x, instructions=instructions)
    x[2, 40] = bad
    found = product(matrix, x, instructions=instructions)
    assert found[2].isnan().all()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(found[others], clean[others])


def test_zeros_and_tiny_numbers_give_no_more_than_themselves(instructions: int) -> None:
    matrix, _ = random_matrix(16, 64, "Q8_0")
    x = torch.zeros(2, 64)
    x[1] = 1e-38
    found = product(matrix, x, instructions=instructions)
    assert torch.equal(found[0], torch.zeros(16))
    assert found[1].abs().max() < 1e-36


def test_the_largest_whole_numbers_do_not_overflow(instructions: int) -> None:
    blocks = np.concatenate([half_bits(0x3C00), np.full(32, 0x80, np.uint8)])[None]  # scale 1, all -128
    x = torch.full((1, 32), 3.0)
    found = product(pack("Q8_0", blocks, 32), x, instructions=instructions)
    assert found.item() == pytest.approx(-128 * 32 * 3.0, rel=1e-6)


@pytest.mark.parametrize(
    "scale", [0x0000, 0x8000, 0x0001, 0x0080, 0x03FF, 0x83FF, 0x0400, 0x3C01, 0xB800, 0x6FFF]
)
def test_a_minimum_is_made_exactly_of_any_scale(scale: int) -> None:
    codes = np.arange(16, dtype=np.uint8) * 0x11
    blocks = np.concatenate([half_bits(scale), codes])[None]
    wanted = dequantize(blocks, GGMLQuantizationType.Q4_0)
    each = torch.eye(32)
    found = product(pack("Q4_0", blocks, 32), each)[:, 0]
    largest = float(np.abs(wanted).max())
    torch.testing.assert_close(found, torch.from_numpy(wanted[0]), rtol=0, atol=largest * 1e-6)


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
