"""Pulls from a plain address."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from mashbox import store
from mashbox.errors import BadWeights, NotFound, PullError, WrongHash
from mashbox.pull import ensure
from mashbox.pull.url import plain
from tests.pull.hub_server import Hub
from tests.pull.models import tiny_gguf


@pytest.fixture
def address(hub: Hub, gguf: bytes, catalogue: Any) -> Hub:
    """A file whose size and hash nobody knows."""
    hub.files["w.gguf"] = gguf
    catalogue(entry(hub))
    return hub


def entry(hub: Hub, **known: Any) -> dict[str, Any]:
    source = {"kind": "url", "url": f"{hub.url}/files/w.gguf?key=secret", "file": {"path": "w.gguf", **known}}
    return {"id": "tiny", "sources": [source]}


def fail_halfway(hub: Hub) -> None:
    hub.faults = ["drop", "missing"]
    with pytest.raises(NotFound):
        ensure("tiny")


def test_a_file_is_fetched(address: Hub, gguf: bytes) -> None:
    model = ensure("tiny")
    assert model.weights.read_bytes() == gguf
    assert model.files[0].sha256 == hashlib.sha256(gguf).hexdigest()


def test_secrets_of_the_address_are_not_kept(address: Hub, home: Path) -> None:
    fail_halfway(address)
    assert ensure("tiny").source == f"url {address.url}/files/w.gguf"
    for path in home.rglob("*"):
        if path.is_file() and "config" not in path.parts:
            assert b"secret" not in path.read_bytes()
    assert plain("https://user:pass@host:1/a/b?c=d") == "https://host:1/a/b"


def test_an_unchanged_file_is_continued_by_its_etag(address: Hub, gguf: bytes) -> None:
    fail_halfway(address)
    address.requests.clear()
    assert ensure("tiny").weights.read_bytes() == gguf
    assert [asked.range for asked in address.downloads("w.gguf")] == [f"bytes={len(gguf) // 2}-"]


def test_a_file_that_changed_meanwhile_starts_from_zero(address: Hub, tmp_path: Path) -> None:
    fail_halfway(address)
    other = address.files["w.gguf"] = tiny_gguf(tmp_path, seed=5)
    assert ensure("tiny").weights.read_bytes() == other


def test_a_file_that_became_shorter_starts_from_zero(address: Hub, tmp_path: Path) -> None:
    fail_halfway(address)
    other = address.files["w.gguf"] = tiny_gguf(tmp_path, seed=5, numbers=100)
    assert ensure("tiny").weights.read_bytes() == other


def test_without_etag_and_hash_nothing_is_continued(address: Hub, tmp_path: Path) -> None:
    address.etags = False
    fail_halfway(address)
    other = address.files["w.gguf"] = tiny_gguf(tmp_path, seed=5)
    address.requests.clear()
    assert ensure("tiny").weights.read_bytes() == other
    assert [asked.range for asked in address.downloads("w.gguf")] == [None]


@pytest.mark.parametrize("fault", ["truncate", "empty"])
def test_a_file_that_is_no_whole_gguf_is_deleted(address: Hub, gguf: bytes, home: Path, fault: str) -> None:
    address.faults = [fault]
    with pytest.raises(BadWeights):
        ensure("tiny")
    assert not (home / "cache" / "models" / "tiny").exists()
    assert store.installed() == []
    assert ensure("tiny").weights.read_bytes() == gguf


def test_a_known_hash_is_held(hub: Hub, gguf: bytes, catalogue: Any) -> None:
    hub.files["w.gguf"] = gguf[:-1] + b"?"
    catalogue(entry(hub, sha256=hashlib.sha256(gguf).hexdigest()))
    with pytest.raises(WrongHash, match=r"w\.gguf: expected sha256"):
        ensure("tiny")


def test_a_known_hash_continues_without_an_etag(hub: Hub, gguf: bytes, catalogue: Any) -> None:
    hub.files["w.gguf"] = gguf
    hub.etags = False
    catalogue(entry(hub, sha256=hashlib.sha256(gguf).hexdigest()))
    fail_halfway(hub)
    hub.requests.clear()
    assert ensure("tiny").weights.read_bytes() == gguf
    assert [asked.range for asked in hub.downloads("w.gguf")] == [f"bytes={len(gguf) // 2}-"]


def test_refusals(address: Hub) -> None:
    address.faults = ["missing"]
    with pytest.raises(NotFound, match=r"nothing at http.*/files/w\.gguf \(HTTP 404\)"):
        ensure("tiny")
    address.faults = ["gated"]
    with pytest.raises(PullError, match="HTTP 403"):
        ensure("tiny")
