"""The unit, and the figures on the page about running it for others."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mashbox.server.app import create_app
from mashbox.server.connection import MOST_HEAD_BYTES
from mashbox.server.listen import open_socket
from mashbox.server.serve import LAST_WORDS_S, build_server
from mashbox.server.settings import ServerSettings
from mashbox.settings import RULES, Settings, variable
from tests.patience import PATIENCE
from tests.server.scripted import ScriptedEngine

ROOT = Path(__file__).parent.parent
UNIT = (ROOT / "packaging" / "mashbox.service").read_text()
PAGE = (ROOT / "docs" / "operations.md").read_text()


def unit(name: str) -> str:
    """The one value of a setting of the unit."""
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def test_a_stopping_service_has_the_time_to_drain() -> None:
    assert int(unit("TimeoutStopSec")) > Settings().drain + LAST_WORDS_S + 5


def test_what_the_unit_and_the_page_name_exists() -> None:
    for name in re.findall(r"MASHBOX_(\w+)", UNIT + PAGE):
        assert f"MASHBOX_{name}" in {"MASHBOX_HOME", "MASHBOX_API_KEY", *map(variable, RULES)}
    assert unit("ExecStart").startswith("/opt/mashbox/bin/mashbox run")
    assert "python3 -m venv /opt/mashbox\n" in PAGE


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "mashbox.service"
    file.write_text(UNIT.replace("/opt/mashbox/bin/mashbox", sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", file], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_page_tells_the_limits_as_they_are() -> None:
    settings = ServerSettings(port=0)
    with open_socket(settings) as sock:
        config = build_server(create_app(ScriptedEngine(), settings), settings, sock=sock).config
    assert f"headers take longer than {settings.read_timeout_s:g} seconds" in PAGE
    assert f"body stops coming for {settings.read_timeout_s:g} seconds" in PAGE
    assert f"for {settings.read_timeout_s:g} seconds, or for {config.timeout_keep_alive} after" in PAGE
    assert f"more than {MOST_HEAD_BYTES >> 10} KiB" in PAGE
    assert f"not read for {settings.stalled_reader_s:g} seconds" in PAGE
    assert f"than {settings.waiting_per_tenant} requests of one" in PAGE
    assert f"or {settings.waiting_in_all} in all" in PAGE
    assert f"client_max_body_size {settings.max_body_mib}m;" in PAGE
