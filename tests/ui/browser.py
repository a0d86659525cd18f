"""The browser, the page in it, and a watch over what it asks of the network."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Playwright, expect

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A name that is no address of this machine can't be looked up, let alone reached.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE ::1",
]

NOTED = "mashbox-csp: "
WATCH = f"""
addEventListener("securitypolicyviolation", (event) => {{
  console.error("{NOTED}" + event.violatedDirective + " " + event.blockedURI + " " + event.sample);
}});
"""

EXPECTED = re.compile(r"Failed to load resource: (the server responded with a status of |net::ERR_)")
"""What the browser itself says of a refused request or a lost connection."""

expect.set_options(timeout=60_000)


def find_chromium() -> str | None:
    """The path of a Chromium; None when there is none. ``MASHBOX_TEST_CHROMIUM`` names one."""
    names = (os.environ.get("MASHBOX_TEST_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


def launch(playwright: Playwright, path: str) -> Browser:
    """A browser with a profile of its own that is thrown away with it."""
    return playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)


class Watched:
    """What one browser context did: addresses asked for, and what went wrong in its pages."""

    def __init__(self, context: BrowserContext) -> None:
        self.requests: list[str] = []
        self.problems: list[str] = []
        context.add_init_script(WATCH)
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("console", self._console)
        context.on("weberror", lambda error: self.problems.append(str(error.error)))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not EXPECTED.match(message.text):
            self.problems.append(message.text)

    def check(self, *origins: str) -> None:
        """Nothing went wrong, and nothing was asked of another origin."""
        assert self.problems == []
        foreign = [url for url in self.requests if _origin(url) not in origins]
        assert foreign == []
        assert self.requests


def _origin(url: str) -> str:
    parts = urlsplit(url.removeprefix("blob:"))
    return f"{parts.scheme}://{parts.netloc}"


@contextmanager
def watched(browser: Browser, *origins: str, **options: Any) -> Iterator[BrowserContext]:
    """A fresh context whose pages may ask ``origins`` only, under a strict policy, without an error."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
    context.set_default_timeout(60_000)
    watch = Watched(context)
    try:
        yield context
        watch.check(*origins)
    finally:
        context.close()


class Chat:
    """The page as its readers know it: by roles and names."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.messages = page.get_by_role("log", name="Messages", exact=True)
        self.box = page.get_by_role("textbox", name="Message", exact=True)
        self.stop = page.get_by_role("button", name="Stop", exact=True)
        self.send_button = page.get_by_role("button", name="Send", exact=True)
        self.answers = page.get_by_test_id("answer")
        self.asked = page.get_by_role("article", name="You", exact=True)
        self.turns = page.get_by_role("article", name="Assistant", exact=True)
        self.conversations = page.get_by_role("navigation", name="Conversations").get_by_role("link")
        self.banner = page.get_by_test_id("banner")

    def settled(self, timeout: float | None = None) -> None:
        """Wait until the page is drawn with what is kept, and no answer or conversation is on its way."""
        expect(self.messages).to_have_attribute("aria-busy", "false", timeout=timeout)

    def reload(self) -> None:
        """Load the page again, with what it keeps."""
        self.page.reload()
        self.settled()

    def embellished(self) -> None:
        """Wait for what comes after the text of an answer with both: set formulas and coloured code."""
        self.settled()
        expect(self.answers.last.locator("math").first).to_be_attached()
        expect(self.answers.last.locator("code [class^=hl-]").first).to_be_attached()

    def send(self, text: str) -> None:
        """Type a message and send it with Enter."""
        self.box.fill(text)
        self.box.press("Enter")

    def ask(self, text: str, answer: str) -> None:
        """Send, and wait for the end of an answer that contains this text."""
        self.settled()
        count = self.turns.count()
        self.send(text)
        expect(self.turns).to_have_count(count + 1)
        expect(self.turns.last.get_by_test_id("answer")).to_contain_text(answer)
        self.settled()

    def begin(self) -> None:
        """Begin a new conversation."""
        self.settled()
        self.page.get_by_role("button", name="New conversation", exact=True).first.click()
        expect(self.turns).to_have_count(0)

    def of(self, turn: Locator, name: str) -> Locator:
        """A button of a turn. They show when the pointer is over it."""
        turn.hover()
        return turn.get_by_role("button", name=name, exact=True)

    def menu(self, title: str, item: str) -> None:
        """Choose from the menu of a conversation in the side bar."""
        self.page.get_by_role("link", name=title, exact=True).hover()
        self.page.get_by_role("button", name=f"Actions for {title}", exact=True).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()
