"""The chat on a real pseudo-terminal: typing, stopping an answer, leaving."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.scripted import ScriptedServer, answer, delta, serving
from tests.cli.terminal import Terminal
from tests.patience import PATIENCE

CTRL_C, CTRL_D, CTRL_T, ENTER, ALT_ENTER = "\x03", "\x04", "\x14", "\r", "\x1b\r"


@contextlib.contextmanager
def chatting(server: ScriptedServer, home: Path, *args: str) -> Iterator[Terminal]:
    terminal = Terminal("chat", "--url", server.url, *args, home=home)
    try:
        terminal.expect("/help for help")
        terminal.expect("> ")
        yield terminal
    finally:
        terminal.close()


def questions(server: ScriptedServer) -> list[str]:
    return [request["messages"][-1]["content"] for request in server.requests]


def test_a_question_an_answer_and_the_end(tmp_path: Path) -> None:
    with (
        serving(ScriptedServer(answer("**Mars** ", "and Venus"))) as server,
        chatting(server, tmp_path) as terminal,
    ):
        terminal.send("planets?" + ENTER)
        terminal.expect("Mars and Venus")
        terminal.expect("3 tokens · 40.0 tokens/s")
        terminal.expect("> ")
        terminal.send(CTRL_D)
        assert terminal.exit_status() == 0
        assert "Traceback" not in terminal.text
        assert "\x1b[1mMars" in terminal.raw


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(tmp_path: Path) -> None:
    endless = [delta(content="so it "), *([0.05, delta(content="goes ")] * 400)]
    with (
        serving(ScriptedServer(endless, answer("Done."))) as server,
        chatting(server, tmp_path) as terminal,
    ):
        terminal.send("tell" + ENTER)
        terminal.expect("so it goes")
        terminal.send(CTRL_C)
        terminal.expect("Stopped.")
        assert server.cut_off.wait(PATIENCE)
        terminal.send("again" + ENTER)
        terminal.expect("Done.")
        kept = server.requests[1]["messages"][1]
        assert kept["role"] == "assistant"
        assert kept["content"].startswith("so it goes")
        terminal.send("/exit" + ENTER)
        assert terminal.exit_status() == 0
        assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_what_is_typed_during_an_answer_waits_for_the_prompt(tmp_path: Path) -> None:
    slow = [delta(content="so it "), 0.3, *answer("goes.")]
    with serving(ScriptedServer(slow, answer("ok"))) as server, chatting(server, tmp_path) as terminal:
        terminal.send("one" + ENTER)
        terminal.expect("so it")
        terminal.send("two" + ENTER + CTRL_D)
        terminal.expect("goes.")
        terminal.expect("ok")
        assert terminal.exit_status() == 0
        assert questions(server) == ["one", "two"]


@pytest.mark.slow
def test_ctrl_c_at_the_prompt_clears_the_line_then_tells_how_to_leave(tmp_path: Path) -> None:
    with serving(ScriptedServer(answer("ok"))) as server, chatting(server, tmp_path) as terminal:
        terminal.send("never sent" + CTRL_C + "sent" + ENTER)
        terminal.expect("3 tokens")
        assert questions(server) == ["sent"]
        terminal.expect("> ")
        terminal.send(CTRL_C)
        terminal.expect("Leave with Ctrl-D")
        terminal.send(CTRL_D)
        assert terminal.exit_status() == 0


@pytest.mark.slow
@pytest.mark.parametrize("new_line", [ALT_ENTER, "\n", "\\" + ENTER])
def test_several_lines(tmp_path: Path, new_line: str) -> None:
    with serving(ScriptedServer(answer("ok"))) as server, chatting(server, tmp_path) as terminal:
        terminal.send(f"one{new_line}two{ENTER}")
        terminal.expect("3 tokens")
        assert questions(server) == ["one\ntwo"]


@pytest.mark.slow
def test_a_pasted_text_is_one_message(tmp_path: Path) -> None:
    with serving(ScriptedServer(answer("ok"))) as server, chatting(server, tmp_path) as terminal:
        terminal.send("\x1b[200~one\rtwo\r\x1b[201~" + ENTER)
        terminal.expect("3 tokens")
        assert questions(server) == ["one\ntwo"]


@pytest.mark.slow
def test_ctrl_t_shows_the_thought_that_was_folded(tmp_path: Path) -> None:
    thinking = [delta(reasoning_content="let me see"), 0.3, *answer("Four.")]
    with serving(ScriptedServer(thinking)) as server, chatting(server, tmp_path) as terminal:
        terminal.send("2+2?" + ENTER)
        terminal.expect("let me see")
        terminal.expect("▸ thought for 0.")
        terminal.expect("Four.")
        terminal.expect("3 tokens")
        terminal.expect("> ")
        terminal.send(CTRL_T)
        terminal.expect("let me see")
        # While the thought is printed, the terminal takes no keys as they are.
        terminal.expect("> ")
        terminal.send(CTRL_D)
        assert terminal.exit_status() == 0


@pytest.mark.slow
def test_tab_completes_commands_their_words_and_files(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "x"}]')
    with serving(ScriptedServer()) as server, chatting(server, tmp_path) as terminal:
        terminal.send("/tok")
        terminal.expect("how long the conversation is")
        terminal.send("\t" + ENTER)
        terminal.expect("No answer with token counts yet.")
        terminal.send("/think h")
        terminal.expect("hide")
        terminal.send("\t" + ENTER)
        terminal.expect("Thoughts are folded")
        terminal.send("/model t")
        terminal.expect("tiny")
        terminal.send("\t" + ENTER)
        terminal.expect("Model: tiny")
        terminal.send(f"/load {tmp_path}/ta")
        terminal.expect("talk.json")
        terminal.send("\t" + ENTER)
        terminal.expect("Loaded 1 messages.")
        terminal.send(CTRL_D)
        assert terminal.exit_status() == 0


@pytest.mark.slow
def test_history_is_kept_between_chats_and_private(tmp_path: Path) -> None:
    for keys in ("first" + ENTER, "\x1b[A" + ENTER):
        with serving(ScriptedServer(answer("ok"))) as server, chatting(server, tmp_path) as terminal:
            terminal.send(keys)
            terminal.expect("3 tokens")
            assert questions(server) == ["first"]
            terminal.send(CTRL_D)
            assert terminal.exit_status() == 0
    assert (tmp_path / "state" / "chat_history").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_closed_terminal_ends_the_chat(tmp_path: Path) -> None:
    with serving(ScriptedServer()) as server, chatting(server, tmp_path) as terminal:
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.exit_status() == 128 + signal.SIGHUP
        assert "Traceback" not in terminal.text


@pytest.mark.slow
def test_one_answer_on_a_terminal_is_markdown(tmp_path: Path) -> None:
    with serving(ScriptedServer(answer("**Mars**"))) as server:
        terminal = Terminal("chat", "--url", server.url, "?", home=tmp_path)
        try:
            terminal.expect("Mars")
            assert terminal.exit_status() == 0
            assert "**" not in terminal.text
            assert "3 tokens" in terminal.text
        finally:
            terminal.close()


@pytest.mark.slow
def test_an_interrupted_one_shot_is_130(tmp_path: Path) -> None:
    with serving(ScriptedServer([delta(content="so "), 20.0])) as server:
        script = [sys.executable, "-m", "mashbox", "chat", "--url", server.url, "?"]
        environment = {**os.environ, "MASHBOX_HOME": str(tmp_path)}
        process = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        assert process.stdout.read(3) == b"so "
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (130, b"")
