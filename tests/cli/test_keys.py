"""``mashbox keys``: what it prints, where, and what it refuses."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mashbox.cli.main import app
from mashbox.server import keyfile
from mashbox.server.keys import FileKeys

runner = CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    return tmp_path


def keys(*args: str, status: int = 0) -> Result:
    result = runner.invoke(app, ["keys", *args])
    assert result.exit_code == status, result.stderr
    if status:
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    return result


def listed(*args: str) -> list[dict[str, str | None]]:
    found: list[dict[str, str | None]] = json.loads(keys("list", "--json", *args).stdout)
    return found


def test_add_prints_the_key_alone_and_only_once(home: Path) -> None:
    result = keys("add", "--tenant", "alice")
    key = result.stdout.removesuffix("\n")
    path = home / "config" / "keys"
    assert FileKeys(path).verify(key) == "alice"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f"--api-key-file {path}" in result.stderr
    assert key not in result.stderr
    for shown in (keys("list"), keys("list", "--json")):
        assert key not in shown.stdout + shown.stderr
        assert key.removeprefix("mashbox-")[:12] not in shown.stdout


def test_list_is_a_table_or_an_array(home: Path) -> None:
    assert listed() == []
    assert "Make one: mashbox keys add" in keys("list").stderr
    keys("add", "--tenant", "alice")
    with (home / "config" / "keys").open("a") as file:
        file.write("by-hand\n")
    first, second = listed()
    assert set(first) == {"id", "tenant", "created", "stored"}
    assert (first["tenant"], first["stored"]) == ("alice", "hashed")
    assert (second["tenant"], second["created"], second["stored"]) == (None, None, "plain")
    head, *rows = keys("list").stdout.splitlines()
    assert head.split() == ["id", "created", "stored", "tenant"]
    assert rows[0].split() == [first["id"], first["created"], "hashed", "alice"]
    assert rows[1].split() == [second["id"], "-", "plain", "-"]
    assert "by-hand" not in keys("list").stdout


def test_rotate_and_revoke_go_by_the_id(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere"
    old = keys("add", "--file", str(path)).stdout.strip()
    (only,) = listed("--file", str(path))
    new = keys("rotate", str(only["id"]), "--file", str(path)).stdout.strip()
    known = FileKeys(path)
    assert known.verify(new)
    assert known.verify(old) is None
    gone = keys("revoke", str(only["id"]), "--file", str(path))
    assert gone.stdout == ""
    assert str(only["id"]) in gone.stderr
    assert known.verify(new) is None
    assert listed("--file", str(path)) == []


def test_what_is_refused(home: Path) -> None:
    assert "has no key 00000000" in keys("revoke", "00000000", status=2).stderr
    assert "has no key 00000000" in keys("rotate", "00000000", status=2).stderr
    assert "--tenant: 'a b' is no name" in keys("add", "--tenant", "a b", status=2).stderr
    assert "can't be read" in keys("list", "--file", "/nowhere/keys", status=2).stderr
    assert "Try 'mashbox keys --help'" in keys(status=2).stderr
    assert not (home / "config" / "keys").exists()


def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text("good\nsecret of words\n")
    for args in (["add"], ["list"], ["revoke", "00000000"], ["rotate", "00000000"]):
        line = keys(*args, "--file", str(path), status=2).stderr
        assert f"{path} line 2 has several words" in line
        assert "secret" not in line
    assert path.read_text() == "good\nsecret of words\n"


def test_what_others_could_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keyfile.add(path, "", pytest.fail)
    path.chmod(0o644)
    assert "warning: Others could read the key file" in keys("list", "--file", str(path)).stderr
    assert "warning" not in keys("list", "--file", str(path)).stderr
