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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "--file", "x"], "TEXT and --file"),
        (["--file", "missing.txt"], "missing.txt"),
        (["--messages", "missing.json"], "missing.json"),
    ],
)
def test_wrong_use_is_told_in_a_line(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, ["count-tokens", *arguments])
    assert result.exit_code == 2 and result.stdout == ""
    assert words in result.stderr and result.stderr.count("\n") == 1


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
