"""Makes the pictures of docs/ui.md: ``python -m tests.ui.screenshots``.

Needs Chromium; pngquant, where there is one, makes them small.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

from mashbox.engine.events import Thinking
from mashbox.engine.request import Conversation, Request
from mashbox.ui import build
from tests.server.live import live
from tests.server.scripted import Script, ScriptedEngine
from tests.ui.browser import Chat, find_chromium, launch

FOLDER = Path(__file__).parent.parent.parent / "docs" / "images"

SHOTS: dict[str, dict[str, Any]] = {
    "ui-light": {"color_scheme": "light", "viewport": {"width": 1100, "height": 760}},
    "ui-dark": {"color_scheme": "dark", "viewport": {"width": 1100, "height": 760}},
    "ui-phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 760},
        "is_mobile": True,
        "has_touch": True,
    },
}

ANSWER = """A hash table keeps each entry at a place that is computed from its key:

```python
def place(key: str, size: int) -> int:
    return hash(key) % size
```

| operation | average | worst |
|---|---|---|
| look up | $O(1)$ | $O(n)$ |
| insert | $O(1)$ | $O(n)$ |

With $n$ entries in $m$ places the load is $\\alpha = n / m$; tables grow when it nears 1.
"""


def script(request: Request) -> Script:
    assert isinstance(request.prompt, Conversation)
    if "hash" in request.prompt.messages[-1]["content"]:
        words = [f"{word} " for word in ANSWER.split(" ")]
        return [Thinking("They want the idea, a line of code and the costs."), 1.2, *words]
    return ["Of course."]


def take(chat: Chat, path: Path) -> None:
    for text in ("Plan a week of dinners", "Decline an invitation politely"):
        chat.box.fill(text)
        chat.send_button.click()
        expect(chat.answers).to_have_text("Of course.")
        chat.page.get_by_role("button", name="New conversation", exact=True).first.click()
    chat.box.fill("How does a hash table work?")
    chat.send_button.click()
    expect(chat.answers.last).to_contain_text("nears 1")
    expect(chat.page.locator("math").first).to_be_attached()
    chat.page.wait_for_timeout(800)
    chat.page.screenshot(path=path)


def main() -> str | None:
    """Take all of them; what is missing otherwise."""
    if missing := build.build_page():
        return missing
    chromium = find_chromium()
    if chromium is None:
        return "There is no Chromium here."
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright, chromium)
        for name, options in SHOTS.items():
            path = FOLDER / f"{name}.png"
            with live(ScriptedEngine(script), ui=True) as server, browser.new_context(**options) as context:
                page = context.new_page()
                page.goto(server.url)
                take(Chat(page), path)
            if shutil.which("pngquant"):
                subprocess.run(["pngquant", "--force", "--output", path, "64", path], check=True)
        browser.close()
    return None


if __name__ == "__main__":
    sys.exit(main())
