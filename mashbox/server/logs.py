"""How the running server's log lines look: text or JSON, on stderr."""

import json
import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

from mashbox.server.record import Record

_Info = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> Any: ...
    def flush(self) -> Any: ...


def configure(*, as_json: bool, brief: bool = False, stream: Stream | None = None) -> None:
    """Write mashbox's lines from info on, and the warnings of everything else, to ``stream`` (None: stderr).

    ``brief`` lines are for who watches a terminal: a request's is short enough to be read there.
    Keeping, rotating and dropping them is left to the system that collects them.
    """
    handler = logging.StreamHandler[Any](stream)
    handler.setFormatter(JsonFormatter() if as_json else BriefFormatter() if brief else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("mashbox").setLevel(logging.INFO)


def json_line(level: str, **fields: Any) -> str:
    """One JSON object on one line: the time in UTC, the level, and ``fields``."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": now, "level": level, **fields})


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00 message``, local time; from warnings on, the level stands before the message.

    An exception is told by its kind and the places it went through. Its message is left out, since it may
    quote what a client wrote.
    """

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        line = f"{self.formatTime(record, '%Y-%m-%d %H:%M:%S')} {level}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line

    def formatException(self, ei: _Info) -> str:
        return places(ei[1])


class BriefFormatter(TextFormatter):
    """``12:00:00 message``; of a request only what one looks for."""

    def format(self, record: logging.LogRecord) -> str:
        if isinstance(record.msg, Record):
            return f"{self.formatTime(record, '%H:%M:%S')} {record.msg.brief()}"
        return super().format(record)


class JsonFormatter(TextFormatter):
    """One object a line; a request's fields stand in it by their names, everything else is a ``message``."""

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        if isinstance(record.msg, Record):
            return json_line(level, event="request", **record.msg.fields())
        fields = {"message": record.getMessage()}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json_line(level, event="message", **fields)


def places(error: BaseException | None) -> str:
    """The frames and kinds of an exception and of those that led to it, oldest first, without messages."""
    parts: list[str] = []
    while error is not None:
        frames = "".join(traceback.format_tb(error.__traceback__))
        parts.insert(0, f"{frames}{type(error).__module__}.{type(error).__qualname__}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(parts)
