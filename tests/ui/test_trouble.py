"""What stands between a message and its answer: keys, a full line, a dead worker, a broken tunnel."""

import re

import msgspec
import pytest
from playwright.sync_api import expect

from mashbox.engine.engine import EngineStatus
from mashbox.engine.request import EncodedPrompt, Request
from mashbox.errors import PromptTooLong, WorkerFault
from tests.patience import PATIENCE
from tests.server.live import Live, eventually, live
from tests.server.scripted import CARD, Hold, ScriptedEngine
from tests.ui.browser import Chat
from tests.ui.conftest import Open
from tests.ui.tunnel import Tunnel

pytestmark = pytest.mark.slow

KEY = "secret-one"
LOADING = EngineStatus(state="loading", stage="reading weights", progress=0.5)
RESTARTING = EngineStatus(state="loading", stage="reading weights", progress=0.25, worker_restarts=1)
ONE_SLOT = msgspec.structs.replace(CARD, slots=1)
ASK = {"messages": [{"role": "user", "content": "x"}]}


def enter_key(chat: Chat, key: str, *, keep: bool = False) -> None:
    dialog = chat.page.get_by_role("dialog", name="Key needed")
    dialog.get_by_label("Key", exact=True).fill(key)
    if keep:
        dialog.get_by_role("checkbox", name=re.compile("Keep it")).check()
    dialog.get_by_role("button", name="Use key").click()


def test_a_key_is_asked_for_checked_and_kept_for_the_session(bundle: None, show: Open) -> None:
    engine = ScriptedEngine()
    with live(engine, ui=True, api_keys=(KEY,)) as server:
        chat = show(server)
        dialog = chat.page.get_by_role("dialog", name="Key needed")
        expect(dialog).to_be_visible()
        enter_key(chat, "wrong")
        expect(dialog).to_contain_text("does not take this key")
        enter_key(chat, KEY)
        expect(dialog).to_have_count(0)
        chat.ask("Hi", "Hello world")
        chat.reload()
        chat.ask("Again", "Hello world")
        assert KEY not in chat.page.evaluate("JSON.stringify(localStorage)")
        other = Chat(chat.page.context.new_page())
        other.page.goto(server.url)
        enter_key(other, KEY, keep=True)
        expect(other.page.get_by_role("dialog")).to_have_count(0)
        third = Chat(chat.page.context.new_page())
        third.page.goto(server.url)
        third.ask("Third", "Hello world")
    assert len({request.tenant for request in engine.requests}) == 1


def test_a_message_waits_for_its_key(bundle: None, show: Open) -> None:
    with live(ScriptedEngine(), ui=True, api_keys=(KEY,)) as server:
        chat = show(server)
        expect(chat.page.get_by_role("dialog", name="Key needed")).to_be_visible()
        chat.page.keyboard.press("Escape")
        expect(chat.page.get_by_role("dialog")).to_have_count(0)
        chat.send("Hi")
        enter_key(chat, KEY)
        expect(chat.answers).to_have_text("Hello world")


def test_a_full_line_counts_down_and_is_tried_again(bundle: None, show: Open) -> None:
    hold = Hold()
    engine = ScriptedEngine([hold, "done"], card=ONE_SLOT)
    with live(engine, ui=True, waiting_per_tenant=0) as server, server.connect() as sock:
        server.post_raw("/v1/chat/completions", ASK, sock)
        assert hold.reached.wait(PATIENCE)
        chat = show(server)
        chat.send("And me?")
        banner = chat.page.locator('[data-testid=banner][data-kind="full"]')
        expect(banner).to_contain_text(re.compile(r"Trying again in \d+ s"))
        engine.script = ["Now you."]
        hold.release()
        expect(chat.answers).to_have_text("Now you.", timeout=180_000)
        expect(banner).to_have_count(0)


def test_a_full_line_can_be_tried_at_once_or_left(bundle: None, show: Open) -> None:
    hold = Hold()
    engine = ScriptedEngine([hold, "done"], card=ONE_SLOT)
    with live(engine, ui=True, waiting_per_tenant=0) as server, server.connect() as sock:
        server.post_raw("/v1/chat/completions", ASK, sock)
        assert hold.reached.wait(PATIENCE)
        chat = show(server)
        chat.send("And me?")
        chat.banner.get_by_role("button", name="Cancel").click()
        expect(chat.turns).to_contain_text("Stopped.")
        chat.of(chat.turns.first, "Retry").click()
        expect(chat.banner).to_be_visible()
        engine.script = ["Now you."]
        hold.release()
        eventually(lambda: engine.running == 0)
        chat.banner.get_by_role("button", name="Try now").click()
        expect(chat.answers).to_have_text("Now you.")


def test_a_worker_that_dies_in_the_middle(engine: ScriptedEngine, chat: Chat) -> None:
    hold = Hold()
    engine.script = ["Half of it", hold, WorkerFault("The worker ended.", "Ask again.")]
    chat.send("Tell me all.")
    expect(chat.answers).to_have_text("Half of it")
    engine.become(RESTARTING)
    hold.release()
    expect(chat.turns.get_by_role("alert")).to_contain_text("The worker ended.")
    expect(chat.page.locator('[data-kind="restart"]')).to_contain_text("reading weights, 25 %")
    expect(chat.answers).to_have_text("Half of it")
    engine.script = ["All of it"]
    chat.of(chat.turns.last, "Retry").first.click()
    expect(chat.page.locator('[data-kind="restart"]')).to_contain_text("sent when it is ready")
    engine.become(None)
    expect(chat.answers).to_have_text("All of it")
    expect(chat.banner).to_have_count(0)


def test_the_page_is_there_while_the_model_loads(engine: ScriptedEngine, server: Live, show: Open) -> None:
    engine.become(LOADING)
    chat = show(server)
    loading = chat.page.locator('[data-kind="loading"]')
    expect(loading).to_contain_text("The model is loading")
    expect(loading).to_contain_text("reading weights, 50 %")
    expect(loading.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    chat.send("Early bird")
    engine.become(None)
    expect(chat.answers).to_have_text("Hello world")
    expect(chat.banner).to_have_count(0)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_tunnel_on_another_port(engine: ScriptedEngine, server: Live, show: Open, host: str) -> None:
    listen = "::1" if "::" in host else "127.0.0.1"
    with Tunnel(server.port, listen) as tunnel:
        assert tunnel.port != server.port
        chat = show(server, at=f"http://{host}:{tunnel.port}")
        chat.ask("Through the tunnel?", "Hello world")
        # What is asked through it is asked of it alone: the watch holds every request to this origin.
        chat.reload()
        chat.ask("Still?", "Hello world")


def test_a_tunnel_that_breaks_and_comes_back(engine: ScriptedEngine, server: Live, show: Open) -> None:
    with Tunnel(server.port) as tunnel:
        chat = show(server, at=f"http://127.0.0.1:{tunnel.port}")
        chat.ask("One", "Hello world")
        hold = Hold()
        engine.script = ["Half of it", hold]
        chat.send("Two")
        expect(chat.answers.last).to_have_text("Half of it")
        tunnel.down()
        expect(chat.turns.last.get_by_role("alert")).to_be_visible()
        expect(chat.answers.last).to_have_text("Half of it")
        offline = chat.page.locator('[data-kind="offline"]')
        expect(offline).to_contain_text("No connection")
        eventually(lambda: engine.running == 0)
        chat.box.fill("a draft")
        engine.script = ["Back again"]
        chat.of(chat.turns.last, "Retry").first.click()
        tunnel.up()
        expect(chat.answers.last).to_have_text("Back again", timeout=120_000)
        expect(offline).to_have_count(0)
        expect(chat.box).to_have_value("a draft")


def test_a_reload_in_the_middle_keeps_what_came(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = ["Half of it", Hold()]
    chat.send("Tell me all.")
    expect(chat.answers).to_have_text("Half of it")
    chat.reload()
    expect(chat.asked).to_contain_text("Tell me all.")
    expect(chat.answers).to_have_text("Half of it")
    expect(chat.turns).to_contain_text("not finished")
    eventually(lambda: engine.running == 0)
    engine.script = ["All of it"]
    chat.of(chat.turns.last, "Retry").first.click()
    expect(chat.answers.last).to_have_text("All of it")


def test_a_prompt_that_is_too_long_says_so(engine: ScriptedEngine, chat: Chat) -> None:
    def too_long(_: Request) -> EncodedPrompt:
        raise PromptTooLong(5000, 4096)

    engine.encoding = too_long
    chat.send("much too long")
    expect(chat.turns.get_by_role("alert")).to_contain_text("The prompt has 5000 tokens")
