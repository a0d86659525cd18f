"""`mashbox count-tokens`: the number alone on stdout, from the tokenizer alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mashbox import store
from mashbox.cli.main import app
from mashbox.store import LocalModel
from tests.engine.letters import Letters

TEMPLATE = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ tools or '' }}"
runner = CliRunner()


@pytest.fixture(autouse=True)
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Letters().save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    model = LocalModel(
        id="x", format="gguf", weights=tmp_path / "x", files=[], tokenizer=tmp_path, spec=None, source="-"
    )
    monkeypatch.setattr(store, "find", lambda name: model)
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    monkeypatch.delenv("MASHBOX_MODEL", raising=False)


def count(*arguments: str, stdin: str | None = None) -> int:
    result = runner.invoke(app, ["count-tokens", *arguments], input=stdin)
    assert result.exit_code == 0, result.stderr
    return int(result.stdout)


def test_texts_files_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("héllo")
    assert count("hello") == 5
    assert count("--file", str(tmp_path / "file.txt")) == 6
    assert count(stdin="hello\n") == 6


def test_conversations_of_both_apis(tmp_path: Path) -> None:
    def of(body: Any) -> int:
        (tmp_path / "m.json").write_text(json.dumps(body))
        return count("--messages", str(tmp_path / "m.json"))

    user = {"role": "user", "content": "hi"}
    assert of([user]) == of({"messages": [user]}) == len("user:hi;")
    chat = of({"messages": [{"role": "system", "content": "S"}, user]})
    messages = of(
        {"system": "S", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
    )
    assert chat == messages == len("system:S;user:hi;")
    tool = {"type": "function", "function": {"name": "f"}}
    assert of({"messages": [user], "tools": [tool]}) > len("user:hi;") + 10
    assert of({"messages": [user], "tools": [{"name": "f", "input_schema": {"type": "object"}}]}) > 18


def test_several_files_and_their_sum(tmp_path: Path) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, text in zip(paths, ("abc", "de"), strict=True):
        path.write_text(text)
    words = [word for path in paths for word in ("--file", str(path))]
    assert runner.invoke(app, ["count-tokens", *words]).stdout == f"5\n3  {paths[0]}\n2  {paths[1]}\n"
    told = json.loads(runner.invoke(app, ["count-tokens", "--json", *words]).stdout)
    assert told == {
        "tokens": 5,
        "files": [{"file": str(path), "tokens": n} for path, n in zip(paths, (3, 2), strict=True)],
    }


def test_what_each_message_adds(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path.write_text(json.dumps([*said, {"role": "user", "content": "?"}]))
    result = runner.invoke(app, ["count-tokens", "--messages", str(path), "--per-message"])
    first, second, third = len("user:hi;"), len("assistant:hello;"), len("user:?;")
    total, *lines = result.stdout.splitlines()
    assert int(total) == first + second + third
    assert [line.split() for line in lines] == [
        [str(first), "0", "user"],
        [str(second), "1", "assistant"],
        [str(third), "2", "user"],
    ]


def test_a_message_where_the_template_takes_no_end_counts_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    picky = "{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": picky}))
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path.write_text(json.dumps([*said, {"role": "user", "content": "?"}]))
    result = runner.invoke(app, ["count-tokens", "--messages", str(path), "--per-message", "--json"])
    told = [message["tokens"] for message in json.loads(result.stdout)["messages"]]
    assert told == [len("user:hi;"), None, len("assistant:hello;user:?;")]


def test_the_model_is_the_one_that_would_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    found = store.find
    monkeypatch.setattr(store, "find", lambda name: (asked.append(name), found(name))[1])
    count("a")
    monkeypatch.setenv("MASHBOX_MODEL", "from-the-environment")
    count("a")
    count("--model", "from-the-flag", "a")
    assert asked == ["smollm2-135m", "from-the-environment", "from-the-flag"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "--file", "x"], "TEXT and --file"),
        (["--file", "missing.txt"], "missing.txt"),
        (["--messages", "missing.json"], "missing.json"),
        (["--per-message", "a"], "--per-message goes with --messages"),
    ],
)
def test_wrong_use_is_told_in_a_line(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, ["count-tokens", *arguments])
    assert result.exit_code == 2 and result.stdout == ""
    assert words in result.stderr and result.stderr.count("\n") == 1


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    result = runner.invoke(app, ["count-tokens", "--file", str(tmp_path / "latin.txt")])
    assert result.exit_code == 2 and "latin.txt is not UTF-8: byte 3 is 0xe9. Name a UTF-8" in result.stderr
    missing = runner.invoke(app, ["count-tokens", "--file", str(tmp_path / "no.txt")])
    assert missing.stderr.endswith("no.txt can't be read: No such file or directory. Name a text file.\n")


def test_bad_messages_name_their_field(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    for text, words in (("{", "JSON"), ("3", "list"), ('[{"role": "user", "content": 3}]', "messages[0]")):
        path.write_text(text)
        result = runner.invoke(app, ["count-tokens", "--messages", str(path)])
        assert result.exit_code != 0 and words in result.stderr, text


@pytest.mark.real
def test_the_starter_is_counted_without_torch(model_home: Path) -> None:
    script = (
        "import sys; from mashbox.cli.main import app\n"
        "try: app(['count-tokens', 'Name three planets.'])\n"
        "finally: assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={"MASHBOX_HOME": str(model_home), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "4"
