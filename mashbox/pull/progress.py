"""How a download tells what it does: the seam between the sources and whoever shows it."""

from typing import Protocol

FETCHING = "Fetching"
CHECKING = "Checking"
"""What is done with files that are on this machine already: they are only hashed."""


class Progress(Protocol):
    """Called from one thread. ``update`` may be called often; the receiver decides what to show."""

    def plan(self, files: dict[str, int | None], doing: str = FETCHING) -> None:
        """The files about to be taken, their bytes (None: unknown), and what is done with them."""
        ...

    def update(self, file: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of ``file`` are here; ``done`` may fall when a file starts anew."""
        ...

    def note(self, text: str) -> None:
        """What is being done now, in a few words."""
        ...


class Silent:
    """Shows nothing."""

    def plan(self, files: dict[str, int | None], doing: str = FETCHING) -> None:
        pass

    def update(self, file: str, done: int, total: int | None) -> None:
        pass

    def note(self, text: str) -> None:
        pass
