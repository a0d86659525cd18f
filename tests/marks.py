"""Which of a test's many cases `make fast` runs, and tests that another program may disturb."""

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

QUICK = ("llama", "gemma3_text", "qwen3_moe", "qwen3_5_text")
"""Models of each common kind: plain, with a sliding window, of experts, with a recurrent state."""


def slow_but(quick: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """``values`` as parameters of a test, those that are not in ``quick`` marked as slow."""
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]


def undisturbed(test: Callable[..., None]) -> Callable[..., None]:
    """A test of measured times: other programs may disturb it, but hardly three times on end."""

    @functools.wraps(test)
    def tried(*args: Any, **options: Any) -> None:
        for _ in range(2):
            try:
                return test(*args, **options)
            except AssertionError:
                continue
        return test(*args, **options)

    return tried
