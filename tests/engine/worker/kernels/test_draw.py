"""The kernels' draw beside numpy's: the same tokens, for rows of any length and any cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.request import Sampling
from mashbox.engine.worker import draw
from mashbox.engine.worker.draw import kernel_draw, numpy_draw
from mashbox.engine.worker.kernels.cpu import Instructions, best_instructions
from mashbox.errors import UsageError

CUTS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 1e-6, 0.7, 1.0, 5.0]),
        "top_k": st.sampled_from([0, 1, 2, 40, 5_000]),
        "top_p": st.sampled_from([0.01, 0.5, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 1.0]),
    }
)


@pytest.mark.parametrize("instructions", sorted({Instructions.PLAIN, best_instructions()}))
@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 9_999),
    size=st.integers(1, 300) | st.sampled_from([640, 4_001]),
    spread=st.sampled_from([0.0, 1.0, 8.0]),
    forbidden=st.sampled_from([0.0, 0.5, 0.99]),
    cuts=CUTS,
    number=st.floats(0, 1, exclude_max=True),
)
def test_the_tokens_are_numpys(
    instructions: Instructions,
    seed: int,
    size: int,
    spread: float,
    forbidden: float,
    cuts: dict[str, float],
    number: float,
) -> None:
    random = np.random.default_rng(seed)
    row = (random.standard_normal(size) * spread).astype(np.float32)
    row[random.random(size) < forbidden] = -np.inf
    row[random.integers(size)] = 1.0
    sampling = Sampling(**cuts)  # type: ignore[arg-type]
    token = kernel_draw(instructions)(row, sampling, number)
    # The last bit of a sum may put a number on a token's border to its neighbour.
    near = {numpy_draw(row, sampling, min(max(number + step, 0.0), 1 - 1e-9)) for step in (-1e-5, 0.0, 1e-5)}
    assert token in near
    assert token is not None and row[token] > -np.inf


@pytest.mark.parametrize("instructions", sorted({Instructions.PLAIN, best_instructions()}))
@pytest.mark.parametrize("flaw", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 63, 64, 129])
def test_a_row_with_a_flaw_gives_no_token(instructions: Instructions, flaw: float, place: int) -> None:
    row = np.zeros(130, np.float32)
    row[place] = flaw
    for temperature in (0.0, 1.0):
        assert kernel_draw(instructions)(row, Sampling(temperature=temperature, top_k=3), 0.5) is None
    assert kernel_draw(instructions)(np.full(130, -np.inf, np.float32), Sampling(), 0.0) is None


@pytest.mark.parametrize("failure", [UsageError("not built"), OSError("invalid ELF header")])
def test_numpy_draws_where_the_kernels_can_not(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    def fail() -> int:
        raise failure

    monkeypatch.setattr(draw, "best_instructions", fail)
    assert draw.chosen.__wrapped__() is numpy_draw
