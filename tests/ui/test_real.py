"""The page with the real starter: a real answer, and a worker that is really killed in the middle of one."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from mashbox.engine.local import LocalEngine
from mashbox.engine.settings import EngineSettings
from mashbox.facts import read_facts
from mashbox.store import find
from tests.conftest import home
from tests.server.live import Live, live
from tests.ui.conftest import Open

pytestmark = [pytest.mark.slow, pytest.mark.real]


@pytest.fixture(scope="module")
def server(model_home: Path, bundle: None) -> Iterator[Live]:
    with home(model_home):
        model = find("smollm2-135m")
    assert model is not None
    facts = read_facts(model.weights, model.format)
    engine = LocalEngine(model, facts, EngineSettings(ctx=2048, slots=2))
    with live(engine, ui=True) as running:
        yield running


def test_an_answer_and_a_killed_worker(server: Live, show: Open) -> None:
    chat = show(server)
    # Asked while the model loads; sent when it is ready.
    chat.send("Name three planets.")
    expect(chat.answers).to_contain_text("Earth", timeout=120_000)
    expect(chat.stop).to_have_count(0, timeout=120_000)
    expect(chat.page.get_by_test_id("figures")).to_contain_text("tokens/s")
    chat.send("Write a long story about the sea.")
    expect(chat.answers).to_have_count(2, timeout=120_000)
    pid = server.service.engine.status().worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    expect(chat.turns.last.get_by_role("alert")).to_be_visible()
    expect(chat.page.locator('[data-kind="restart"]')).to_be_visible()
    begun = chat.answers.last.inner_text()
    assert begun
    chat.of(chat.turns.last, "Retry").first.click()
    expect(chat.banner).to_have_count(0, timeout=120_000)
    expect(chat.answers.last).to_contain_text(begun.split("\n")[0][:20], timeout=120_000)
    chat.stop.click()
    expect(chat.turns.last).to_contain_text("Stopped.")
