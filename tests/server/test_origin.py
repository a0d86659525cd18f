"""Names a server answers to, and origins."""

import socket

import pytest

from mashbox.server.origin import HostNames, same_origin, split_host


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:1",
        "10.1.2.3:8080",
        "[::1]:8000",
        "[fe80::1]",
        "box.lan:99",
        "my.example",
        socket.gethostname(),
    ],
)
def test_answers_to(host: str) -> None:
    assert host in HostNames("box.lan", ["my.example"])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#localhost",
        "localhost/evil.example",
        "",
        ":8000",
        "localhost:port",
        "[::1",
        "0x7f.1",
        "other.my.example",
    ],
)
def test_does_not_answer_to(host: str) -> None:
    assert host not in HostNames("127.0.0.1", ["my.example"])


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("http://LocalHost:8000", "localhost:8000", True),
        ("http://localhost", "localhost:80", True),
        ("http://localhost:80", "localhost", True),
        ("https://box.lan", "box.lan", True),
        ("https://box.lan:443", "box.lan", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("http://localhost:8001", "localhost:8000", False),
        ("http://localhost", "localhost:8000", False),
        ("http://127.0.0.1:8000", "localhost:8000", False),
        ("https://evil.example", "localhost:8000", False),
        ("null", "localhost:8000", False),
        ("", "localhost:8000", False),
        ("file://", "localhost:8000", False),
        ("http://localhost:x", "localhost:8000", False),
    ],
)
def test_same_origin(origin: str, host: str, same: bool) -> None:
    assert same_origin(origin, host) is same


def test_split_host() -> None:
    assert split_host("Box.Lan:80") == ("box.lan", 80)
    assert split_host("[::1]") == ("::1", None)
    assert split_host("a b") is None or split_host("a b") not in (("a", None), ("b", None))
