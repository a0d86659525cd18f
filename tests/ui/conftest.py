"""A browser, and the live server with the page that is built from the sources as they are."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, sync_playwright

from mashbox.ui import build
from tests.server.live import Live, eventually, live
from tests.server.scripted import ScriptedEngine
from tests.ui.browser import Chat, find_chromium, launch, watched

Open = Callable[..., Chat]
"""``open(server, path="/", at=url, **options of the browser context)`` gives the page of a server."""


@pytest.fixture(scope="session")
def bundle() -> None:
    """The page is built."""
    with FileLock(build.UI / "build.lock"):
        missing = build.build_page()
    assert missing is None, missing


@pytest.fixture(scope="module")
def browser(bundle: None) -> Iterator[Browser]:
    """Chromium. Playwright runs an event loop in this thread until it is stopped, at the end of a module."""
    path = find_chromium()
    if path is None:
        pytest.skip("NO BROWSER: install Chromium (Debian, Ubuntu: apt install chromium) to test the page")
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared_engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture(scope="module")
def shared_server(shared_engine: ScriptedEngine, bundle: None) -> Iterator[Live]:
    with live(shared_engine, ui=True) as running:
        yield running


@pytest.fixture
def engine(shared_engine: ScriptedEngine) -> ScriptedEngine:
    """The scripted engine of a module's one server, as if it were new: idle, and asked nothing."""
    eventually(lambda: shared_engine.running == 0)
    vars(shared_engine).update(vars(ScriptedEngine()))
    return shared_engine


@pytest.fixture
def server(shared_server: Live, engine: ScriptedEngine) -> Live:
    """The server of the scripted engine."""
    return shared_server


@pytest.fixture
def show(browser: Browser) -> Iterator[Open]:
    """Opens pages. At the end each is held to its origin, its policy, and to no error."""
    with ExitStack() as stack:

        def open(server: Live, path: str = "/", at: str | None = None, **options: Any) -> Chat:
            url = at or server.url
            context = stack.enter_context(watched(browser, url, **options))
            page = context.new_page()
            page.goto(url + path)
            chat = Chat(page)
            chat.settled()
            return chat

        yield open


@pytest.fixture
def chat(server: Live, show: Open) -> Chat:
    """The page of the scripted engine's server."""
    return show(server)
