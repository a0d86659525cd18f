"""Build hook: the optional steps of an install. None of them can make the install fail.

A step is a function that returns None when it ran or has nothing to do, else a sentence that says what
is missing and what the package does without it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

Step = Callable[[str], str | None]

STEPS: Sequence[Step] = ()


class OptionalSteps(BuildHookInterface):
    """Runs each step and reports those that could not run."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version, build_data
        for step in STEPS:
            try:
                missing = step(self.root)
            except Exception as error:
                missing = f"{step.__name__} failed: {error}"
            if missing:
                self.app.display_warning(f"mashbox: {missing}")
