"""Streamed markdown: nothing is lost or shown twice, and what is finished is what the whole would give."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mashbox.cli.markdown import AnswerView, Tail, clean, split_complete

SAMPLE = """# Planets

Some *words* about `planets`,
and more.

```python
x = 1

y = 2
```

- one
- two

| a | b |
|---|---|
| 1 | 2 |

1. first

   with more
2. second

> quoted

The end."""


def shown(*pieces: str, thought: str = "") -> str:
    """What a view leaves behind, as plain text."""
    out = io.StringIO()
    with AnswerView(Console(file=out, width=60), waiting="waiting") as view:
        if thought:
            view.think(thought)
        for piece in pieces:
            view.write(piece)
    return out.getvalue()


def test_the_sample_reads_well() -> None:
    text = shown(SAMPLE)
    words = (
        "Planets",
        "Some words about planets",
        "x = 1",
        "y = 2",
        "one",
        "two",
        "first",
        "with more",
        "quoted",
    )
    places = [text.index(word) for word in (*words, "The end.")]
    assert places == sorted(places)
    assert "waiting" not in text
    assert "\n\n\n\n" not in text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pieces_of_any_size_leave_the_same_text(size: int) -> None:
    pieces = [SAMPLE[i : i + size] for i in range(0, len(SAMPLE), size)]
    assert [line.rstrip() for line in shown(*pieces).splitlines() if line.strip()] == [
        line.rstrip() for line in shown(SAMPLE).splitlines() if line.strip()
    ]


markdown = st.lists(
    st.sampled_from(
        ["# h\n", "word ", "\n", "\n\n", "```\n", "- item\n", "1. n\n", "> q\n", "| a |\n", "|---|\n", "    "]
    )
).map("".join)


@given(markdown)
def test_splitting_loses_nothing(text: str) -> None:
    done, rest = split_complete(text)
    assert [line for line in (done + "\n" + rest).split("\n") if line] == [
        line for line in text.split("\n") if line
    ]


@given(markdown, markdown)
def test_what_is_complete_stays_complete(text: str, more: str) -> None:
    done, _ = split_complete(text + "\n")
    assert split_complete(text + "\n" + more)[0].startswith(done.rstrip("\n"))


def test_an_open_code_block_is_one_block() -> None:
    done, rest = split_complete("a\n\n```\nx\n\ny\n\nz")
    assert (done.strip(), rest) == ("a", "```\nx\n\ny\n\nz")


def test_the_thought_comes_first_with_a_gap() -> None:
    assert shown("yes", thought="hm\nhm") == "hm\nhm\n\nyes\n"


def test_a_tail_is_no_higher_than_the_screen() -> None:
    console = Console(file=io.StringIO(), width=40, height=10)
    console.print(Tail("\n".join(map(str, range(100)))))
    lines = console.file.getvalue().split()  # type: ignore[attr-defined]
    assert lines == [str(number) for number in range(93, 100)]


def test_a_model_cannot_drive_the_terminal() -> None:
    assert clean("a\x1b[2Jb\x07\x9b\tc\n") == "a[2Jb\tc\n"
    assert "\x1b" not in shown("\x1b[2J\x1b]0;title\x07hi\n\n", thought="\x1b[31m")
