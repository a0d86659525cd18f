"""Every test of this folder has a home of its own, and a hub on this machine."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from mashbox.pull import transfer
from mashbox.pull.progress import FETCHING
from tests.pull import hub_server, models


class Recorder:
    """A progress that keeps what it was told."""

    def __init__(self) -> None:
        self.planned: dict[str, int | None] = {}
        self.updates: list[tuple[str, int, int | None]] = []
        self.notes: list[str] = []
        self.doing = ""

    def plan(self, files: dict[str, int | None], doing: str = FETCHING) -> None:
        self.planned, self.doing = files, doing

    def update(self, file: str, done: int, total: int | None) -> None:
        self.updates.append((file, done, total))

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def progress() -> Recorder:
    return Recorder()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty MASHBOX_HOME and hub cache; no token, no proxy, no waiting."""
    folder = tmp_path / "home"
    monkeypatch.setenv("MASHBOX_HOME", str(folder))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(transfer, "PAUSES_S", (0.0, 0.0))
    return folder


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[hub_server.Hub]:
    with hub_server.serve() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running
        huggingface_hub.close_session()


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A tiny model of some 400 kB."""
    return models.tiny_gguf(tmp_path_factory.mktemp("gguf"))


@pytest.fixture
def catalogue(home: Path) -> Callable[..., None]:
    """Writes entries into the user's own catalogue."""

    def write(*entries: dict[str, Any]) -> None:
        base = {"family": "t", "title": "T", "format": "gguf", "parameters": 10, "licence": "MIT"}
        document = {"version": 1, "models": [{**base, **entry} for entry in entries]}
        path = home / "config" / "models.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))

    return write
