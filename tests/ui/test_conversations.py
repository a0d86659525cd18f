"""Messages and conversations in a real browser, against the live server with a scripted engine."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from mashbox.engine.events import Thinking, ToolCall
from mashbox.engine.request import Conversation, Request
from tests.server.live import Live, eventually
from tests.server.scripted import Hold, Script, ScriptedEngine, finished
from tests.ui.browser import Chat
from tests.ui.conftest import Open

pytestmark = pytest.mark.slow


def echo(request: Request) -> Script:
    """Answers with the last message, in capitals."""
    return [said(request)[-1].upper()]


def said(request: Request) -> list[str]:
    """What the messages of a request say, in order."""
    assert isinstance(request.prompt, Conversation)
    return [message["content"] for message in request.prompt.messages]


def test_an_answer_streams_and_its_figures_follow(engine: ScriptedEngine, chat: Chat) -> None:
    middle = Hold()
    engine.script = ["Hello", middle, " world"]
    chat.send("Say hello.")
    expect(chat.answers).to_have_text("Hello")
    expect(chat.stop).to_be_visible()
    middle.release()
    expect(chat.answers).to_have_text("Hello world")
    expect(chat.stop).to_have_count(0)
    figures = chat.page.get_by_test_id("figures")
    expect(figures).to_contain_text("2 tokens")
    expect(figures).to_contain_text("2 of 5 prompt tokens cached")
    expect(figures).to_contain_text("tokens/s")
    expect(chat.page.get_by_role("progressbar", name="Context used")).to_have_attribute("value", "7")
    expect(chat.page).to_have_title("Say hello. · mashbox")


def test_stop_frees_the_slot_and_keeps_what_came(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = ["As far as this", Hold(), " never"]
    chat.send("Go on and on.")
    expect(chat.answers).to_have_text("As far as this")
    chat.stop.click()
    expect(chat.turns).to_contain_text("Stopped.")
    eventually(lambda: engine.cancelled == 1 and engine.running == 0)
    engine.script = ["Again."]
    chat.ask("And now?", "Again.")
    expect(chat.answers.first).to_have_text("As far as this")


def test_the_view_follows_the_answer_and_only_until_the_reader_goes_up(
    engine: ScriptedEngine, chat: Chat
) -> None:
    lines = [f"line {number}\n\n" for number in range(60)]
    to_end = chat.page.get_by_role("button", name="Go to the end")
    engine.script = [*lines, "the end"]
    chat.ask("Tell me all.", "the end")
    expect(chat.answers.get_by_text("the end")).to_be_in_viewport()
    chat.page.mouse.move(700, 300)
    chat.page.mouse.wheel(0, -1000)
    expect(to_end).to_be_visible()
    half = Hold()
    engine.script = ["the beginning\n\n", *lines, half, "more\n\n" * 30, "the last word"]
    chat.send("And again.")
    expect(chat.answers.last.get_by_text("line 59")).to_be_in_viewport()
    chat.page.mouse.wheel(0, -1000)
    expect(to_end).to_be_visible()
    half.release()
    expect(chat.stop).to_have_count(0)
    expect(chat.answers.last.get_by_text("the last word")).not_to_be_in_viewport()
    to_end.click()
    expect(chat.answers.last.get_by_text("the last word")).to_be_in_viewport()


def test_an_answer_that_ended_early_goes_on_in_its_place(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = ["Half of", finished(5, 2, reason="length")]
    chat.send("Tell me all.")
    go_on = chat.turns.get_by_role("button", name="Continue", exact=True)
    expect(chat.turns).to_contain_text("reached its length limit")
    engine.script = [" it, and", Hold()]
    go_on.click()
    expect(chat.answers).to_have_text("Half of it, and")
    expect(chat.turns).not_to_contain_text("length limit")
    chat.stop.click()
    engine.script = [" the rest.", finished(9, 3)]
    go_on.click()
    expect(chat.answers).to_have_text("Half of it, and the rest.")
    expect(go_on).to_have_count(0)
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, Conversation) and prompt.continued
    assert said(engine.requests[-1]) == ["Tell me all.", "Half of it, and"]
    # 2, 1 and 3.
    expect(chat.page.get_by_test_id("figures")).to_contain_text("6 tokens")


def test_an_answer_that_fills_the_context_says_so(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = ["All there is room for", finished(4000, 96, reason="length")]
    chat.send("Tell me all.")
    expect(chat.turns).to_contain_text("context is full")
    expect(chat.turns.get_by_role("button", name="Continue", exact=True)).to_have_count(0)


def test_an_edit_makes_a_branch(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = echo
    chat.ask("one", "ONE")
    chat.ask("two", "TWO")
    chat.of(chat.asked.first, "Edit").click()
    chat.page.get_by_role("textbox", name="Edit message").fill("uno")
    chat.page.get_by_role("textbox", name="Edit message").press("Enter")
    expect(chat.answers).to_have_text(["UNO"])
    assert said(engine.requests[-1]) == ["uno"]
    branch = chat.asked.first.get_by_test_id("branch")
    expect(branch).to_have_text("2/2")
    chat.of(chat.asked.first, "Previous version").click()
    expect(chat.answers).to_have_text(["ONE", "TWO"])
    chat.ask("three", "THREE")
    assert said(engine.requests[-1]) == ["one", "ONE", "two", "TWO", "three"]
    chat.of(chat.asked.first, "Next version").click()
    expect(chat.answers).to_have_text(["UNO"])


def test_retry_keeps_the_answer_before(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = ["heads"]
    chat.ask("Toss a coin.", "heads")
    engine.script = ["tails"]
    chat.of(chat.turns.first, "Retry").click()
    expect(chat.answers).to_have_text(["tails"])
    expect(chat.turns.first.get_by_test_id("branch")).to_have_text("2/2")
    chat.of(chat.turns.first, "Previous version").click()
    expect(chat.answers).to_have_text(["heads"])


def test_a_reload_keeps_conversations_branches_and_the_draft(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = echo
    chat.ask("first", "FIRST")
    chat.begin()
    chat.ask("second", "SECOND")
    chat.of(chat.asked.first, "Edit").click()
    chat.page.get_by_role("textbox", name="Edit message").fill("zweite")
    chat.page.get_by_role("button", name="Send", exact=True).first.click()
    expect(chat.answers).to_have_text(["ZWEITE"])
    expect(chat.stop).to_have_count(0)
    chat.box.fill("not yet sent")
    chat.reload()
    expect(chat.answers).to_have_text(["ZWEITE"])
    expect(chat.asked.first.get_by_test_id("branch")).to_have_text("2/2")
    expect(chat.box).to_have_value("not yet sent")
    expect(chat.conversations).to_have_text(["zweite", "first"])
    chat.conversations.last.click()
    expect(chat.answers).to_have_text(["FIRST"])
    chat.page.go_back()
    expect(chat.answers).to_have_text(["ZWEITE"])


def test_search_rename_delete_and_undo(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = echo
    for text in ("apples and pears", "a quick brown fox", "bread and butter"):
        chat.ask(text, text.upper())
        chat.begin()
    search = chat.page.get_by_role("searchbox", name="Search conversations")
    search.fill("quick FOX")
    expect(chat.conversations).to_have_count(1)
    expect(chat.conversations).to_contain_text("a quick brown fox")
    search.fill("")
    expect(chat.conversations).to_have_count(3)
    chat.menu("bread and butter", "Rename")
    title = chat.page.get_by_role("textbox", name="Title")
    title.fill("Breakfast")
    title.press("Enter")
    expect(chat.conversations.first).to_have_text("Breakfast")
    chat.menu("Breakfast", "Delete")
    expect(chat.conversations).to_have_count(2)
    chat.page.get_by_role("button", name="Undo").click()
    expect(chat.conversations).to_have_count(3)
    chat.menu("apples and pears", "Delete")
    chat.reload()
    expect(chat.conversations).to_have_count(2)


@pytest.mark.parametrize("kind", ["JSON", "Markdown"])
def test_what_is_exported_can_be_imported(
    engine: ScriptedEngine, server: Live, show: Open, tmp_path: Path, kind: str
) -> None:
    engine.script = ["A *short* answer,\n\n# with a heading\n"]
    chat = show(server)
    chat.ask("What is it?", "with a heading")
    with chat.page.expect_download() as download:
        chat.menu("What is it?", f"Export as {kind}")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    if kind == "JSON":
        json.loads(path.read_text())
    other = show(server)
    other.page.get_by_role("button", name="Settings", exact=True).click()
    other.page.get_by_label("Import").set_input_files(path)
    expect(other.page.get_by_text("1 conversation imported.")).to_be_visible()
    other.page.keyboard.press("Escape")
    expect(other.conversations).to_have_text(["What is it?"])
    expect(other.answers).to_contain_text("with a heading")


def test_settings_reach_the_server(engine: ScriptedEngine, chat: Chat) -> None:
    chat.page.get_by_role("button", name="Settings", exact=True).click()
    dialog = chat.page.get_by_role("dialog", name="Settings")
    dialog.get_by_label("System prompt").fill("Be brief.")
    dialog.get_by_label("Temperature").fill("0.5")
    dialog.get_by_label("Top-p").fill("0.9")
    dialog.get_by_label("Most tokens of an answer").fill("7")
    chat.page.keyboard.press("Escape")
    chat.page.get_by_role("button", name="Think first").click()
    chat.ask("Hello", "Hello world")
    request = engine.requests[-1]
    assert said(request) == ["Be brief.", "Hello"]
    assert (request.sampling.temperature, request.sampling.top_p, request.max_tokens) == (0.5, 0.9, 7)
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.thinking
    chat.reload()
    chat.page.get_by_role("button", name="Settings", exact=True).click()
    expect(dialog.get_by_label("System prompt")).to_have_value("Be brief.")


def test_thoughts_are_folded_and_calls_are_shown(engine: ScriptedEngine, chat: Chat) -> None:
    engine.script = [
        Thinking("Where is it warm?"),
        "I look. ",
        ToolCall("call_1", "weather", '{"at": "Rome"}'),
    ]
    chat.ask("Is it warm?", "I look.")
    thoughts = chat.turns.get_by_text("Where is it warm?")
    expect(thoughts).to_be_hidden()
    chat.turns.get_by_text("Thought").first.click()
    expect(thoughts).to_be_visible()
    expect(chat.turns).to_contain_text("weather")


def test_text_files_join_the_message_and_pictures_do_not(
    engine: ScriptedEngine, chat: Chat, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("buy milk")
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with chat.page.expect_file_chooser() as chooser:
        chat.page.get_by_role("button", name="Attach text files").click()
    chooser.value.set_files([tmp_path / "notes.txt", tmp_path / "cat.png"])
    expect(chat.page.get_by_text("cat.png: images can't be added")).to_be_visible()
    chat.ask("What must I buy?", "Hello world")
    (text,) = said(engine.requests[-1])
    assert "buy milk" in text and "notes.txt" in text and "What must I buy?" in text
    assert "cat.png" not in text


def test_copy(engine: ScriptedEngine, server: Live, show: Open) -> None:
    engine.script = ["Run **this**:\n\n```python\nprint(1)\n```\n"]
    chat = show(server, permissions=["clipboard-read", "clipboard-write"])
    chat.ask("How?", "print(1)")
    clipboard = "navigator.clipboard.readText()"
    chat.of(chat.turns.first, "Copy").last.click()
    expect(chat.page.get_by_text("Copied").or_(chat.page.get_by_label("Copied")).first).to_be_visible()
    assert chat.page.evaluate(clipboard) == "Run **this**:\n\n```python\nprint(1)\n```\n"
    chat.page.get_by_role("button", name="Copy code").click()
    eventually(lambda: chat.page.evaluate(clipboard).strip() == "print(1)")
