"""The engine of one machine: prompts to ids here, ids to tokens in the worker, tokens to events here."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import msgspec

from mashbox.engine import certificates
from mashbox.engine.dialect import AnswerReader, Dialect, Output, joined
from mashbox.engine.engine import EngineStatus, ModelCard
from mashbox.engine.events import Event, Finished, FinishReason, Text, Thinking, Timings, Usage
from mashbox.engine.identity import cache_namespace, component_set_sha, deployment_id
from mashbox.engine.process import WORKER_COMMAND, WorkerProcess
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.engine.settings import EngineSettings, start_message
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.wire import Cancel, Failed, Ready, Row, Submit, Tokens
from mashbox.errors import InvalidRequest, MashboxError, PromptTooLong, WorkerFault
from mashbox.facts import ModelFacts
from mashbox.store import LocalModel


def _file_name(model: LocalModel) -> str:
    """The file that was loaded; of several the one that names the others, or the first."""
    path = Path(model.weights)
    if model.format == "gguf":
        return path.name
    index = path / "model.safetensors.index.json"
    return index.name if index.is_file() else "model.safetensors"


class _Stream:
    """What the worker has sent for one request and nobody has read yet."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._error: MashboxError | None = None
        self._wake = asyncio.Event()

    def push(self, row: Row) -> None:
        self._rows.append(row)
        self._wake.set()

    def fail(self, error: MashboxError) -> None:
        self._error = error
        self._wake.set()

    async def take(self) -> list[Row]:
        """All rows since the last call, at least one. Raises what ended the request, after its rows."""
        await self._wake.wait()
        rows, self._rows = self._rows, []
        if not rows and self._error:
            raise self._error
        if not self._error:
            self._wake.clear()
        return rows


class _Speculation:
    """How guessing went, over all requests; ``accepted[n]`` runs had their guess number n accepted."""

    def __init__(self) -> None:
        self.drafts = self.drafted = 0
        self.accepted: list[int] = []

    def add(self, row: Row) -> None:
        self.drafts += 1
        self.drafted += row.drafted
        self.accepted += [0] * (row.accepted - len(self.accepted))
        for place in range(row.accepted):
            self.accepted[place] += 1


class LocalEngine:
    """Implements :class:`mashbox.engine.engine.Engine` over a worker process.

    ``on_words`` gets what the worker writes to stderr, ``first`` is one that was started already with these
    settings, see :class:`~mashbox.engine.supervisor.Supervisor`.
    """

    def __init__(
        self,
        model: LocalModel,
        facts: ModelFacts,
        settings: EngineSettings,
        worker: tuple[str, ...] = WORKER_COMMAND,
        on_words: Callable[[str], None] | None = None,
        first: WorkerProcess | None = None,
    ) -> None:
        tools = model.spec.tools if model.spec else None
        self._dialect = Dialect(ModelTokenizer.load(model.tokenizer), tools)
        self._facts = facts
        self._settings = settings
        self._model = model
        self._file = _file_name(model)
        self._components = component_set_sha(model)
        self._name()
        self._end_ids = sorted(self._dialect.end_ids)
        self._streams: dict[int, _Stream] = {}
        self._numbers = itertools.count(1)
        self._speculation = _Speculation()
        # Two threads: a long prompt must not hold up a short one, and rendering is not worth more cores.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="encode")
        self._worker = Supervisor(
            start_message(model, settings),
            self._receive,
            self._worker_died,
            worker,
            settings.step_timeout,
            on_words,
            first,
        )
        # Requests that a fault interrupted run again one by one: the one that kills the worker dies alone.
        self._quarantine = asyncio.Lock()
        # Not set while one of them has said nothing yet: what begins then would be taken down with it.
        self._unsuspected = asyncio.Event()
        self._unsuspected.set()

    def _name(self, engine: str | None = None) -> None:
        """Name what is to run, or runs on ``engine``, and look up whether that has been certified."""
        self._deployment = deployment_id(self._components, self._settings.deployment)
        self._certified = certificates.certified(self._deployment, engine)

    @property
    def card(self) -> ModelCard:
        ready = self._worker.ready
        return ModelCard(
            id=self._model.id,
            max_model_len=self._settings.ctx,
            weights=self._file,
            gb=round((ready.weight_bytes if ready else self._facts.weight_file_bytes) / 1e9, 3),
            bpw=round(self._facts.bpw, 2),
            slots=self._settings.slots,
            prefix_cache=True,
            cache_ram_mib=self._worker.cache_bytes >> 20,
            engine=ready.engine if ready else None,
            engine_why=(ready.engine_why or None) if ready else None,
        )

    @property
    def failure(self) -> Failed | None:
        """Why loading failed for good, if it did."""
        return self._worker.failure

    def status(self) -> EngineStatus:
        ready = self._worker.ready
        return EngineStatus(
            state=self._worker.state,
            stage=self._worker.stage,
            progress=self._worker.progress,
            live_rows=len(self._streams),
            worker_pid=self._worker.pid,
            worker_restarts=self._worker.restarts,
            # Unknown only until the first worker is ready: the count is over all of them.
            compiles_after_ready=self._worker.stats.programs if ready or self._worker.restarts else None,
            host_cache_bytes=self._worker.stats.host_cache_bytes,
            host_cache_evictions=self._worker.stats.host_cache_evictions,
            snapshot_bytes=self._worker.stats.snapshot_bytes,
            component_set_sha=self._components,
            deployment_id=self._deployment,
            certified=self._certified,
            cache_namespace=self._cache_namespace(ready.engine) if ready else None,
            routed_experts=ready.routed_experts if ready else None,
            drafts=self._speculation.drafts,
            drafted=self._speculation.drafted,
            accepted=tuple(self._speculation.accepted),
            engine=ready.engine if ready else None,
            engine_why=(ready.engine_why or None) if ready else None,
        )

    def _cache_namespace(self, engine: str) -> str | None:
        settings = self._settings
        return cache_namespace(self._components, engine, settings.weights, settings.activations)

    async def start(self) -> None:
        self._worker.start()
        # While the model loads.
        self._threads.submit(self._dialect.warm_up)

    async def wait_ready(self) -> None:
        """Returns when requests can run, or when loading failed for good (see ``failure``)."""
        await self._worker.wait_ready()

    async def stop(self) -> None:
        self._fail_all("The server shuts down.")
        await self._worker.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def encode(self, request: Request) -> EncodedPrompt:
        loop = asyncio.get_running_loop()
        prompt = await loop.run_in_executor(self._threads, self._dialect.encode, request, self._settings.ctx)
        if len(prompt.ids) >= self._settings.ctx:
            raise PromptTooLong(len(prompt.ids), self._settings.ctx)
        return prompt

    async def generate(
        self, request: Request, prompt: EncodedPrompt, queue_ms: float = 0.0
    ) -> AsyncIterator[Event]:
        # One that waited in the line while the worker died was accepted: it waits for the next worker.
        await self._may_begin()
        reader = self._dialect.reader(request, prompt)
        answer = _Answer(reader, request, prompt, queue_ms)
        tried = self._one_try(request, prompt, answer)
        try:
            async with aclosing(_at_once(tried) if request.held else tried) as events:
                async for event in events:
                    yield event
            return
        except WorkerFault:
            # While the client has seen nothing, the same seed gives it the same answer from the start.
            if answer.sent and not request.held:
                raise
        async with self._quarantine:
            self._unsuspected.clear()
            try:
                await self._worker.wait_ready()
                reader = self._dialect.reader(request, prompt)
                answer = _Answer(reader, request, prompt, queue_ms, again=True)
                async with aclosing(self._one_try(request, prompt, answer)) as events:
                    async for event in events:
                        yield event
            finally:
                self._unsuspected.set()

    async def _may_begin(self) -> None:
        """Until a worker is ready, and no request runs in it that may have killed the one before."""
        await self._worker.wait_ready()
        while not self._unsuspected.is_set():
            await self._unsuspected.wait()
            await self._worker.wait_ready()

    async def _one_try(
        self, request: Request, prompt: EncodedPrompt, answer: "_Answer"
    ) -> AsyncGenerator[Event, None]:
        number, stream = next(self._numbers), _Stream()
        room = self._settings.ctx - len(prompt.ids)
        self._worker.send(
            Submit(
                id=number,
                ids=prompt.ids,
                max_tokens=min(request.max_tokens or room, room),
                end_ids=[] if request.ignore_end else self._end_ids,
                sampling=request.sampling,
                grammar=prompt.grammar,
                session=request.session,
                tenant=request.tenant,
            )
        )
        self._streams[number] = stream
        ended = False
        try:
            while not answer.finished:
                rows = await stream.take()
                if answer.again:
                    self._unsuspected.set()
                ended = rows[-1].finish is not None
                for event in answer.events(rows):
                    yield event
        except MashboxError:
            ended = True
            raise
        finally:
            del self._streams[number]
            if not ended:
                self._cancel(number)

    def _cancel(self, number: int) -> None:
        # A worker that is down has forgotten the request already.
        if self._worker.state == "ok":
            self._worker.send(Cancel(number))

    def _receive(self, message: Tokens | Failed | Ready) -> None:
        match message:
            case Ready():
                self._settle(message)
            case Tokens(rows):
                for row in rows:
                    if row.drafted:
                        self._speculation.add(row)
                    if stream := self._streams.get(row.id):
                        stream.push(row)
            case Failed(id=int(number)):
                if stream := self._streams.get(number):
                    stream.fail(_error(message))

    def _settle(self, ready: Ready) -> None:
        """Go by what the worker has and runs, which may not be what was planned."""
        self._settings = msgspec.structs.replace(self._settings, ctx=ready.ctx, slots=ready.slots)
        self._name(ready.engine)

    def _worker_died(self, reason: str) -> None:
        self._fail_all(reason)

    def _fail_all(self, reason: str) -> None:
        for stream in self._streams.values():
            stream.fail(WorkerFault(reason))


async def _at_once(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """The same events when all of them are there; none if they break off."""
    async with aclosing(events):
        collected = [event async for event in events]
    for event in collected:
        yield event


def _error(failed: Failed) -> MashboxError:
    """What a failure of one request is to its client: its own fault, or the worker's."""
    if failed.kind == "request":
        return InvalidRequest(failed.message, remedy=failed.remedy)
    return WorkerFault(failed.message, failed.remedy)


class _Answer:
    """One request's rows into events, counts and times; ``again``: a fault ended its first run."""

    def __init__(
        self,
        reader: AnswerReader,
        request: Request,
        prompt: EncodedPrompt,
        queue_ms: float,
        *,
        again: bool = False,
    ) -> None:
        self.again = again
        self._reader = reader
        self._prompt_tokens = len(prompt.ids)
        self._counted = request.counted
        self._queue_ms = queue_ms
        self._began = self._first = self._last = time.monotonic()
        self._tokens = 0
        self._cached = 0
        self._drafted = self._accepted = 0
        self.sent = False
        self.finished = False

    def events(self, rows: list[Row]) -> list[Event]:
        """The events of these rows; rows behind a stop string are dropped."""
        self._last = time.monotonic()
        if not self._tokens:
            self._first = self._last
        output: list[Output] = []
        end: FinishReason | None = None
        for row in rows:
            if row.finish == "cancelled":
                raise WorkerFault("The request was cancelled in the worker.")
            self._cached = max(self._cached, row.cached)
            self._drafted += row.drafted
            self._accepted += row.accepted
            for token in row.tokens:
                self._tokens += 1
                output += self._reader.push(token)
                if self._reader.stop_sequence is not None:
                    break
            if self._reader.stop_sequence is not None:
                end = "stop"
                break
            if row.finish:
                end = row.finish
                output += self._reader.finish()
        events: list[Event] = [*joined(output)]
        if self._counted and events and isinstance(last := events[-1], Text | Thinking):
            events[-1] = msgspec.structs.replace(last, tokens=self._tokens)
        if end:
            self.finished = True
            events.append(self._finished(self._reader.reason(end)))
        self.sent = self.sent or bool(events)
        return events

    def _finished(self, reason: FinishReason) -> Finished:
        return Finished(
            reason=reason,
            stop_sequence=self._reader.stop_sequence,
            usage=Usage(
                prompt_tokens=self._prompt_tokens,
                completion_tokens=self._tokens,
                cached_tokens=self._cached,
                thinking_tokens=self._reader.thinking_tokens,
            ),
            timings=Timings(
                queue_ms=self._queue_ms,
                prompt_ms=(self._first - self._began) * 1e3,
                predicted_ms=(self._last - self._first) * 1e3,
                drafted=self._drafted,
                accepted=self._accepted,
            ),
        )
