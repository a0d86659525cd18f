"""The key file: what is read, what is refused, and that no change is lost or half done."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.errors import MashboxError, UsageError
from mashbox.server import keyfile
from mashbox.server.keyfile import Entry, entries_of, parse
from tests.patience import PATIENCE


def never(message: str) -> None:
    raise AssertionError(f"warned: {message}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "keys"


def write(path: Path, text: str | bytes, mode: int = 0o600) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)


def read(path: Path) -> list[Entry]:
    return entries_of(keyfile.load(path, never)[0])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- reading ---------------------------------------------------------------------------------------


def test_plain_lines_with_and_without_a_tenant() -> None:
    text = b"# mine\n\none\n  two\talice \r\nthree#3 alice\n"
    one, two, three = entries_of(parse(text, Path("k")))
    assert [one.tenant, two.tenant, three.tenant] == ["", "alice", "alice"]
    assert one.matches(b"one")
    assert two.matches(b"two")
    assert three.matches(b"three#3")
    assert not one.matches(b"two")
    assert two.owner == three.owner == "alice"
    assert one.owner.startswith("key:")
    assert one.owner == entries_of(parse(b"x\none", Path("k")))[1].owner


GOOD = keyfile.make_entry("k", "bob", "00000000").line()


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"a\nsecret two words", "k line 2 has several words"),
        (b"a\n\nsecr\xc3\xa9t", "k line 3: a key is made of printable ASCII"),
        (b"# x\nsecret\xff", "k line 2 is not UTF-8"),
        (b"secret -bad", "k line 1: '-bad' is no name"),
        (b"\xef\xbb\xbfsecret", "k line 1: a key is made of printable ASCII"),
        (b"secret\nb\nsecret", "k line 3 has the same key as line 1"),
        (b"sha256:secret", "k line 1 is a damaged entry"),
        (GOOD.replace(":", ":0", 1).encode(), "k line 1 is a damaged entry"),
        (GOOD[:-4].encode() + b"\n" + GOOD[:50].encode(), "k line 2 is a damaged entry"),
        (f"{GOOD}\n{GOOD}".encode(), "k line 2 has the same key as line 1"),
        (f"{GOOD}\nk bob".encode(), "k line 2 has the key of another line"),
        (f"{GOOD} more".encode(), "k line 1 is a damaged entry"),
        (b"a\0b", "k line 1: a key is made of printable ASCII"),
    ],
)
def test_a_damaged_line_is_refused_by_its_number(path: Path, raw: bytes, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(raw, Path("k"))
    assert refused.value.message.startswith(told)
    assert "secr" not in str(refused.value)
    write(path, raw)
    for change in (
        lambda: keyfile.add(path, "", never),
        lambda: keyfile.revoke(path, "00000000", never),
        lambda: keyfile.rotate(path, "00000000", never),
    ):
        with pytest.raises(UsageError, match=r"line [123]"):
            change()
    assert path.read_bytes() == raw


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_by_a_line(raw: bytes) -> None:
    try:
        lines = parse(raw, Path("k"))
    except UsageError as refused:
        assert refused.message.startswith("k line ")
    else:
        assert len(entries_of(lines)) <= len(raw.split(b"\n"))


def test_what_is_no_file_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file") as refused:
        read(path)
    assert "mashbox keys add" in refused.value.remedy
    path.mkdir(parents=True)
    with pytest.raises(UsageError, match="not a regular file"):
        read(path)
    path.rmdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(UsageError, match="not a regular file"):
        read(path)
    path.unlink()
    write(path, b"#" * (keyfile.MOST_BYTES + 1))
    with pytest.raises(UsageError, match="too large"):
        read(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o755])
def test_a_file_that_others_can_read_is_made_private(path: Path, mode: int) -> None:
    write(path, "one", mode)
    told: list[str] = []
    keyfile.load(path, told.append)
    assert mode_of(path) == 0o600
    assert len(told) == 1
    assert f"mode {mode:04o}" in told[0]
    read(path)


@pytest.mark.parametrize("mode", [0o660, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    write(path, "one", mode)
    with pytest.raises(UsageError, match="Others can write"):
        read(path)
    with pytest.raises(UsageError, match="chmod 600"):
        keyfile.add(path, "", never)
    assert path.read_text() == "one"
    assert mode_of(path) == mode


# --- changes ---------------------------------------------------------------------------------------


def test_a_new_key_is_kept_as_a_hash(path: Path) -> None:
    entry, key = keyfile.add(path, "alice", never)
    text = path.read_text()
    assert key not in text
    assert key.removeprefix("mashbox-") not in text
    assert len(bytes.fromhex(key.removeprefix("mashbox-"))) == 32
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    assert read(path) == [entry]
    assert entry.matches(key.encode())
    assert not entry.matches(key.upper().encode())
    _, other = keyfile.add(path, "alice", never)
    assert other != key
    first, second = read(path)
    assert first.owner == second.owner == "alice"
    assert first.salt != second.salt


def test_unnamed_keys_have_owners_of_their_own(path: Path) -> None:
    owners = {keyfile.add(path, "", never)[0].owner for _ in range(3)}
    assert len(owners) == 3
    assert all(owner.startswith("key:") for owner in owners)


@pytest.mark.parametrize("name", ["key:1", "a b", "-x", "é", "a\n", "x" * 65])
def test_names_that_no_tenant_can_have(path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--tenant"):
        keyfile.add(path, name, never)
    assert not path.exists()


def test_a_revoked_key_is_gone_and_the_others_stay(path: Path) -> None:
    entries = [keyfile.add(path, name, never)[0] for name in ("a", "b", "")]
    assert keyfile.revoke(path, entries[1].id, never) == entries[1]
    assert read(path) == [entries[0], entries[2]]
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"no key {entries[1].id}"):
        keyfile.revoke(path, entries[1].id, never)
    assert path.read_bytes() == before


def test_rotation_keeps_id_tenant_and_place(path: Path) -> None:
    (first, key), _ = keyfile.add(path, "a", never), keyfile.add(path, "b", never)
    entry, new = keyfile.rotate(path, first.id, never)
    assert new != key
    now = read(path)[0]
    assert now == entry
    assert (now.id, now.tenant) == (first.id, "a")
    assert now.matches(new.encode())
    assert not now.matches(key.encode())


def test_plain_keys_are_hashed_at_the_next_change_and_comments_stay(path: Path) -> None:
    write(path, "# mine\nplain-one alice\n\nplain-two\nplain-three\n")
    told: list[str] = []
    gone = keyfile.plain_id("plain-three")
    keyfile.revoke(path, gone, told.append)
    text = path.read_text()
    assert "plain" not in text
    assert text.startswith("# mine\nsha256:")
    assert "stored as hashes now" in told[0]
    one, two = read(path)
    assert one.matches(b"plain-one")
    assert one.tenant == "alice"
    assert two.matches(b"plain-two")
    assert not {one.id, two.id} & {keyfile.plain_id(f"plain-{n}") for n in ("one", "two")}


def test_a_link_is_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "real" / "keys"
    keyfile.add(target, "", never)
    link = tmp_path / "link"
    link.symlink_to(target)
    keyfile.add(link, "", never)
    assert link.is_symlink()
    assert len(read(target)) == 2


def test_a_failed_write_leaves_the_old_file_and_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyfile.add(path, "", never)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MashboxError, match="can't be written: No space left") as failed:
        keyfile.add(path, "", never)
    assert failed.value.exit_code == 1
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["keys", "keys.lock"]


def test_changes_of_several_processes_at_once_lose_nothing(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from mashbox.server import keyfile\n"
        "sys.stdin.readline()\n"
        "for _ in range(8): print(keyfile.add(Path(sys.argv[1]), sys.argv[2], print)[1])"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), f"t{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    keys = [key for process in processes for key in process.communicate(timeout=PATIENCE)[0].split()]
    entries = read(path)
    assert len(set(keys)) == len(entries) == 24
    assert all(sum(entry.matches(key.encode()) for entry in entries) == 1 for key in keys)
