"""How a worker begins: the disk is asked for the weights before anybody waits for them."""

import os
from pathlib import Path

import pytest

from mashbox.engine.worker.main import _read_ahead


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no such advice")
def test_every_file_of_weights_is_read_ahead_and_a_missing_one_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("a.safetensors", "b.safetensors", "x.gguf", "notes.txt")]
    for file in files:
        file.write_bytes(b"x")
    asked: list[tuple[int, int, int, int]] = []

    def advise(descriptor: int, offset: int, length: int, advice: int) -> None:
        asked.append((os.fstat(descriptor).st_ino, offset, length, advice))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    _read_ahead(tmp_path)
    _read_ahead(files[2])
    _read_ahead(tmp_path / "gone.gguf")
    whole = (0, 0, os.POSIX_FADV_WILLNEED)
    assert asked == [(file.stat().st_ino, *whole) for file in files[:3]]
