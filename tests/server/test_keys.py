"""Whose key is whose, and a key file that changes under a running server."""

import logging
import os
import time
from pathlib import Path

import pytest

from mashbox.errors import UsageError
from mashbox.server import keyfile
from mashbox.server.keys import AllKeys, FileKeys, PlainKeys, keys_of
from mashbox.server.settings import ServerSettings
from tests.server.live import live
from tests.server.scripted import ScriptedEngine

ASK = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def never(message: str) -> None:
    raise AssertionError(f"warned: {message}")


def write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def settle(path: Path) -> None:
    """Let the file's change lie so far back that its times tell of the next one."""
    time.sleep(max(0.0, path.stat().st_ctime + 1.05 - time.time()))


def test_plain_keys_are_tenants_of_their_own() -> None:
    keys = PlainKeys(("one", "two"))
    first, second = keys.verify("one"), keys.verify("two")
    assert first is not None
    assert second is not None
    assert first == keys.verify("one") != second
    assert "one" not in first
    for wrong in ("", "on", "one ", "onee", "ONE", "three", "\udcff"):
        assert keys.verify(wrong) is None


def test_every_key_is_compared_in_constant_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, "a\nb\nc\n")
    keys = FileKeys(path)
    compared = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((len(first), len(second)))
        return first == second

    monkeypatch.setattr("hmac.compare_digest", compare)
    assert keys.verify("a") is not None
    assert keys.verify("no such key") is None
    assert compared == [(32, 32)] * 6


@pytest.mark.parametrize("settled", [False, True])
def test_a_change_counts_from_the_next_request_on(path: Path, settled: bool) -> None:
    entry, first = keyfile.add(path, "alice", never)
    keys = FileKeys(path)
    if settled:
        settle(path)
    assert keys.verify(first) == "alice"
    _, second = keyfile.add(path, "bob", never)
    assert keys.verify(second) == "bob"
    _, rotated = keyfile.rotate(path, entry.id, never)
    assert keys.verify(first) is None
    assert keys.verify(rotated) == "alice"
    keyfile.revoke(path, entry.id, never)
    assert keys.verify(rotated) is None
    assert keys.verify(second) == "bob"


def test_a_change_in_place_of_the_same_size_is_seen(path: Path) -> None:
    write(path, "aaa")
    keys = FileKeys(path)
    assert keys.verify("aaa")
    write(path, "bbb")
    os.utime(path, ns=(0, 0))
    assert keys.verify("aaa") is None
    assert keys.verify("bbb")


def test_an_unchanged_file_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, "aaa")
    settle(path)
    keys = FileKeys(path)
    monkeypatch.setattr(keyfile, "load", lambda *_: pytest.fail("read again"))
    assert keys.verify("aaa")


def test_a_damaged_or_missing_file_leaves_the_keys_in_force(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, "good")
    keys = FileKeys(path)
    write(path, "new\nof several words\n")
    with caplog.at_level(logging.ERROR, "mashbox.server"):
        for _ in range(3):
            assert keys.verify("good")
            assert keys.verify("new") is None
        (told,) = [record.getMessage() for record in caplog.records]
        assert "line 2 has several words" in told
        assert "The keys known before stay valid." in told
        path.unlink()
        assert keys.verify("good")
        assert "No such file" in caplog.records[-1].getMessage()
    write(path, "new")
    assert keys.verify("good") is None
    assert keys.verify("new")


def test_a_file_without_a_key_lets_nobody_in(path: Path) -> None:
    entry, key = keyfile.add(path, "", never)
    keys = FileKeys(path)
    keyfile.revoke(path, entry.id, never)
    assert keys.verify(key) is None


def test_both_sources_count_and_the_file_names_the_tenant(path: Path) -> None:
    write(path, "shared alice\nfile bob\n")
    keys = keys_of(ServerSettings(key_file=path, api_keys=("shared", "own")))
    assert isinstance(keys, AllKeys)
    assert keys.verify("shared") == "alice"
    assert keys.verify("file") == "bob"
    assert (keys.verify("own") or "").startswith("key:")
    assert keys.verify("none") is None
    assert keys_of(ServerSettings()) is None
    with pytest.raises(UsageError, match="can't be read"):
        keys_of(ServerSettings(key_file=path / "missing"))


def test_a_running_server_takes_changes_up(path: Path) -> None:
    engine = ScriptedEngine()
    entry, first = keyfile.add(path, "alice", never)
    _, second = keyfile.add(path, "alice", never)
    with live(engine, key_file=path) as server, server.client() as client:

        def status(key: str) -> int:
            return client.post("/v1/chat/completions", json=ASK, headers={"x-api-key": key}).status_code

        assert (status(first), status(second), status("other")) == (200, 200, 401)
        _, third = keyfile.add(path, "", never)
        keyfile.revoke(path, entry.id, never)
        assert (status(first), status(second), status(third)) == (401, 200, 200)
    tenants = [request.tenant for request in engine.requests]
    assert tenants[:3] == ["alice"] * 3
    assert tenants[3].startswith("key:")
