"""SIGTERM and SIGHUP (a closed terminal) end the chat like an exit, so that a server of its own ends too."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Leaving:
    """Turns these signals into SystemExit with the status 128 + the signal's number.

    Raised wherever the program is at that moment, an exception may meet code that keeps it for itself: the
    callback of an event loop. Such code runs in ``deferred``.
    """

    def __init__(self) -> None:
        self._end: Callable[[], None] | None = None
        self._number: int | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal came that is still to be raised."""
        return self._number is not None

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Heed the signals in this block."""
        before = {number: signal.signal(number, self._leave) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self, end: Callable[[], None]) -> Iterator[None]:
        """In this block a signal calls ``end``, which has the block end by itself; then SystemExit is raised.

        ``end`` runs as a signal handler, so it must not wait for anything. Where there is nothing to end yet,
        the block asks ``asked`` once there is.
        """
        self._end = end
        try:
            yield
        finally:
            self._end = None
            if self._number is not None:
                raise SystemExit(128 + self._number)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        if self._end is None:
            raise SystemExit(128 + number)
        self._number = number
        self._end()
