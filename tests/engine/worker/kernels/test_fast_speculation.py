"""The fast engine through the real scheduler: the same tokens of a seed with speculation and without."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mashbox.engine.worker import scheduler as scheduling
from tests.engine.worker.kernels.test_fast import fast
from tests.engine.worker.test_speculate import SAMPLING, FreeRows, Mix, answers
from tests.engine.worker.tiny import VOCAB
from tests.hypotheses import examples

PHRASE = st.lists(st.integers(3, VOCAB - 1), min_size=2, max_size=9)


def _request(phrase: list[int], times: int, **rest: Any) -> dict[str, Any]:
    return {"ids": (phrase * times)[:60], **rest}


REQUEST = st.builds(
    _request,
    PHRASE,
    st.integers(1, 8),
    max_tokens=st.integers(1, 60),
    end_ids=st.sampled_from([[], [7, 11]]),
    sampling=SAMPLING,
)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(REQUEST, min_size=1, max_size=5), st.integers(1, 3))
def test_any_mix_has_the_same_tokens_with_and_without(mix: Mix, slots: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "StepCosts", FreeRows)
        plain, _ = answers(fast(slots=slots), mix, speculate=False)
        guessed, _ = answers(fast(slots=slots), mix, speculate=True, share=1)
    assert guessed == plain
