"""The sampler: parameters do what the API says, seeds decide, batch-mates don't matter."""

import math
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.request import Sampling
from mashbox.engine.worker import draw
from mashbox.engine.worker.kernels.cpu import best_instructions
from mashbox.engine.worker.sampler import RowSampler, uniform
from tests.engine.worker.sampling import sample
from tests.hypotheses import examples

VOCAB = 40


@pytest.fixture(autouse=True, scope="module", params=["numpy", "plain", "best"])
def ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test with numpy's draw, the kernels' in plain C++ and the one for this processor."""
    if request.param == "numpy":
        way = draw.numpy_draw
    else:
        way = draw.kernel_draw(0 if request.param == "plain" else best_instructions())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "chosen", lambda: way)
        yield


def row(seed: int = 0, size: int = VOCAB) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3


def sampler(prompt: tuple[int, ...] = (), size: int = VOCAB, **parameters: float) -> RowSampler:
    return RowSampler(Sampling(**parameters), prompt, size)


def support(logits: torch.Tensor, draws: int = 400, **parameters: float) -> set[int]:
    """The tokens that are ever drawn."""
    rows = [sampler(size=len(logits), seed=i, **parameters) for i in range(draws)]
    return {token for token in sample(logits.expand(draws, -1), rows) if token is not None}


def test_temperature_zero_and_top_k_one_are_the_argmax() -> None:
    logits = torch.stack([row(1), row(2)])
    rows = [sampler(), sampler(temperature=2.0, top_k=1, seed=5)]
    assert sample(logits, rows) == logits.argmax(dim=-1).tolist()


def test_top_k_keeps_the_k_most_likely() -> None:
    best = set(row().topk(3).indices.tolist())
    assert support(row() / 3, temperature=1.0, top_k=3) == best


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    assert support(logits, temperature=1.0, top_p=0.79) == {0, 1}
    assert support(logits, temperature=1.0, top_p=0.81) == {0, 1, 2}


def test_top_p_beyond_the_head_sorts_the_whole_row() -> None:
    flat = torch.zeros(5000)
    flat[4000:] = -0.5
    kept = support(flat, draws=3000, temperature=1.0, top_p=0.8)
    assert max(kept) < 4000 and len(kept) > 1500


def test_min_p_is_taken_after_temperature() -> None:
    logits = torch.tensor([0.0, math.log(0.5), math.log(0.2)])
    assert support(logits, temperature=1.0, min_p=0.3) == {0, 1}
    assert support(logits, temperature=4.0, min_p=0.3) == {0, 1, 2}


def test_penalties_follow_their_definitions() -> None:
    logits = torch.tensor([2.0, -1.0, 0.5, 0.0])
    worker = RowSampler(
        Sampling(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5), (0, 1), 4
    )
    worker.accept(2)
    worker.accept(2)
    torch.testing.assert_close(
        torch.from_numpy(worker.penalise(logits.numpy())), torch.tensor([1.0, -2.0, 0.25 - 1.0 - 0.25, 0.0])
    )


def test_draws_follow_the_distribution() -> None:
    weights = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = 4000
    rows = [sampler(size=4, temperature=1.0, seed=i) for i in range(draws)]
    counts = Counter(sample(weights.log().expand(draws, -1), rows))
    for token, weight in enumerate(weights.tolist()):
        assert counts[token] / draws == pytest.approx(weight, abs=0.03)


def test_a_seed_draws_anew_at_each_position() -> None:
    worker = sampler(temperature=1.0, seed=42, size=1000)
    tokens = [sample(torch.zeros(1, 1000), [worker])[0] for _ in range(20)]
    again = sampler(temperature=1.0, seed=42, size=1000)
    assert [sample(torch.zeros(1, 1000), [again])[0] for _ in range(20)] == tokens
    assert len(set(tokens)) > 15


def test_tiny_and_huge_temperatures_stay_finite() -> None:
    assert support(row() * 1e4, temperature=1e-6) == {int(row().argmax())}
    assert len(support(row(), temperature=4.0)) > 10


EXTREMES = [1e-320, 1e-46, 1e-38, 1e38, 1e300]


@pytest.mark.parametrize("penalty", EXTREMES)
@pytest.mark.parametrize("temperature", [0.0, 1e-320, 1e-46, 1e-38, 1.0])
def test_numbers_that_no_float32_holds_still_draw_a_token(penalty: float, temperature: float) -> None:
    """A token outside the vocabulary would end the worker, and with it everyone's requests."""
    zeros = torch.where(torch.arange(VOCAB) % 4 == 0, 0.0, row())
    worker = sampler(tuple(range(0, VOCAB, 2)), temperature=temperature, repetition_penalty=penalty)
    tokens = [sample(zeros[None], [worker])[0] for _ in range(5)]
    assert all(token is not None and 0 <= token < VOCAB for token in tokens)


def test_nan_is_reported_for_its_row_only() -> None:
    logits = torch.stack([row(1), row(2), row(3)])
    logits[1, 7] = torch.nan
    picked = sample(logits, [sampler(), sampler(temperature=1.0), sampler(temperature=1.0, seed=3)])
    assert picked[1] is None and picked[0] is not None and picked[2] is not None


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32))
def test_uniform_is_in_the_half_open_interval(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


PARAMETERS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.2, 1.0, 4.0]),
        "top_k": st.sampled_from([0, 1, 3, 1000]),
        "top_p": st.sampled_from([0.1, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.2]),
        "repetition_penalty": st.sampled_from([1.0, 2.0]),
        "frequency_penalty": st.sampled_from([0.0, 1.5]),
        "seed": st.integers(0, 2**64 - 1),
    }
)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(PARAMETERS, min_size=2, max_size=5), st.integers(0, 99))
def test_a_row_is_the_same_alone_and_in_a_batch(parameters: list[dict[str, float]], seed: int) -> None:
    logits = torch.stack([row(seed + i) for i in range(len(parameters))])

    def make() -> list[RowSampler]:
        return [sampler(prompt=(1, 2, 3), **each) for each in parameters]

    together = sample(logits, make())
    alone = [sample(logits[i : i + 1], [worker])[0] for i, worker in enumerate(make())]
    assert together == alone


def _interval(logits: torch.Tensor, token: int, parameters: dict[str, float]) -> tuple[float, float]:
    """The numbers in [0, 1) that must draw ``token``, by sorting all in float64; empty if none does."""
    scaled = logits.double() / parameters["temperature"]
    if k := int(parameters["top_k"]):
        scaled[scaled < scaled.topk(min(k, len(scaled))).values[-1]] = -math.inf
    weights = scaled.softmax(-1)
    ordered = weights.sort(descending=True).values
    heights = ordered.cumsum(-1)
    nucleus = ordered[min(int(torch.searchsorted(heights, parameters["top_p"])), len(ordered) - 1)]
    floor = max(float(nucleus) if parameters["top_p"] < 1 else 0.0, parameters["min_p"] * float(ordered[0]))
    weights[weights < floor * (1 - 1e-6)] = 0.0
    heights = weights.cumsum(-1) / weights.sum()
    return float(heights[token - 1]) if token else 0.0, float(heights[token])


@settings(max_examples=examples(150), deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([3, 129, 700, 5000, 40_000]),
    st.sampled_from([0.0, 1.0, 6.0]),
    st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.2, 1.0, 4.0]),
            "top_k": st.sampled_from([0, 2, 40, 900]),
            "top_p": st.sampled_from([0.05, 0.9, 0.9999, 1.0]),
            "min_p": st.sampled_from([0.0, 0.01, 0.5]),
        }
    ),
)
def test_a_draw_is_what_sorting_the_vocabulary_would_give(
    seed: int, size: int, spread: float, parameters: dict[str, float]
) -> None:
    logits = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread
    (token,) = sample(logits[None], [sampler(size=size, seed=seed, **parameters)])
    assert token is not None
    low, high = _interval(logits, token, parameters)
    # Float32 weights against float64 ones; a token at the nucleus' border may be in or out.
    slack = 1e-4 if spread else 2.5 / size
    assert low - slack <= uniform(seed, 0) <= high + slack


def test_infinity_is_no_token() -> None:
    logits = torch.stack([row(1), row(2), torch.full((VOCAB,), -torch.inf)])
    logits[1, 7] = torch.inf
    picked = sample(logits, [sampler(temperature=1.0) for _ in logits])
    assert picked[0] is not None and picked[1:] == [None, None]


@pytest.mark.parametrize("parameters", [{}, {"top_k": 40}, {"top_p": 0.7}, {"min_p": 0.001}])
def test_what_is_forbidden_is_never_drawn(parameters: dict[str, float]) -> None:
    logits = row(size=300)
    logits[torch.arange(300) % 3 > 0] = -torch.inf
    drawn = support(logits, temperature=4.0, **parameters)
    assert drawn and all(token % 3 == 0 for token in drawn)
