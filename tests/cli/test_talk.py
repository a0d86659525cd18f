"""The dialogue: slash commands and answers, played against a scripted server."""

import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mashbox import catalog
from mashbox.cli.client import Client, End, Model
from mashbox.cli.conversation import Conversation
from mashbox.cli.talk import COMMANDS, Options, Talk, pick_model, summary
from mashbox.errors import RemoteError
from tests.cli.scripted import Refusal, Reply, ScriptedServer, answer, delta, finish, serving

Line = str | type[BaseException]


class Played:
    """What came of a dialogue: the screen, the errors, the requests, and what the prompt was filled with."""

    def __init__(self, screen: str, errors: str, requests: list[dict[str, Any]], prefills: list[str]) -> None:
        self.screen = screen
        self.errors = errors
        self.requests = requests
        self.prefills = prefills

    def contents(self, index: int) -> list[str]:
        return [message["content"] for message in self.requests[index]["messages"]]


@pytest.fixture
def play(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(lines: Sequence[Line], replies: Sequence[Reply] = (), options: Options | None = None) -> Played:
        script: Iterator[Line] = iter(lines)
        prefills: list[str] = []

        def ask(prefill: str) -> str:
            prefills.append(prefill)
            line = next(script, EOFError)
            if isinstance(line, str):
                return line
            raise line

        out = io.StringIO()
        with serving(ScriptedServer(*replies)) as server, Client(server.url) as client:
            Talk(client, Conversation(), options or Options(), Console(file=out, width=100)).run(ask)
        assert not server.replies
        return Played(out.getvalue(), capsys.readouterr().err, server.requests, prefills)

    return run


def test_an_answer_with_its_figures(play: Any) -> None:
    played = play(["hi"], [answer("Hel", "lo.")])
    assert played.screen.startswith("Hello.\n")
    assert "3 tokens · 40.0 tokens/s · first after 0." in played.screen
    assert not played.errors


def test_the_conversation_goes_along(play: Any) -> None:
    played = play(["/system Be brief.", "a", "b"], [answer("1"), answer("2")])
    assert played.contents(1) == ["Be brief.", "a", "1", "b"]


def test_options_are_sent_and_unset_ones_are_not(play: Any) -> None:
    options = Options(model="tiny", temperature=0.0, max_tokens=5)
    played = play(["/think", "a", "/think off", "b"], [answer("1"), answer("2")], options)
    first, second = played.requests
    assert (first["model"], first["temperature"], first["max_tokens"]) == ("tiny", 0.0, 5)
    assert first["chat_template_kwargs"] == {"enable_thinking": True}
    assert second["chat_template_kwargs"] == {"enable_thinking": False}
    bare = play(["a"], [answer("1")])
    assert set(bare.requests[0]) == {"messages", "stream", "stream_options"}


def test_clear_forgets_but_keeps_the_system_prompt(play: Any) -> None:
    played = play(["/system S", "a", "/clear", "b"], [answer("1"), answer("2")])
    assert played.contents(1) == ["S", "b"]


def test_retry_asks_the_same_again(play: Any) -> None:
    played = play(["a", "b", "/retry"], [answer("1"), answer("2"), answer("3")])
    assert played.contents(2) == played.contents(1) == ["a", "1", "b"]


def test_edit_puts_the_question_back(play: Any) -> None:
    played = play(["a", "/edit", "c"], [answer("1"), answer("2")])
    assert played.prefills == ["", "", "a", ""]
    assert played.contents(1) == ["c"]


def test_an_error_keeps_the_conversation_and_retry_asks_again(play: Any) -> None:
    error = {"error": {"message": "The prompt has 600 tokens, the context holds 512.", "type": "x"}}
    played = play(["a", "b", "/retry", "c"], [answer("1"), Refusal(400, error), answer("2"), answer("3")])
    assert played.errors == "error: The prompt has 600 tokens, the context holds 512.\n"
    assert "The conversation is kept" in played.screen
    assert played.contents(2) == ["a", "1", "b"]
    assert played.contents(3) == ["a", "1", "b", "2", "c"]


def test_a_failed_question_is_left_out_of_the_next(play: Any) -> None:
    full = Refusal(429, {"error": {"message": "32 are waiting."}}, retry_after="4")
    played = play(["a", "b"], [full, answer("1")])
    assert played.errors == "error: 32 are waiting. Try again in 4 s.\n"
    assert played.contents(1) == ["b"]


def test_what_was_said_before_the_stream_broke_is_kept(play: Any) -> None:
    played = play(["a", "b"], [[delta(content="half")], answer("1")])
    assert "half" in played.screen
    assert "broke off" in played.errors
    assert played.contents(1) == ["a", "half", "b"]


def thought(text: str, said: str) -> Reply:
    return [delta(reasoning_content=text), *answer(said)]


def test_a_thought_is_folded_when_it_ends_and_not_sent_back(play: Any) -> None:
    played = play(["a", "b"], [thought("hm", "1"), answer("2")])
    assert re.match(r"▸ thought for 0\.\d s \(Ctrl-T or /think show unfolds it\)\n\n1\n", played.screen)
    assert "hm" not in played.screen
    assert played.contents(1) == ["a", "1", "b"]
    assert all("reasoning_content" not in message for message in played.requests[1]["messages"])


def test_thoughts_unfold_and_fold(play: Any) -> None:
    played = play(
        ["a", "/think show", "b", "/think hide", "c"],
        [thought("hm one", "1"), thought("hm two", "2"), thought("hm three", "3")],
    )
    first, second, third = (
        played.screen.partition("hm two")[0],
        played.screen,
        played.screen.rpartition("2\n")[2],
    )
    assert first.count("hm one") == 1 and "▸" in first
    assert "hm two\n\n2\n" in second
    assert "hm three" not in third and "▸" in third
    assert "chat_template_kwargs" not in played.requests[0]


def test_show_without_a_thought_says_what_it_does(play: Any) -> None:
    assert "Thoughts stay on the screen." in play(["/think show"]).screen


def test_a_thought_is_kept_in_the_file_and_can_be_shown_again(play: Any, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    play(["a", f"/save {path}"], [thought(" hm\n", "1")])
    assert json.loads(path.read_text())["messages"][1] == {
        "role": "assistant",
        "content": "1",
        "reasoning_content": "hm",
    }
    assert "\nhm\n" in play([f"/load {path}", "/think show"]).screen


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (Options(), {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0}),
        (Options(think=True), {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0}),
        (Options(temperature=0.0), {"temperature": 0.0, "top_p": 0.8, "top_k": 20, "min_p": 0.0}),
    ],
)
def test_what_the_makers_recommend_is_sent_to_a_mashbox(options: Options, sent: dict[str, float]) -> None:
    options.choose(Model("qwen3-4b", owner="mashbox-labs"))
    body = options.body()
    assert {name: body[name] for name in sent} == sent
    assert options.sampling() == sent
    assert f"qwen3-4b · temperature {sent['temperature']:g}" in options.title()


@pytest.mark.parametrize(
    "model", [Model("qwen3-4b", owner="vllm"), Model("smollm2-135m", owner="mashbox-labs"), None]
)
def test_nothing_is_made_up_where_nothing_is_known(model: Model | None) -> None:
    options = Options()
    options.choose(model)
    assert options.sampling() == {}


def test_a_model_that_always_thinks_gets_its_sampling_for_that() -> None:
    options = Options()
    options.choose(Model("gpt-oss-20b", owner="mashbox-labs"))
    spec = catalog.load().models["gpt-oss-20b"]
    assert spec.thinking == "always" and spec.sampling is not None
    known = spec.sampling.thinking or spec.sampling.plain
    assert known is not None and options.sampling() == known.fields()


def test_tool_calls_are_shown(play: Any) -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": "{}"}}
    played = play(["a"], [[delta(tool_calls=[call]), *finish("tool_calls")]])
    assert "The model calls f({}); nothing runs it here." in played.screen


def test_save_and_load(play: Any, tmp_path: Path) -> None:
    path = tmp_path / "a talk.json"
    play(["/system S", "a", f"/save '{path}'"], [answer("1")], Options(model="tiny"))
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "model": "tiny",
        "system": "S",
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "1"}],
    }
    played = play([f"/load {path}", "b"], [answer("2")])
    assert played.contents(0) == ["S", "a", "1", "b"]


def test_save_without_a_name_takes_the_time(
    play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    play(["/save"])
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_tokens(play: Any) -> None:
    played = play(["/tokens", "a", "/tokens"], [answer("1")])
    assert "No answer with token counts yet." in played.screen
    assert "Prompt 7 (2 from the prompt cache), answer 3, together 10 of 512 tokens." in played.screen


def test_model(play: Any) -> None:
    played = play(["/model", "/model other", "/model tiny", "a"], [answer("1")])
    assert played.errors == "error: The server has no model 'other'. It serves tiny.\n"
    assert played.requests[0]["model"] == "tiny"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/nope", "There is no command /nope. /help lists them."),
        ("/retry", "There is nothing to ask again."),
        ("/edit", "There is nothing to change."),
        ("/load", "/load needs a file."),
        ("/load /nowhere/x.json", "/nowhere/x.json can't be read"),
        ("/save /nowhere/x.json", "No such file or directory"),
        ("/think maybe", "/think takes on, off, show or hide, not 'maybe'."),
    ],
)
def test_wrong_commands_are_one_line_and_the_dialogue_goes_on(play: Any, line: str, words: str) -> None:
    played = play([line, "a"], [answer("1")])
    assert words in played.errors
    assert played.errors.count("\n") == 1
    assert "1\n" in played.screen


def test_help_names_every_command(play: Any) -> None:
    screen = play(["/help"]).screen
    assert all(command.usage in screen for command in COMMANDS.values())


def test_the_documentation_names_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for command in COMMANDS.values():
        usage = command.usage.replace("|", "\\|")
        assert f"`{usage}`" in page, command.usage


@pytest.mark.parametrize("leave", ["/exit", "/quit"])
def test_leaving(play: Any, leave: str) -> None:
    assert play([leave, "never asked"]).prefills == [""]


def test_ctrl_c_at_the_prompt_tells_how_to_leave(play: Any) -> None:
    played = play([KeyboardInterrupt, "a"], [answer("1")])
    assert "Leave with Ctrl-D or /exit." in played.screen


def test_empty_lines_ask_nothing(play: Any) -> None:
    assert play(["", "  \n "]).requests == []


def test_picking_a_model() -> None:
    with serving(ScriptedServer()) as server, Client(server.url) as client:
        assert pick_model(client, None) == pick_model(client, "tiny") == Model("tiny", 512, "someone")
        with pytest.raises(RemoteError, match="has tiny, not other"):
            pick_model(client, "other")


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End(reason="stop"), ""),
        (End(reason="length", completion_tokens=1), "1 token · cut off by the token limit"),
        (
            End(reason="stop", completion_tokens=1200, decode_rate=34.56, first_seconds=0.321),
            "1,200 tokens · 34.6 tokens/s · first after 0.32 s",
        ),
    ],
)
def test_the_summary(end: End, words: str) -> None:
    assert summary(end) == words
