"""Promises about bytes."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.pull.verify import Digest, Promise, size


def digest(promise: Promise, content: bytes) -> Digest:
    made = Digest(promise)
    made.update(content[:3])
    made.update(content[3:])
    return made


def promise(content: bytes, kind: str) -> Promise:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    known = {
        "sha256": {"sha256": hashlib.sha256(content).hexdigest()},
        "git": {"git": blob, "bytes": len(content)},
        "bytes": {"bytes": len(content)},
    }
    return Promise(**known[kind])


@pytest.mark.parametrize("kind", ["sha256", "git", "bytes"])
@given(content=st.binary(max_size=40))
def test_the_promised_bytes_pass(kind: str, content: bytes) -> None:
    assert digest(promise(content, kind), content).fault() is None


@pytest.mark.parametrize("kind", ["sha256", "git"])
@given(content=st.binary(min_size=1, max_size=40), data=st.data())
def test_one_other_bit_fails_and_both_hashes_are_told(kind: str, content: bytes, data: st.DataObject) -> None:
    at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    bad = content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]
    wanted = promise(content, kind)
    fault = digest(wanted, bad).fault()
    assert fault is not None
    assert str(wanted.sha256 or wanted.git) in fault
    assert hashlib.sha256(bad).hexdigest() in fault


@pytest.mark.parametrize("kind", ["sha256", "git", "bytes"])
def test_another_length_fails(kind: str) -> None:
    for bad in (b"", b"abc", b"abcdef"):
        assert digest(promise(b"abcd", kind), bad).fault() is not None


def test_git_names_content_as_git_does() -> None:
    # `printf 'hello\n' | git hash-object --stdin`
    wanted = Promise(bytes=6, git="ce013625030ba8dba906f756967f9e9ca394464a")
    assert digest(wanted, b"hello\n").fault() is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (98_362_432, "98.4 MB"),
        (18_973_870_432, "19.0 GB"),
        (2 * 10**12, "2.0 TB"),
    ],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text
