"""Pulls from a hub that drops, flips, truncates and refuses."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mashbox import store
from mashbox.errors import (
    GatedRepo,
    NoNetwork,
    NoSpace,
    NotFound,
    PullError,
    UnknownModel,
    UnsupportedModel,
    WrongHash,
)
from mashbox.pull import ensure, transfer
from mashbox.pull import fetch as fetching
from tests.marks import slow_but
from tests.patience import PATIENCE
from tests.pull.conftest import Recorder
from tests.pull.hub_server import COMMIT, FAULTS, Hub
from tests.pull.models import TEMPLATE, tiny_gguf, tiny_safetensors, tiny_split

NAME = "org/tiny-GGUF"
FILE = "tiny-Q4_K_M.gguf"


@pytest.fixture
def tiny(hub: Hub, gguf: bytes) -> Hub:
    hub.repos[NAME] = {FILE: gguf, "README.md": b"# Tiny", "mmproj-tiny-Q4_K_M.gguf": b"GGUF"}
    return hub


def left(home: Path) -> list[str]:
    """What lies in the store, without lock files."""
    root = home / "cache" / "models"
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(path.name for path in files if path.parts[0] != ".locks")


def test_a_gguf_is_fetched_checked_and_given_a_tokenizer(
    tiny: Hub, gguf: bytes, progress: Recorder, home: Path
) -> None:
    model = ensure(NAME, progress)
    assert (model.id, model.format, model.spec) == (NAME, "gguf", None)
    assert model.weights.read_bytes() == gguf
    assert model.source == f"hub {NAME}@{COMMIT}"
    [file] = model.files
    assert (file.bytes, file.sha256) == (len(gguf), hashlib.sha256(gguf).hexdigest())
    assert (model.tokenizer / "tokenizer.json").is_file()
    assert (model.tokenizer / "chat_template.jinja").read_text() == TEMPLATE
    assert progress.planned == {FILE: len(gguf)}
    assert progress.updates[-1] == (FILE, len(gguf), len(gguf))
    assert not [name for name in left(home) if "part" in name]


def test_what_is_here_is_not_fetched_again(tiny: Hub) -> None:
    first = ensure(NAME)
    tiny.requests.clear()
    assert ensure(NAME) == first == store.find(NAME)
    assert tiny.requests == []


@pytest.mark.parametrize("asked", [f"{NAME}:{FILE}", f"{NAME}:Q4_K_M", f"{NAME}:q4_k_m"])
def test_a_file_can_be_named(tiny: Hub, gguf: bytes, asked: str) -> None:
    tiny.repos[NAME]["tiny-Q8_0.gguf"] = gguf
    assert ensure(asked).weights.name == FILE
    assert ensure(asked).id == asked


def test_a_file_that_is_not_there_is_named_with_those_that_are(tiny: Hub) -> None:
    with pytest.raises(NotFound, match=r"no file other\.gguf.*It has: tiny-Q4_K_M\.gguf$"):
        ensure(f"{NAME}:other.gguf")


@pytest.mark.parametrize("shards", [1, 3])
def test_safetensors_come_with_tokenizer_and_configuration_only(hub: Hub, shards: int) -> None:
    files = tiny_safetensors(shards)
    hub.repos["org/tiny"] = files
    model = ensure("org/tiny")
    assert model.format == "safetensors"
    assert model.tokenizer == model.weights
    unwanted = {"modeling_tiny.py", "pytorch_model.bin", "README.md", "original/consolidated.safetensors"}
    assert {file.path.name for file in model.files} == set(files) - unwanted
    for file in model.files:
        assert file.path.read_bytes() == files[file.path.name]


@pytest.mark.parametrize("asked", [NAME, f"{NAME}:split-Q4_0-00002-of-00003.gguf", f"{NAME}:Q4_0"])
def test_a_split_gguf_is_fetched_whole(hub: Hub, tmp_path: Path, asked: str) -> None:
    parts = tiny_split(tmp_path)
    assert len(parts) == 3
    hub.repos[NAME] = parts
    model = ensure(asked)
    assert model.weights.name == "split-Q4_0-00001-of-00003.gguf"
    assert {file.path.name: file.path.read_bytes() for file in model.files} == parts


def test_files_of_an_older_revision_do_not_stay_beside_the_new(hub: Hub) -> None:
    hub.repos["org/tiny"] = tiny_safetensors(3)
    hub.faults = [*[""] * 7, "missing"]
    with pytest.raises(NotFound, match="model-00003-of-00003"):
        ensure("org/tiny")
    hub.repos["org/tiny"] = tiny_safetensors(2)
    model = ensure("org/tiny")
    assert sorted(path.name for path in model.weights.glob("*.safetensors")) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


def test_a_split_gguf_that_lacks_a_part_is_refused_before_the_download(hub: Hub, gguf: bytes) -> None:
    hub.repos[NAME] = {"m-Q4_0-00001-of-00002.gguf": gguf}
    with pytest.raises(NotFound, match="lacks m-Q4_0-00002-of-00002"):
        ensure(NAME)
    assert not hub.downloads("m-Q4_0-00001-of-00002.gguf")


@pytest.mark.parametrize("fault", ["flip", "truncate", "empty"])
def test_corrupt_bytes_are_refused_deleted_and_fetched_anew(
    tiny: Hub, gguf: bytes, home: Path, fault: str
) -> None:
    tiny.faults = [fault] * (2 if fault == "truncate" else 1)
    with pytest.raises(WrongHash) as caught:
        ensure(NAME)
    bad = {"flip": gguf[:-1] + bytes([gguf[-1] ^ 1]), "truncate": gguf[: len(gguf) // 2], "empty": b""}[fault]
    for expected in (FILE, hashlib.sha256(gguf).hexdigest(), hashlib.sha256(bad).hexdigest()):
        assert expected in caught.value.message
    assert left(home) == []
    assert store.installed() == []
    assert ensure(NAME).weights.read_bytes() == gguf


@pytest.mark.parametrize("fault", ["flip", "empty"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_small_files_are_held_to_their_hash_too(hub: Hub, fault: str, file: str) -> None:
    files = tiny_safetensors()
    hub.repos["org/tiny"] = files
    hub.faults = ["" if name != file else fault for name in _order(files)]
    with pytest.raises(WrongHash, match=file):
        ensure("org/tiny")
    assert ensure("org/tiny").weights.joinpath(file).read_bytes() == files[file]


def test_large_files_are_fetched_several_at_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(fetching, "LARGE", 1)
    files = hub.repos["org/tiny"] = tiny_safetensors(3)
    together, fetch = threading.Barrier(3), transfer.fetch

    def fetch_together(http: Any, wanted: Any, *others: Any) -> str:
        if wanted.path.startswith("model-0"):
            together.wait(PATIENCE)
        return fetch(http, wanted, *others)

    monkeypatch.setattr(transfer, "fetch", fetch_together)
    model = ensure("org/tiny")
    assert {file.path.name: file.path.read_bytes() for file in model.files} == {
        name: content for name, content in files.items() if model.weights.joinpath(name).exists()
    }


def _order(files: dict[str, bytes]) -> list[str]:
    beside = sorted(name for name in files if name.endswith((".json", ".jinja")))
    return [*beside, "model.safetensors"]


def test_a_broken_connection_is_taken_up_where_it_broke(tiny: Hub, gguf: bytes) -> None:
    tiny.faults = ["drop", "drop"]
    assert ensure(NAME).weights.read_bytes() == gguf
    half, rest = len(gguf) // 2, len(gguf) - len(gguf) // 2
    ranges = [asked.range for asked in tiny.downloads(FILE)]
    assert ranges == [None, f"bytes={half}-", f"bytes={half + rest // 2}-"]


def test_a_whole_file_instead_of_a_range_starts_from_zero(tiny: Hub, gguf: bytes) -> None:
    tiny.faults = ["drop", "whole"]
    assert ensure(NAME).weights.read_bytes() == gguf
    assert len(tiny.downloads(FILE)) == 2


def test_a_range_that_was_not_asked_for_starts_from_zero(tiny: Hub, gguf: bytes) -> None:
    tiny.faults = ["drop", "shifted"]
    assert ensure(NAME).weights.read_bytes() == gguf
    assert [asked.range for asked in tiny.downloads(FILE)][-1] is None


def test_a_connection_that_always_breaks_fails_and_keeps_the_bytes(
    tiny: Hub, gguf: bytes, home: Path
) -> None:
    tiny.faults = ["drop", "busy", "busy", "busy"]
    with pytest.raises(NoNetwork, match=rf"{FILE}.*503"):
        ensure(NAME)
    assert left(home) == [f"{FILE}.part", f"{FILE}.part.json"]
    assert store.installed() == []
    tiny.requests.clear()
    assert ensure(NAME).weights.read_bytes() == gguf
    assert [asked.range for asked in tiny.downloads(FILE)] == [f"bytes={len(gguf) // 2}-"]


def test_kept_bytes_of_another_version_are_not_continued(tiny: Hub, home: Path, tmp_path: Path) -> None:
    tiny.faults = ["drop", "missing"]
    with pytest.raises(NotFound):
        ensure(NAME)
    other = tiny_gguf(tmp_path, seed=9)
    tiny.repos[NAME][FILE] = other
    assert ensure(NAME).weights.read_bytes() == other


@pytest.mark.parametrize("seed", slow_but(range(4), range(20)))
def test_whatever_happens_only_the_promised_bytes_count_as_a_model(tiny: Hub, gguf: bytes, seed: int) -> None:
    """Any row of faults, over as many pulls as it takes, ends in the right bytes or in an error."""
    draw = random.Random(seed)
    kinds = ["", *(set(FAULTS) - {"redirect", "nowhere", "portal"})]
    tiny.faults = draw.choices(sorted(kinds), k=12)
    for _ in range(20):
        try:
            model = ensure(NAME)
        except PullError:
            assert store.installed() == []
        else:
            assert model.weights.read_bytes() == gguf
            return
    pytest.fail("the faults were over, and still no model")


@pytest.mark.parametrize("fault", ["busy", "limited"])
def test_a_busy_hub_is_asked_again(tiny: Hub, gguf: bytes, fault: str) -> None:
    tiny.faults = [fault]
    tiny.listing_faults = [fault]
    assert ensure(NAME).weights.read_bytes() == gguf


@pytest.mark.parametrize("fault", ["gated", "unauthorized"])
@pytest.mark.parametrize("where", ["faults", "listing_faults"])
def test_a_gated_repository_says_where_to_agree_and_how_to_give_the_token(
    tiny: Hub, fault: str, where: str, home: Path
) -> None:
    setattr(tiny, where, [fault])
    with pytest.raises(GatedRepo) as caught:
        ensure(NAME)
    assert f"{tiny.url}/{NAME}" in caught.value.remedy
    assert "export HF_TOKEN=" in caught.value.remedy
    assert left(home) == []


def test_a_token_without_access_is_told_so(tiny: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    tiny.faults = ["gated"]
    with pytest.raises(GatedRepo, match="token in use has no access") as caught:
        ensure(NAME)
    assert "hf_secret" not in str(caught.value)
    assert {asked.token for asked in tiny.requests} == {"Bearer hf_secret"}


def test_without_a_token_none_is_sent(tiny: Hub) -> None:
    ensure(NAME)
    assert {asked.token for asked in tiny.requests} == {None}


def test_a_redirect_to_another_host_is_followed_without_the_token(
    tiny: Hub, gguf: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    tiny.faults = ["redirect", "drop", "redirect"]
    assert ensure(NAME).weights.read_bytes() == gguf
    assert {asked.token for asked in tiny.downloads(FILE)} == {"Bearer hf_secret"}
    assert [(asked.token, asked.range) for asked in tiny.downloads("elsewhere")] == [
        (None, None),
        (None, f"bytes={len(gguf) // 2}-"),
    ]


def test_a_refusal_behind_a_redirect_is_not_taken_for_a_gate(
    tiny: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    tiny.faults = ["nowhere"]
    with pytest.raises(
        PullError, match=rf"{FILE} of {NAME} was refused with HTTP 401 by localhost"
    ) as caught:
        ensure(NAME)
    assert not isinstance(caught.value, GatedRepo)


def test_a_login_page_in_the_hubs_place(tiny: Hub) -> None:
    tiny.listing_faults = ["portal"]
    with pytest.raises(PullError, match="does not answer as a hub does"):
        ensure(NAME)


def test_a_name_that_the_hub_would_never_have(hub: Hub, home: Path) -> None:
    with pytest.raises(NotFound, match="can't be a repository's name"):
        ensure("org/re--po")
    assert left(home) == []


def test_a_pull_that_got_nothing_leaves_no_folder(hub: Hub, home: Path) -> None:
    with pytest.raises(NotFound):
        ensure("org/none")
    assert [path.name for path in (home / "cache" / "models").iterdir()] == [".locks"]


def test_a_model_that_is_being_pulled_is_not_removed(tiny: Hub) -> None:
    with store.lock(store.identify(NAME)):
        store.identify(NAME).folder.mkdir(parents=True)
        with pytest.raises(PullError, match="Another process is pulling"):
            store.remove(NAME)


def test_a_repository_that_does_not_exist(hub: Hub) -> None:
    with pytest.raises(NotFound, match=r"no repository org/none.*HF_TOKEN"):
        ensure("org/none")


def test_a_repository_without_a_model(hub: Hub) -> None:
    hub.repos["org/data"] = {"data.parquet": b"x", "README.md": b"x"}
    with pytest.raises(UnsupportedModel, match="neither a GGUF nor safetensors"):
        ensure("org/data")


def test_no_hub_at_all(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(NoNetwork, match=r"127\.0\.0\.1:9 could not be reached"):
        ensure(NAME)


def test_a_disk_that_is_too_small_is_told_before_the_download(
    tiny: Hub, gguf: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = len(gguf) - 1
    monkeypatch.setattr("mashbox.pull.verify.shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))
    with pytest.raises(NoSpace, match=r"needs 4\d\d kB, .* has 4\d\d kB free"):
        ensure(NAME)
    assert not tiny.downloads(FILE)


def test_kept_bytes_count_for_the_space(tiny: Hub, gguf: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.faults = ["drop", "missing"]
    with pytest.raises(NotFound):
        ensure(NAME)
    free = len(gguf) - len(gguf) // 2
    monkeypatch.setattr("mashbox.pull.verify.shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))
    assert ensure(NAME).weights.read_bytes() == gguf


def test_offline_without_a_cache(tiny: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NoNetwork, match="HF_HUB_OFFLINE is set"):
        ensure(NAME)
    assert tiny.requests == []


def into_cache(tmp_path: Path, content: bytes, blob: str) -> Path:
    """Lay a file into the hub library's cache, as the library does."""
    repo = tmp_path / "hf" / "hub" / "models--org--tiny-GGUF"
    (repo / "blobs").mkdir(parents=True)
    (repo / "blobs" / blob).write_bytes(content)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / FILE).symlink_to(f"../../blobs/{blob}")
    return repo / "blobs" / blob


def test_offline_takes_what_the_librarys_cache_holds(
    tiny: Hub, gguf: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = into_cache(tmp_path, gguf, hashlib.sha256(gguf).hexdigest())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = ensure(NAME)
    assert model.weights.read_bytes() == gguf
    assert not model.weights.is_symlink()
    blob.unlink()
    assert store.find(NAME) == model
    assert tiny.requests == []


def test_offline_a_damaged_cache_is_refused(
    tiny: Hub, gguf: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = into_cache(tmp_path, gguf[:-1] + b"?", hashlib.sha256(gguf).hexdigest())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WrongHash, match=hashlib.sha256(gguf).hexdigest()):
        ensure(NAME)
    assert blob.is_file()


def test_online_the_cache_saves_the_download_unless_it_is_damaged(
    tiny: Hub, gguf: bytes, tmp_path: Path
) -> None:
    blob = into_cache(tmp_path, gguf, hashlib.sha256(gguf).hexdigest())
    assert ensure(NAME).weights.read_bytes() == gguf
    assert not tiny.downloads(FILE)
    store.remove(NAME)
    blob.write_bytes(gguf[:-1] + b"?")
    assert ensure(NAME).weights.read_bytes() == gguf
    assert len(tiny.downloads(FILE)) == 1


def test_two_pulls_at_once_fetch_once(tiny: Hub, gguf: bytes) -> None:
    tiny.hold = threading.Event()
    second = Recorder()
    results = []
    threads = [
        threading.Thread(target=lambda shown=shown: results.append(ensure(NAME, shown)))
        for shown in (Recorder(), second)
    ]
    threads[0].start()
    assert tiny.halfway.wait(PATIENCE)
    threads[1].start()
    for _ in range(200):
        if second.notes:
            break
        threads[1].join(0.02)
    tiny.hold.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert any("Another process" in note for note in second.notes)
    assert [model.weights.read_bytes() == gguf for model in results] == [True, True]
    assert len(tiny.downloads(FILE)) == 1


def test_ctrl_c_leaves_a_file_that_the_next_pull_goes_on_with(tiny: Hub, gguf: bytes, home: Path) -> None:
    tiny.hold = threading.Event()
    code = f"from mashbox.pull import ensure; ensure({NAME!r})"
    child = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ), stderr=subprocess.DEVNULL)
    try:
        assert tiny.halfway.wait(PATIENCE)
        part = home / "cache" / "models"
        for _ in range(500):
            if any(path.stat().st_size for path in part.rglob("*.part")):
                break
            threading.Event().wait(0.02)
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE) != 0
    finally:
        child.kill()
        child.wait()
    assert store.installed() == []
    tiny.hold.set()
    tiny.requests.clear()
    assert ensure(NAME).weights.read_bytes() == gguf
    [asked] = tiny.downloads(FILE)
    assert asked.range is not None and asked.range != "bytes=0-"


def test_a_damaged_file_in_the_store_is_noticed_and_repaired(tiny: Hub, gguf: bytes) -> None:
    weights = ensure(NAME).weights
    weights.write_bytes(gguf[:-1] + bytes([gguf[-1] ^ 1]))
    with pytest.raises(Exception, match="has changed since it was pulled"):
        ensure(NAME)
    assert ensure(NAME, repair=True).weights.read_bytes() == gguf


def test_the_catalogues_hash_overrules_the_hubs(tiny: Hub, gguf: bytes, catalogue: Any, home: Path) -> None:
    source = {"kind": "hub", "repo": NAME, "files": [{"path": FILE, "bytes": len(gguf), "sha256": "0" * 64}]}
    catalogue({"id": "pinned", "sources": [source]})
    with pytest.raises(WrongHash, match="expected sha256 " + "0" * 64):
        ensure("pinned")
    assert left(home) == []


def test_the_next_source_is_tried_when_one_lacks_the_file(tiny: Hub, gguf: bytes, catalogue: Any) -> None:
    gone = {"kind": "hub", "repo": "org/gone", "files": [{"path": FILE}]}
    catalogue({"id": "two", "sources": [gone, {"kind": "hub", "repo": NAME, "files": [{"path": FILE}]}]})
    assert ensure("two").weights.read_bytes() == gguf


def test_a_name_that_is_nothing() -> None:
    with pytest.raises(UnknownModel, match="Did you mean smollm2-135m"):
        ensure("smollm2-135")


def test_waits_between_tries_heed_the_servers_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("mashbox.pull.transfer.time.sleep", slept.append)
    monkeypatch.setattr(transfer, "PAUSES_S", (0.5, 1.0))
    backoff = transfer.Backoff("x")
    backoff.wait(transfer.Busy(429, {"retry-after": "7"}), advanced=False)
    backoff.wait(OSError("broken"), advanced=False)
    backoff.wait(transfer.Busy(429, {"retry-after": "9999"}), advanced=True)
    backoff.wait(OSError("broken"), advanced=False)
    assert slept == [7, 1.0, transfer.LONGEST_PAUSE_S, 0.5]
