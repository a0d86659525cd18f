"""For people: keyboard, screen readers, phones, colours, and what is loaded before the first look."""

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from mashbox.engine.engine import EngineStatus
from mashbox.engine.events import Thinking
from mashbox.ui import build
from tests.server.live import Live, eventually, live
from tests.server.scripted import Hold, ScriptedEngine
from tests.ui.browser import Chat
from tests.ui.conftest import Open

pytestmark = pytest.mark.slow

PHONE: dict[str, Any] = {"viewport": {"width": 375, "height": 667}, "is_mobile": True, "has_touch": True}

RICH = """# A heading

A paragraph with **bold**, `code`, a [link](http://example.com) and $x^2$.

| fruit | price |
|---|---:|
| apple | 1 |

> A quotation.

- [ ] a task

```python
def answer() -> int:
    return 42  # the answer
```
"""


AT_REST = """async () => {
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  const ends = document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime < Infinity);
  await Promise.allSettled(ends.map((one) => one.finished));
}"""


def violations(chat: Chat) -> list[str]:
    """What axe-core finds wrong, in words."""
    source = (build.UI / "node_modules" / "axe-core" / "axe.min.js").read_text()
    # What moves would be caught half faded in.
    chat.page.emulate_media(reduced_motion="reduce")
    chat.page.evaluate(AT_REST)
    chat.page.evaluate(source)
    found = chat.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{problem['id']}: {node['html'][:200]} {node['failureSummary']}"
        for problem in found["violations"]
        for node in problem["nodes"]
    ]


@pytest.fixture(scope="module", autouse=True)
def axe(bundle: None) -> None:
    """axe-core is there."""
    build.install(development=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
def test_axe_finds_nothing(
    engine: ScriptedEngine, server: Live, show: Open, scheme: str, options: dict[str, Any]
) -> None:
    engine.script = [Thinking("Hm."), RICH]
    chat = show(server, color_scheme=scheme, **options)
    assert violations(chat) == []
    chat.box.fill("Show me all.")
    chat.send_button.click()
    expect(chat.answers.last).to_contain_text("42")
    chat.embellished()
    assert violations(chat) == []
    chat.page.get_by_role("button", name="Settings", exact=True).click()
    expect(chat.page.get_by_role("dialog", name="Settings")).to_be_visible()
    assert violations(chat) == []
    chat.page.keyboard.press("Escape")
    if options:
        chat.page.get_by_role("button", name="Show conversations").click()
        expect(chat.conversations).to_have_count(1)
        assert violations(chat) == []


def test_axe_finds_nothing_in_what_interrupts(engine: ScriptedEngine, bundle: None, show: Open) -> None:
    with live(engine, ui=True, api_keys=("k",)) as server:
        engine.become(EngineStatus(state="loading"))
        chat = show(server)
        expect(chat.page.get_by_role("dialog", name="Key needed")).to_be_visible()
        assert violations(chat) == []
        chat.page.keyboard.press("Escape")
        expect(chat.banner).to_be_visible()
        assert violations(chat) == []


def test_a_phone(engine: ScriptedEngine, server: Live, show: Open) -> None:
    engine.script = [RICH, "x" * 500, " the end"]
    chat = show(server, **PHONE)
    fits = "document.scrollingElement.scrollWidth <= innerWidth"
    assert chat.page.evaluate(fits)
    expect(chat.page.get_by_role("navigation", name="Conversations")).to_have_count(0)
    chat.box.tap()
    chat.box.fill("Show me all.")
    chat.send_button.tap()
    expect(chat.answers.last).to_contain_text("the end")
    chat.embellished()
    assert chat.page.evaluate(fits)
    for button in (chat.send_button, chat.page.get_by_role("button", name="Settings", exact=True)):
        box = button.bounding_box()
        assert box is not None
        # WCAG 2.2, 2.5.8
        assert min(box["width"], box["height"]) >= 24
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 375
        assert box["y"] + box["height"] <= 667
    chat.page.get_by_role("button", name="Show conversations").tap()
    chat.conversations.first.tap()
    expect(chat.page.get_by_role("navigation", name="Conversations")).to_have_count(0)


def test_keys_alone_will_do(engine: ScriptedEngine, chat: Chat) -> None:
    keys = chat.page.keyboard
    hold = Hold()
    engine.script = ["As far as this", hold]
    expect(chat.box).to_be_focused()
    keys.type("first line")
    keys.press("Shift+Enter")
    keys.type("second line")
    expect(chat.box).to_have_value("first line\nsecond line")
    keys.press("Enter")
    expect(chat.answers).to_have_text("As far as this")
    expect(chat.box).to_be_focused()
    keys.press("Escape")
    expect(chat.turns).to_contain_text("Stopped.")
    eventually(lambda: engine.running == 0)
    engine.script = ["Better."]
    keys.press("ArrowUp")
    editor = chat.page.get_by_role("textbox", name="Edit message")
    expect(editor).to_be_focused()
    keys.press("Escape")
    expect(editor).to_have_count(0)
    expect(chat.box).to_be_focused()
    keys.press("ArrowUp")
    expect(editor).to_be_focused()
    keys.press("Control+A")
    keys.type("third line")
    keys.press("Enter")
    expect(chat.answers).to_have_text("Better.")
    keys.press("Control+K")
    search = chat.page.get_by_role("searchbox", name="Search conversations")
    expect(search).to_be_focused()
    keys.type("third")
    expect(chat.conversations).to_have_count(1)
    reached(chat, "link")
    keys.press("Enter")
    expect(chat.answers).to_have_text("Better.")


def reached(chat: Chat, role: str) -> None:
    """Press Tab until the focus is on an element of this role; every stop on the way can be seen."""
    for _ in range(12):
        chat.page.keyboard.press("Tab")
        tag, seen = chat.page.evaluate(
            """() => {
              const element = document.activeElement, style = getComputedStyle(element);
              const seen = style.outlineStyle !== "none" || style.boxShadow !== "none";
              return [element.localName, element.matches(":focus-visible") && seen];
            }"""
        )
        assert seen, chat.page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        if tag == {"link": "a"}.get(role, role):
            return
    raise AssertionError(f"no {role} was reached")


def test_every_button_can_be_reached_with_tab(engine: ScriptedEngine, chat: Chat) -> None:
    chat.ask("Hi", "Hello world")
    focused = "((one) => one.getAttribute('aria-label') ?? one.textContent.trim())(document.activeElement)"
    names = set()
    for _ in range(40):
        chat.page.keyboard.press("Tab")
        names.add(chat.page.evaluate(focused))
    wanted = {"New conversation", "Search conversations", "Settings", "Message", "Copy", "Edit", "Retry"}
    assert wanted <= names


def test_a_screen_reader_hears_of_an_answer_once(engine: ScriptedEngine, chat: Chat) -> None:
    hold = Hold()
    engine.script = ["one ", "two ", hold, "three"]
    chat.send("Count.")
    expect(chat.answers).to_contain_text("two")
    log = chat.page.get_by_role("log", name="Messages")
    expect(log).to_have_attribute("aria-busy", "true")
    expect(log).to_have_attribute("aria-live", "off")
    hold.release()
    expect(log).to_have_attribute("aria-busy", "false")
    expect(chat.page.locator("[aria-live=polite]", has_text="The answer is complete.")).to_have_count(1)


def test_reduced_motion(server: Live, show: Open) -> None:
    chat = show(server, reduced_motion="reduce")
    running = chat.page.evaluate(
        "document.getAnimations().filter((one) => one.effect.getComputedTiming().duration > 10).length"
    )
    assert running == 0


def test_the_first_look_is_small(server: Live, show: Open) -> None:
    chat = show(server)
    expect(chat.box).to_be_visible()
    loaded = chat.page.evaluate(
        """() => [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")]
             .filter(({ name }) => !/\\/(v1|health)/.test(new URL(name).pathname))
             .map(({ name, encodedBodySize }) => [name, encodedBodySize])"""
    )
    assert all(size > 0 for _, size in loaded), loaded
    assert sum(size for _, size in loaded) < 120_000, loaded


def test_the_choice_of_colours_is_kept(server: Live, show: Open) -> None:
    chat = show(server, color_scheme="light")
    shade = "getComputedStyle(document.documentElement).backgroundColor"
    light = chat.page.evaluate(shade)
    chat.page.get_by_role("button", name="Settings", exact=True).click()
    appearance = chat.page.get_by_role("dialog").get_by_label(re.compile("^(Appearance|Dark)$")).first
    if appearance.evaluate("element => element.localName") == "select":
        appearance.select_option(label="Dark")
    else:
        chat.page.get_by_role("radio", name="Dark").check()
    page = chat.page.locator("html")
    expect(page).not_to_have_css("background-color", light)
    chat.reload()
    expect(page).not_to_have_css("background-color", light)
