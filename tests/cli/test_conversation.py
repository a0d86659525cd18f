"""Conversations on disk: what was saved is read back, what is no conversation is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox.cli.conversation import Conversation, load
from mashbox.errors import UsageError

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, st.lists(st.tuples(texts, texts), max_size=4))
def test_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, system: str, turns: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("talk") / "chat.json"
    talk = Conversation(system)
    for question, answer in turns:
        talk.add(question, answer)
    talk.save(path, "tiny")
    assert load(path) == talk
    assert [entry.name for entry in path.parent.iterdir()] == ["chat.json"]


def test_a_plain_list_of_messages_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text('[{"role":"system","content":"S"},{"role":"user","content":"U"}]', encoding="utf-8")
    assert load(path) == Conversation("S", [{"role": "user", "content": "U"}])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("3", "holds no messages"),
        ('{"messages": {}}', "holds no messages"),
        (
            '[{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}]',
            r"messages\[1\] is no message",
        ),
        ('[{"role": "user"}]', r"messages\[0\] is no message"),
    ],
)
def test_what_is_no_conversation_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=rf"m\.json.*{words}"):
        load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.json can't be read: No such file"):
        load(tmp_path / "nowhere.json")


def test_the_system_prompt_goes_first_and_only_when_there_is_one() -> None:
    assert Conversation().request("q") == [{"role": "user", "content": "q"}]
    assert Conversation("s").request("q")[0] == {"role": "system", "content": "s"}


def test_take_back_removes_the_last_question_with_its_answer() -> None:
    talk = Conversation()
    talk.add("a", "1")
    talk.add("b", "2")
    assert talk.take_back() == "b"
    assert [message["content"] for message in talk.messages] == ["a", "1"]
    assert talk.take_back() == "a"
    assert talk.take_back() is None
