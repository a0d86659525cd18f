from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.stops import StopFinder


def run(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, str | None]:
    finder = StopFinder(stops)
    sent = [finder.push(piece) for piece in pieces]
    return "".join(sent) + finder.flush(), finder.matched


def expected(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """By definition: the stop string that is complete first, the longest of those complete together."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if done:
            longest = max(done, key=len)
            return text[: end - len(longest)], longest
    return text, None


TEXTS = st.text(alphabet="abc\n", max_size=30)
STOPS = st.lists(st.text(alphabet="abc\n", max_size=5), max_size=4)


@given(TEXTS, STOPS, st.data())
def test_every_cut_into_pieces_gives_the_same(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert run(pieces, stops) == run(list(text), stops) == run([text], stops) == expected(text, stops)


@given(TEXTS, st.text(alphabet="abc\n", min_size=1, max_size=5))
def test_one_stop_string_cuts_where_find_finds_it(text: str, stop: str) -> None:
    at = text.find(stop)
    assert run(list(text), [stop]) == ((text, None) if at < 0 else (text[:at], stop))


@given(TEXTS, STOPS)
def test_what_was_sent_is_never_taken_back(text: str, stops: list[str]) -> None:
    finder = StopFinder(stops)
    sent = ""
    for end, letter in enumerate(text, start=1):
        sent += finder.push(letter)
        assert expected(text, stops)[0].startswith(sent)
        if finder.matched is None:
            held = text[len(sent) : end]
            assert not held or any(stop.startswith(held) for stop in stops), "held back without need"


@pytest.mark.parametrize(
    ("pieces", "stops", "sent", "matched"),
    [
        (["DEF", "G", "HI", "J"], ["DEFGHIJ"], "", "DEFGHIJ"),
        ([" Alice", "!"], ["\n", "Alice:"], " Alice!", None),
        (["a", "b", "c"], [], "abc", None),
        (["a", "b", "c"], ["", "b"], "a", "b"),
        (["xabc"], ["bc", "abc"], "x", "abc"),
        (["abcd"], ["abcd", "bc"], "a", "bc"),
        (["aaab"], ["aab"], "a", "aab"),
        (["hello\n"], ["\n", "\n\n"], "hello", "\n"),
    ],
)
def test_cases(pieces: list[str], stops: list[str], sent: str, matched: str | None) -> None:
    assert run(pieces, stops) == (sent, matched)


def test_after_a_match_nothing_more_is_passed_on() -> None:
    finder = StopFinder(["b"])
    assert finder.push("abc") == "a"
    assert finder.push("more") == ""
    assert finder.flush() == ""


def test_text_that_can_begin_no_stop_string_is_passed_on_at_once() -> None:
    finder = StopFinder(["Alice:"])
    assert finder.push(" Alice") == " "
    assert finder.push("!") == "Alice!"


def test_a_long_stop_string_costs_a_constant_per_letter() -> None:
    stop = "a" * 20_000 + "b"
    finder = StopFinder([stop])
    steps = finder._progress[0]
    assert len(steps._shorter) == len(stop)
    assert finder.push("a" * 60_000) == "a" * 40_000
    assert finder.push("b") == ""
    assert finder.matched == stop
