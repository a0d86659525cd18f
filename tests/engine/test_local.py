"""The local engine over a real worker process that speaks printable characters."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mashbox.engine.dialect import Dialect
from mashbox.engine.engine import Engine
from mashbox.engine.events import Event, Finished, Text
from mashbox.engine.local import LocalEngine, _Answer
from mashbox.engine.request import Conversation, EncodedPrompt, Request, Sampling
from mashbox.engine.settings import EngineSettings
from mashbox.engine.supervisor import Supervisor
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.wire import Cancel, Row, Submit
from mashbox.errors import InvalidRequest, PromptTooLong, WorkerFault
from mashbox.facts import ModelFacts
from mashbox.store import LocalModel
from tests.engine.counting_worker import DEADLY, SPEAKABLE, VOCABULARY
from tests.engine.letters import Letters
from tests.engine.running import running
from tests.engine.test_supervisor import command
from tests.engine.worker.counting import CountingRunner
from tests.patience import PATIENCE

FACTS = ModelFacts(
    architecture="counting",
    context_length=64,
    layers=1,
    hidden=1,
    heads=1,
    kv_heads=1,
    head_dim=1,
    value_head_dim=1,
    vocab=VOCABULARY,
    parameters=1,
    weight_file_bytes=1,
    bpw=8.0,
    quant="F32",
    kv_numbers=2,
)
TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}assistant:"


def letters_model(folder: Path) -> LocalModel:
    """A model without weights whose tokenizer is written to ``folder``."""
    Letters().save(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return LocalModel(
        id="letters",
        format="gguf",
        weights=folder / "x.gguf",
        files=[],
        tokenizer=folder,
        spec=None,
        source="-",
    )


@asynccontextmanager
async def engine(folder: Path, fault: str = "", slots: int = 2) -> AsyncIterator[LocalEngine]:
    local = LocalEngine(letters_model(folder), FACTS, EngineSettings(ctx=64, slots=slots), command(fault))
    async with running(local):
        yield local


Body = Callable[[LocalEngine], Coroutine[Any, Any, None]]


def run(folder: Path, body: Body, **options: Any) -> None:
    """``body`` on an engine of its own."""

    async def go() -> None:
        async with engine(folder, **options) as local:
            await body(local)

    asyncio.run(go())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Body], None]]:
    """Runs bodies on one engine of two slots, which they leave as they found it."""
    with asyncio.Runner() as runner:
        held = engine(tmp_path_factory.mktemp("letters"))
        local = runner.run(held.__aenter__())
        yield lambda body: runner.run(body(local))
        runner.run(held.__aexit__(None, None, None))


async def collect(local: Engine, request: Request, prompt: EncodedPrompt | None = None) -> list[Event]:
    return [event async for event in local.generate(request, prompt or await local.encode(request))]


def text(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def finished(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    assert not any(isinstance(event, Finished) for event in events[:-1])
    return events[-1]


def expected(prompt: str, count: int) -> str:
    letters = Letters()
    runner = CountingRunner(vocab_size=VOCABULARY, speakable=SPEAKABLE)
    return letters.decode(runner.greedy(letters.encode(prompt), count))


def test_an_answer_is_text_then_finished_with_true_counts(shared: Callable[[Body], None]) -> None:
    async def body(local: LocalEngine) -> None:
        events = await collect(local, Request(id="a", prompt="hello", max_tokens=6))
        assert text(events) == expected("hello", 6)
        end = finished(events)
        assert end.reason == "length"
        assert (end.usage.prompt_tokens, end.usage.completion_tokens) == (5, 6)
        assert end.timings.prompt_ms > 0 and end.timings.predicted_ms > 0
        assert local.status().state == "ok" and local.status().live_rows == 0

    shared(body)


def test_a_stop_string_ends_the_text_before_it_and_frees_the_slot(shared: Callable[[Body], None]) -> None:
    async def body(local: LocalEngine) -> None:
        whole = expected("hello", 30)
        stop = whole[5:8]
        events = await collect(local, Request(id="a", prompt="hello", max_tokens=40, stop=(stop,)))
        assert text(events) == whole[: whole.index(stop)]
        assert finished(events).reason == "stop" and finished(events).stop_sequence == stop
        # Both slots are free again: two more run to their end.
        others = [collect(local, Request(id=i, prompt=i, max_tokens=3)) for i in "xy"]
        assert all(finished(events) for events in await asyncio.gather(*others))

    shared(body)


def test_without_a_limit_an_answer_ends_with_the_context(shared: Callable[[Body], None]) -> None:
    async def body(local: LocalEngine) -> None:
        end = finished(await collect(local, Request(id="a", prompt="hello")))
        assert end.reason == "length" and end.usage.completion_tokens == 64 - 5
        clamped = finished(await collect(local, Request(id="a", prompt="hello", max_tokens=32_000)))
        assert clamped.usage.completion_tokens == 64 - 5

    shared(body)


def test_prompts_that_can_not_be_answered_are_refused(shared: Callable[[Body], None]) -> None:
    async def body(local: LocalEngine) -> None:
        with pytest.raises(PromptTooLong) as refusal:
            await local.encode(Request(id="a", prompt="x" * 64))
        assert "64" in str(refusal.value) and refusal.value.code == "context_length_exceeded"
        assert (await local.encode(Request(id="a", prompt="x" * 63))).ids
        with pytest.raises(InvalidRequest):
            await local.encode(Request(id="a", prompt=""))
        messages = [{"role": "user", "content": "hi"}]
        prompt = await local.encode(Request(id="a", prompt=Conversation(messages=messages)))
        assert prompt.ids == Letters().encode("user:hi;assistant:")

    shared(body)


@pytest.mark.slow
def test_closing_the_events_cancels_the_request(tmp_path: Path) -> None:
    async def body(local: LocalEngine) -> None:
        request = Request(id="a", prompt="hello", max_tokens=50)
        async with aclosing(local.generate(request, await local.encode(request))) as events:
            async for _ in events:
                break
        assert local.status().live_rows == 0
        for _ in range(2):
            finished(await collect(local, Request(id="b", prompt="b", max_tokens=3)))

    run(tmp_path, body, slots=1)


@pytest.mark.slow
def test_a_request_that_nobody_has_seen_runs_again_after_a_fault(tmp_path: Path) -> None:
    async def body(local: LocalEngine) -> None:
        request = Request(id="a", prompt="hello", max_tokens=4)
        prompt = await local.encode(request)
        pid = local.status().worker_pid
        assert pid
        os.kill(pid, signal.SIGSTOP)
        task = asyncio.create_task(collect(local, request, prompt))
        await asyncio.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        assert text(await task) == expected("hello", 4)
        assert local.status().worker_restarts == 1

    run(tmp_path, body)


@pytest.mark.slow
def test_a_fault_in_the_middle_of_an_answer_ends_it(tmp_path: Path) -> None:
    async def body(local: LocalEngine) -> None:
        request = Request(id="a", prompt="hello", max_tokens=50)
        events = local.generate(request, await local.encode(request))
        await anext(events)
        pid = local.status().worker_pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerFault):
            async for _ in events:
                pass
        # One that was accepted before waits for the next worker.
        assert local.status().state == "loading"
        assert text(await collect(local, request)) == expected("hello", 50)

    run(tmp_path, body)


@pytest.mark.slow
def test_an_answer_that_is_held_runs_again_though_it_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    events = _Answer.events

    def noticed(answer: _Answer, rows: list[Row]) -> list[Event]:
        found = events(answer, rows)
        if found:
            begun.set()
        return found

    monkeypatch.setattr(_Answer, "events", noticed)

    async def body(local: LocalEngine) -> None:
        request = Request(id="a", prompt="hello", max_tokens=50, held=True)
        task = asyncio.create_task(collect(local, request))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        pid = local.status().worker_pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        assert text(await task) == expected("hello", 50)
        assert local.status().worker_restarts == 1

    run(tmp_path, body)


@pytest.mark.slow
def test_a_prompt_that_kills_the_worker_twice_is_given_up(tmp_path: Path) -> None:
    async def body(local: LocalEngine) -> None:
        deadly = EncodedPrompt(ids=[49])
        with pytest.raises(WorkerFault):
            await collect(local, Request(id="a", prompt="R", max_tokens=4), deadly)
        assert local.status().worker_restarts == 2
        await asyncio.wait_for(local.wait_ready(), PATIENCE)
        assert finished(await collect(local, Request(id="b", prompt="b", max_tokens=3)))

    run(tmp_path, body, fault="die")


@pytest.mark.slow
def test_a_deadly_prompt_does_not_take_others_down(tmp_path: Path) -> None:
    async def body(local: LocalEngine) -> None:
        good = Request(id="b", prompt="hello", max_tokens=4)
        pid = local.status().worker_pid
        assert pid
        # All are there before the worker sees the first of them.
        os.kill(pid, signal.SIGSTOP)
        prompt = await local.encode(good)
        deadly = asyncio.create_task(collect(local, Request(id="a", prompt="R"), EncodedPrompt(ids=[49])))
        await asyncio.sleep(0.1)
        tasks = [asyncio.create_task(collect(local, good, prompt)) for _ in range(3)]
        await asyncio.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(WorkerFault):
            await deadly
        for task in tasks:
            assert text(await task) == expected("hello", 4)

    run(tmp_path, body, fault="die", slots=4)


@pytest.mark.slow
def test_nothing_begins_beside_a_prompt_that_may_be_deadly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would begin while it runs again waits, and so needs no second run itself."""
    sent: list[list[int]] = []
    send = Supervisor.send

    def noted(supervisor: Supervisor, message: Submit | Cancel) -> None:
        if isinstance(message, Submit):
            sent.append(message.ids)
        send(supervisor, message)

    monkeypatch.setattr(Supervisor, "send", noted)

    async def body(local: LocalEngine) -> None:
        deadly = asyncio.create_task(collect(local, Request(id="a", prompt="R"), EncodedPrompt(ids=[49])))
        while local.status().state == "ok":
            await asyncio.sleep(0.01)
        good = Request(id="b", prompt="hello", max_tokens=4)
        prompt = await local.encode(good)
        tasks = [asyncio.create_task(collect(local, good, prompt)) for _ in range(2)]
        with pytest.raises(WorkerFault):
            await deadly
        for task in tasks:
            assert text(await task) == expected("hello", 4)
        assert sent == [[49], [49], prompt.ids, prompt.ids]

    run(tmp_path, body, fault="die")


LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells the address space")


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["memory", "bytes", "device"])
def test_a_step_that_throws_ends_its_worker_and_nobody_waits_for_ever(tmp_path: Path, fault: str) -> None:
    """Memory or a device fails: who has heard something gets an error, others an answer."""

    async def body(local: LocalEngine) -> None:
        good = Request(id="b", prompt="hello", max_tokens=50)
        begun = local.generate(good, await local.encode(good))
        assert isinstance(await anext(begun), Text)
        pid = local.status().worker_pid
        assert pid
        os.kill(pid, signal.SIGSTOP)
        deadly = asyncio.create_task(collect(local, Request(id="a", prompt="R"), EncodedPrompt(ids=[49])))
        while local.status().live_rows < 2:
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(WorkerFault, match=r"exit status 1"):
            async for _ in begun:
                pass
        unheard = asyncio.create_task(collect(local, good))
        with pytest.raises(WorkerFault, match=r"exit status 1"):
            await deadly
        assert text(await unheard) == expected("hello", 50)
        assert (local.status().worker_restarts, local.status().state) == (2, "ok")

    run(tmp_path, body, fault=fault)


@pytest.mark.parametrize("fault", ["nan", "nan once"])
def test_nan_is_tried_once_more_and_harms_nobody_else(tmp_path: Path, fault: str) -> None:
    async def body(local: LocalEngine) -> None:
        good = Request(id="b", prompt="hello", max_tokens=20)
        beside = asyncio.create_task(collect(local, good))
        asked = Request(id="a", prompt="R", max_tokens=4)
        if fault == "nan once":
            assert finished(await collect(local, asked, EncodedPrompt(ids=[49]))).usage.completion_tokens
        else:
            with pytest.raises(WorkerFault, match="NaN"):
                await collect(local, asked, EncodedPrompt(ids=[49]))
        assert text(await beside) == expected("hello", 20)
        assert (local.status().worker_restarts, local.status().live_rows) == (0, 0)

    run(tmp_path, body, fault=fault)


def test_what_the_worker_has_counts_not_what_was_planned(tmp_path: Path) -> None:
    async def body(local: LocalEngine) -> None:
        card, status = local.card, local.status()
        assert (card.max_model_len, card.slots) == (32, 1)
        assert (card.engine, card.engine_why) == (status.engine, status.engine_why)
        assert card.engine_why == "its layer 1 differs"
        with pytest.raises(PromptTooLong, match="32"):
            await local.encode(Request(id="a", prompt="x" * 32))
        whole = finished(await collect(local, Request(id="a", prompt="hello")))
        assert whole.usage.completion_tokens == 32 - 5
        small = EngineSettings(ctx=32, slots=1)
        assert (
            status.deployment_id == LocalEngine(letters_model(tmp_path), FACTS, small).status().deployment_id
        )
        # As long as it loads, and when it has died, the same is said.
        assert status.worker_pid
        os.kill(status.worker_pid, signal.SIGKILL)
        while local.status().state == "ok":
            await asyncio.sleep(0.01)
        assert (local.card.max_model_len, local.card.slots) == (32, 1)

    run(tmp_path, body, fault="fewer")


def test_a_seed_gives_the_same_text_alone_and_beside_others(shared: Callable[[Body], None]) -> None:
    async def body(local: LocalEngine) -> None:
        mine = Request(id="a", prompt="hello", max_tokens=20, sampling=Sampling(temperature=1.0, seed=42))
        alone = text(await collect(local, mine))
        noise = [Request(id=str(i), prompt="n", sampling=Sampling(temperature=2.0, seed=i)) for i in range(3)]
        together = await asyncio.gather(collect(local, mine), *(collect(local, each) for each in noise))
        assert text(together[0]) == alone

    shared(body)


@pytest.mark.slow
def test_what_is_compiled_after_ready_is_counted_over_all_workers(
    tmp_path: Path, compiled: list[int]
) -> None:
    async def body(local: LocalEngine) -> None:
        await collect(local, Request(id="a", prompt="calm", max_tokens=3))
        assert local.status().compiles_after_ready == 0
        letter = Letters().decode([DEADLY])
        for count in (1, 2):
            await collect(local, Request(id="b", prompt=letter, max_tokens=3))
            assert local.status().compiles_after_ready == count
            pid = local.status().worker_pid
            assert pid
            os.kill(pid, signal.SIGKILL)
            while local.status().state == "ok":
                await asyncio.sleep(0.01)
            assert local.status().compiles_after_ready == count
            await local.wait_ready()

    run(tmp_path, body, fault="compile")
    assert compiled.pop() == 2


def test_a_stop_string_ends_the_answer_amid_tokens_that_came_together(tmp_path: Path) -> None:
    """What came behind it in the same step is neither told nor counted."""
    letters = Letters()
    tokenizer = ModelTokenizer.load(letters_model(tmp_path).tokenizer)
    request, prompt = Request(id="a", prompt="x", stop=("c",)), EncodedPrompt(ids=[1])
    answer = _Answer(Dialect(tokenizer, None).reader(request, prompt), request, prompt, 0.0)
    events = answer.events([Row(1, letters.encode("abcde"), None, 0, 6, 4)])
    assert text(events) == "ab"
    end = finished(events)
    assert end.reason == "stop" and end.usage.completion_tokens == 3
    assert (end.timings.drafted, end.timings.accepted) == (6, 4)


def test_pieces_tell_the_tokens_so_far_when_that_is_asked(tmp_path: Path) -> None:
    letters = Letters()
    tokenizer = ModelTokenizer.load(letters_model(tmp_path).tokenizer)
    request, prompt = Request(id="a", prompt="x", counted=True), EncodedPrompt(ids=[1])
    answer = _Answer(Dialect(tokenizer, None).reader(request, prompt), request, prompt, 0.0)
    steps = [answer.events([Row(1, letters.encode(step), None, 0, 0, 0)]) for step in ("abc", "d")]
    assert steps == [[Text("abc", 3)], [Text("d", 4)]]
