"""Build hook: the optional steps of an install. None of them can make the install fail.

A step is a function that returns None when it ran or has nothing to do, else a sentence that says what
is missing and what the package does without it.
"""

import importlib.util
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

Step = Callable[[str], str | None]

_KERNELS = Path("mashbox", "engine", "worker", "kernels")


def compile_kernels(root: str) -> str | None:
    """Compile the fast engine's kernels into the package folder, from where an editable install runs too."""
    # By its path: the package's dependencies are not there yet.
    spec = importlib.util.spec_from_file_location("kernels_compile", Path(root) / _KERNELS / "compile.py")
    if spec is None or spec.loader is None:
        return "the kernels' sources are missing: the fast engine is left out."
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing: str | None = module.compile_kernels()
    return missing


STEPS: Sequence[Step] = (compile_kernels,)


class OptionalSteps(BuildHookInterface):
    """Runs each step and reports those that could not run."""

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
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"
