"""The parser of server-sent events gives the same events however the bytes are cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.cli.sse import Parser, ServerSentEvent

SAMPLE = (
    "\ufeffdata: größe 🙂\r\n\r\n: comment\r\n\r\nevent: ping\rdata:{}\r\r"
    "id: 7\ndata: one\ndata:  two\ndata\n\nretry: 5\nevent: empty\n\ndata: [DONE]\n\ndata: cut off"
).encode()
EVENTS = [
    ServerSentEvent("größe 🙂"),
    ServerSentEvent("{}", "ping"),
    ServerSentEvent("one\n two\n", id="7"),
    ServerSentEvent("[DONE]", id="7"),
]


def parse(*pieces: bytes) -> list[ServerSentEvent]:
    parser = Parser()
    return [event for piece in pieces for event in parser.feed(piece)]


def test_the_sample_whole() -> None:
    assert parse(SAMPLE) == EVENTS


def test_the_sample_byte_by_byte() -> None:
    assert parse(*(SAMPLE[i : i + 1] for i in range(len(SAMPLE)))) == EVENTS


@pytest.mark.parametrize("cut", range(len(SAMPLE) + 1))
def test_the_sample_cut_once_anywhere(cut: int) -> None:
    assert parse(SAMPLE[:cut], SAMPLE[cut:]) == EVENTS


stream = st.lists(
    st.sampled_from(
        [b"\r", b"\n", b"\r\n", b"data", b":", b" ", b"event", b"id", "é🙂".encode(), b"\xff", b"x"]
    )
).map(b"".join)


@given(stream, st.data())
def test_any_cut_of_any_bytes_gives_the_same_events(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    edges = [0, *cuts, len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(edges)]
    assert parse(*pieces) == parse(body)


texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


@given(st.lists(st.lists(texts, min_size=1, max_size=3), max_size=4), st.sampled_from(["\n", "\r", "\r\n"]))
def test_what_was_written_is_read(events: list[list[str]], end: str) -> None:
    body = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines in events)
    assert [event.data for event in parse(body.encode())] == ["\n".join(lines) for lines in events]
