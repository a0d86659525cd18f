"""Bodies to structs: what counts as a whole number."""

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.errors import InvalidRequest
from mashbox.server.body import parse


class Inner(msgspec.Struct):
    count: int | None = None


class Body(msgspec.Struct):
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    inner: list[Inner] = []
    share: float | None = None
    any: Any = None


decoder = msgspec.json.Decoder(Body)


@given(st.integers(1, 2**53))
def test_a_whole_number_may_be_written_with_a_fraction(number: int) -> None:
    raw = f'{{"limit": {number}.0, "inner": [{{"count": {number}.00}}], "share": 2.0}}'.encode()
    body = parse(raw, decoder)
    assert (body.limit, body.inner[0].count, body.share) == (number, number, 2.0)
    assert type(body.limit) is int
    assert type(body.share) is float


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"limit": 1.5}', "limit"),
        (b'{"limit": 0.0}', "limit"),
        (b'{"limit": 1.0, "inner": [{"count": 0.5}]}', "inner[0].count"),
        (b'{"limit": 1.0, "share": "x"}', "share"),
        (b'{"limit": 1.0, "inner": 3}', "inner"),
    ],
)
def test_other_numbers_are_refused_by_name(raw: bytes, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(raw, decoder)
    assert caught.value.param == param


@pytest.mark.parametrize("before", [b"", b'"limit": 1.0, '])
def test_depth_is_refused_on_either_way(before: bytes) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(InvalidRequest):
        parse(b"{" + before + b'"any": ' + deep + b"}", decoder)


def test_numbers_elsewhere_are_left_alone() -> None:
    assert type(parse(b'{"limit": 1, "any": 2.0}', decoder).any) is float
