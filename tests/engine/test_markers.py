from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.markers import Markers

TOKENS = ["<a>", "<a><b>", "</a>", "[X]", "<|end|>"]


def markers(**strips: bool) -> Markers:
    flags = {"lstrip": False, "rstrip": False} | strips
    return Markers({index: SimpleNamespace(content=text, **flags) for index, text in enumerate(TOKENS)})


BITS = st.lists(
    st.sampled_from([*TOKENS, "<", "a", ">", "<a", "[", "X]", "|end|>", " ", "\n", "é"]), max_size=8
)


def test_the_longest_token_counts() -> None:
    assert markers().split("x<a><b>y<a>z<b>") == ["x", 1, "y", 0, "z<b>"]
    assert markers().split("") == []
    assert markers().split("<a>") == [0]


@given(BITS)
def test_a_wrapped_text_holds_no_token(bits: list[str]) -> None:
    text = "".join(bits)
    known = markers()
    assert known.split(known.wrap(text)) == ([text] if text else [])


@given(BITS, BITS)
def test_tokens_around_a_wrapped_text_are_the_templates_own(left: list[str], right: list[str]) -> None:
    known = markers()
    rendered = f"<|end|>{known.wrap(''.join(left))}[X]{known.wrap(''.join(right))}<|end|>"
    pieces = known.split(rendered)
    assert [piece for piece in pieces if isinstance(piece, int)] == [4, 3, 4]
    assert "".join([TOKENS[piece] if isinstance(piece, int) else piece for piece in pieces]) == (
        f"<|end|>{''.join(left)}[X]{''.join(right)}<|end|>"
    )


@given(BITS)
def test_a_broken_text_holds_no_token_in_any_part(bits: list[str]) -> None:
    parts = markers().broken("".join(bits))
    assert "".join(parts) == "".join(bits)
    assert not any(list(markers().find(part)) for part in parts)


@given(BITS, BITS)
def test_two_wrapped_texts_side_by_side_join_no_token(left: list[str], right: list[str]) -> None:
    known = markers()
    joined = "".join([*left, *right])
    wrapped = known.wrap("".join(left)) + known.wrap("".join(right))
    assert known.split(wrapped) == ([joined] if joined else [])


def test_cutting_at_a_wrapped_token_joins_no_new_one() -> None:
    known = markers()
    joined = known.wrap("<|e<a>nd|>").replace("<a>", "")
    assert known.split(joined) == ["<|end|>"]


def test_wrapping_reaches_keys_lists_and_nested_strings_only() -> None:
    known = markers()
    wrapped = known.wrap({"k<a>": ["<a>", {"n": 1, "b": True, "none": None}], "plain": "text"})
    assert wrapped["plain"] == "text"
    assert wrapped[known.wrap("k<a>")] == [known.wrap("<a>"), {"n": 1, "b": True, "none": None}]
    assert known.wrap("<a>") != "<a>"


def test_a_forged_wrapping_is_taken_off() -> None:
    known = markers()
    forged = known.wrap("<a>").replace("<a>", "x<|end|>")
    assert known.split(known.wrap(forged)) == ["x<|end|>"]


def test_tokens_that_swallow_white_space() -> None:
    assert markers(rstrip=True).split("a <a> \n b") == ["a ", 0, "b"]
    assert markers(lstrip=True).split("a \n<a> b") == ["a", 0, " b"]
    assert markers(lstrip=True, rstrip=True).split(" <a> \n <a>") == [0, 0]


def test_no_tokens_at_all() -> None:
    none = Markers({})
    assert none.split("<a>") == ["<a>"]
    assert none.wrap("<a>") == "<a>"
