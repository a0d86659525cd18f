"""Drives one request from its encoded form to its last byte, the same way for every protocol.

Two tasks a request, none a token: one works (encode, wait in the line, generate) and one watches for
the client to leave. Both put what happens into one mailbox; the response takes everything that lies
there at once and sends it in one write.
"""

import asyncio
import contextlib
import enum
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Protocol, cast, runtime_checkable

import msgspec
from litestar.types import HTTPSendMessage, Receive, Scope, Send

from mashbox.engine.events import Event, Finished
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.errors import EngineError, InvalidRequest, PromptTooLong, WorkerFault
from mashbox.server import sse
from mashbox.server.failure import Failure, failure_of, family_of
from mashbox.server.metrics import Watched
from mashbox.server.record import Record, record_of
from mashbox.server.service import Service

log = logging.getLogger("mashbox.server")

_PROMPT_FIELDS = ("messages", "prompt")


class Answer(Protocol):
    """A protocol's words for one request's events. One object a request; it may keep state."""

    prompt_field: str
    """The body's field that holds the prompt, for refusals of the whole of it."""

    @property
    def keep_alive(self) -> bytes:
        """What is sent in a silence. Read once for each time it is sent, so that it may be numbered."""
        ...

    def opening(self) -> bytes:
        """What a stream begins with, before any output."""
        ...

    def event(self, event: Event) -> bytes:
        """The bytes of one event of a stream; those of ``Finished`` end it."""
        ...

    def failed(self, failure: Failure) -> bytes:
        """The error event of a stream that can't go on."""
        ...

    def whole(self, events: Sequence[Event]) -> bytes:
        """The JSON document of an answer that is not streamed; the last event is ``Finished``."""
        ...


@runtime_checkable
class CountsPrompt(Protocol):
    """An answer whose opening tells the size of the prompt."""

    def encoded(self, prompt_tokens: int) -> None:
        """Called once, before the opening."""
        ...


class _Signal(enum.Enum):
    ACCEPTED = enum.auto()
    SILENCE = enum.auto()
    GONE = enum.auto()


_Item = Event | _Signal | Exception


class Mailbox:
    """An unbounded queue with one reader, who takes all that is there."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: _Item) -> None:
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def take(self) -> list[_Item]:
        """Everything put since the last call; waits for at least one item."""
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        items, self._items = self._items, []
        return items


class KeepAlive:
    """Puts SILENCE into a mailbox whenever nothing was sent for ``interval`` seconds."""

    def __init__(self, box: Mailbox, interval: float) -> None:
        self._box = box
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(interval, self._check)

    def sent(self) -> None:
        self._last = self._loop.time()

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        # One timer that is moved on when it fires: nothing is scheduled or cancelled for a token.
        silent = self._loop.time() - self._last
        if silent >= self._interval:
            self._box.put(_Signal.SILENCE)
            silent = 0.0
        self._timer = self._loop.call_later(self._interval - silent, self._check)


@contextlib.asynccontextmanager
async def _closing(events: AsyncIterator[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    try:
        yield events
    finally:
        if hasattr(events, "aclose"):
            await cast("AsyncGenerator[Event, None]", events).aclose()


class Respond:
    """The ASGI application that answers one request. Errors before the first byte are raised."""

    def __init__(self, service: Service, request: Request, answer: Answer, *, stream: bool) -> None:
        self._service = service
        self._request = msgspec.structs.replace(request, held=not stream)
        self._answer = answer
        self._stream = stream
        self._box = Mailbox()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        end = self._box.put
        record = record_of(scope)
        record.asked(self._request)
        tasks = [asyncio.create_task(self._work(record)), asyncio.create_task(self._watch(receive))]
        self._service.enter(end)
        try:
            await (self._send_stream(scope, send) if self._stream else self._send_whole(send))
        finally:
            self._service.exit(end)
            for task in tasks:
                task.cancel()
            # Nothing of the request is left when the response has ended: its place is free.
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._box.put(_Signal.GONE)

    async def _work(self, record: Record) -> None:
        try:
            with self._service.metrics.request(self._request.max_tokens) as watched:
                await self._answer_into_box(watched, record)
        except Exception as error:
            self._box.put(error)

    async def _answer_into_box(self, watched: Watched, record: Record) -> None:
        service, request, box = self._service, self._request, self._box
        prompt = await self._encode()
        record.prompt_tokens = len(prompt.ids)
        if isinstance(self._answer, CountsPrompt):
            self._answer.encoded(len(prompt.ids))
        service.check_ready()
        with service.line.join(request.tenant) as place:
            watched.accepted(len(prompt.ids))
            box.put(_Signal.ACCEPTED)
            record.queue_ms = await place.turn() * 1000
            events = service.engine.generate(request, prompt, queue_ms=record.queue_ms)
            async with _closing(events):
                async for event in events:
                    box.put(event)
                    if isinstance(event, Finished):
                        watched.finished(event)
                        record.finished(event)
                    else:
                        watched.piece()
        if not watched.is_finished:
            raise WorkerFault("The answer broke off before its end.")

    async def _encode(self) -> EncodedPrompt:
        field = self._answer.prompt_field
        try:
            return await self._service.engine.encode(self._request)
        except (InvalidRequest, PromptTooLong) as error:
            # The engine knows a conversation or a prompt, not what the route's body calls it.
            if error.param in _PROMPT_FIELDS:
                error.param = field
            raise
        except RecursionError:
            raise InvalidRequest(f"{field} is nested too deeply.", param=field) from None

    async def _send_whole(self, send: Send) -> None:
        events = await self._all_events()
        if events is None:
            return
        body = self._answer.whole(events)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _all_events(self) -> list[Event] | None:
        """Every event up to ``Finished``; None when the client has left."""
        events: list[Event] = []
        while True:
            for item in await self._box.take():
                if item is _Signal.GONE:
                    return None
                if isinstance(item, Exception):
                    raise item
                if not isinstance(item, _Signal):
                    events.append(item)
                    if isinstance(item, Finished):
                        return events

    async def _send_stream(self, scope: Scope, send: Send) -> None:
        started = False
        keep_alive = KeepAlive(self._box, self._service.settings.keep_alive_s)
        try:
            while True:
                out: list[bytes] = []
                ended = False
                for item in await self._box.take():
                    if item is _Signal.GONE:
                        return
                    if isinstance(item, Exception) and not started:
                        raise item
                    if item is _Signal.ACCEPTED:
                        started = True
                        await send(_start_of_stream())
                    if not ended:
                        ended = self._write(item, started, scope, out)
                if out or ended:
                    keep_alive.sent()
                    await send(_piece(b"".join(out), more=not ended))
                if ended:
                    return
        finally:
            keep_alive.stop()

    def _write(self, item: _Item, started: bool, scope: Scope, out: list[bytes]) -> bool:
        """Append an item's bytes; True when the stream ends with it."""
        if isinstance(item, Exception):
            record_of(scope).failed(item)
            if isinstance(item, EngineError):
                log.warning("%s broke off: %s", self._request.id, item)
            out.append(self._answer.failed(failure_of(item, family_of(scope["path"]))))
            return True
        if item is _Signal.ACCEPTED:
            out.append(self._answer.opening())
        elif item is _Signal.SILENCE:
            if started:
                out.append(self._answer.keep_alive)
        elif not isinstance(item, _Signal):
            out.append(self._answer.event(item))
            return isinstance(item, Finished)
        return False


def _start_of_stream() -> HTTPSendMessage:
    return {"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)}


def _piece(body: bytes, *, more: bool) -> HTTPSendMessage:
    return {"type": "http.response.body", "body": body, "more_body": more}
