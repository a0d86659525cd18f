"""Settings: which source wins, and how a bad value is told."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mashbox import settings
from mashbox.errors import UsageError
from mashbox.settings import RULES, Settings, load


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    return tmp_path


def write(home: Path, text: str) -> Path:
    path = home / "config" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_every_setting_has_a_rule_and_every_rule_a_setting() -> None:
    assert list(RULES) == list(Settings.__dataclass_fields__)


def test_defaults() -> None:
    assert load({}, {}) == Settings()
    assert (Settings().host, Settings().port) == ("127.0.0.1", 8000)


def test_flag_wins_over_environment_over_file_over_default(home: Path) -> None:
    write(home, "[run]\nport = 1\nslots = 1\ndrain = 1\n")
    environment = {"MASHBOX_PORT": "2", "MASHBOX_SLOTS": "2"}
    chosen = load({"port": "3", "slots": None}, environment)
    assert (chosen.port, chosen.slots, chosen.drain, chosen.step_timeout) == (3, 2, 1, 60)


WAYS: dict[str, tuple[Any, Any, Any]] = {
    "model": ("a", "b", "c"),
    "host": ("127.0.0.2", "127.0.0.3", "127.0.0.4"),
    "api_key_file": ("/a", "/b", "/c"),
    "allow_host": (["a"], "b", ["c"]),
    "weights": ("f32", "bf16", "auto"),
    "activations": (8, "16", 8),
    "device": ("cpu", "cuda", "mps"),
    "engine": ("fast", "exact", "auto"),
    "speculation": ("off", "auto", "off"),
    "url": ("http://a", "http://b", "http://c"),
    "system": ("a", "b", "c"),
    "temperature": (0.5, "0.25", 0.75),
}
"""Values in the file, the environment and the flag; those of numbers and switches are made in the test."""


@pytest.mark.parametrize(
    ("table", "name"), [(table, name) for table, rules in settings.TABLES.items() for name in rules]
)
def test_each_setting_comes_from_the_first_that_names_it(table: str, name: str, home: Path) -> None:
    reader = {"run": load, "chat": settings.load_chat}[table]
    rule = settings.TABLES[table][name]
    switch = rule.allowed == "true or false"
    file, variable, given = WAYS.get(name) or ((True, "false", True) if switch else (21, "22", 23))
    text = f"'{file}'" if isinstance(file, str) else str(file).lower() if switch else str(file)
    default = getattr(reader({}, {}), name)
    write(home, f"[{table}]\n{name} = {text}\n")
    environment = {settings.variable(name): variable}
    seen = [reader({}, {}), reader({}, environment), reader({name: given}, environment)]
    assert [getattr(chosen, name) for chosen in seen] == [
        rule.read(value) for value in (file, variable, given)
    ]
    assert default != rule.read(file)


def test_a_wrong_chat_setting_is_told_with_its_place(home: Path) -> None:
    path = write(home, "[chat]\ntemprature = 1\n")
    with pytest.raises(
        UsageError, match=rf"{path} line 2, temprature: unknown setting\. Did you mean temperature"
    ):
        load({}, {})
    write(home, "[chat]\ntemperature = -1\n")
    with pytest.raises(UsageError, match=r"temperature: -1 is not allowed\. Allowed: a number from 0"):
        settings.load_chat({}, {})


def test_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASHBOX_CTX", "2048")
    assert load({}).ctx == 2048


def test_an_empty_variable_counts_as_unset(home: Path) -> None:
    write(home, "[run]\nport = 7\n")
    assert load({}, {"MASHBOX_PORT": ""}).port == 7


def test_auto_in_a_flag_undoes_the_file(home: Path) -> None:
    write(home, "[run]\nctx = 4096\nslots = 2\n")
    chosen = load({"ctx": "auto"}, {"MASHBOX_SLOTS": "auto"})
    assert (chosen.ctx, chosen.slots) == (None, None)


def test_false_flag_undoes_a_true_file(home: Path) -> None:
    write(home, "[run]\nui = true\n")
    assert load({}, {}).ui is True
    assert load({"ui": False}, {}).ui is False


def test_lists_come_as_words_or_as_a_list(home: Path) -> None:
    write(home, '[run]\nallow-host = ["a.local", "b.local"]\n')
    assert load({}, {}).allow_host == ("a.local", "b.local")
    assert load({}, {"MASHBOX_ALLOW_HOST": "c, d"}).allow_host == ("c", "d")
    assert load({"allow_host": ["e"]}, {"MASHBOX_ALLOW_HOST": "c,d"}).allow_host == ("e",)
    assert load({"allow_host": []}, {}).allow_host == ("a.local", "b.local")


def test_a_path_may_start_at_home() -> None:
    assert load({"api_key_file": "~/keys"}, {}).api_key_file == Path.home() / "keys"


BAD: list[tuple[str, Any]] = [
    ("port", "65536"),
    ("port", "-1"),
    ("port", "abc"),
    ("port", "１２"),
    ("host", ""),
    ("host", "http://x"),
    ("ctx", "15"),
    ("slots", "0"),
    ("cache_ram", "1.5"),
    ("weights", "f16"),
    ("activations", "12"),
    ("device", "tpu"),
    ("engine", "slow"),
    ("threads", "0"),
    ("ui", "perhaps"),
    ("allow_host", "a b"),
    ("step_timeout", "0"),
    ("read_timeout", "3601"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_flag_is_named_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        load({name: value}, {})
    assert caught.value.message == f"{settings.flag(name)}: {value!r} is not allowed."
    assert caught.value.remedy == f"Allowed: {RULES[name].allowed}."
    assert caught.value.exit_code == 2


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"MASHBOX_MAX_BODY_MIB: '0' is not allowed\. Allowed: .* from 1 to 4,096"
    ):
        load({}, {"MASHBOX_MAX_BODY_MIB": "0"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\n# a comment\nport = 70000\n", "line 3, port: 70000 is not allowed"),
        ("[run]\nport = true\n", "line 2, port: True is not allowed"),
        ("run.port = '80x'\n", "line 1, port: '80x' is not allowed"),
        ("[run]\nui = 1\n", "line 2, ui: 1 is not allowed"),
        ("[run]\nallow_host = [1]\n", "line 2, allow_host: [1] is not allowed"),
        ("[run]\nsolts = 1\n", "line 2, solts: unknown setting. Did you mean slots?"),
        ("port = 80\n", "line 1, port: unknown. Settings stand in the tables [run] and [chat]."),
        ("run = 1\n", "line 1, run: must be a table"),
        ("[run\n", "at line 1"),
    ],
)
def test_a_bad_file_is_named_with_its_line(home: Path, text: str, words: str) -> None:
    path = write(home, text)
    with pytest.raises(UsageError) as caught:
        load({}, {})
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_a_file_that_is_not_text_is_named(home: Path) -> None:
    write(home, "").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"config\.toml can't be read"):
        load({}, {})


@given(st.sampled_from(list(RULES)), st.text(max_size=12))
def test_any_text_is_taken_or_refused_with_its_source(name: str, value: str) -> None:
    try:
        chosen = load({name: value}, {})
    except UsageError as problem:
        assert problem.message.startswith(settings.flag(name) + ":")
    else:
        assert isinstance(chosen, Settings)


def test_the_documentation_has_a_row_for_every_setting() -> None:
    page = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, default in vars(Settings()).items():
        shown = {"None": "auto", "()": ""}.get(str(default), str(default).lower())
        shown = {"model": "the starter", "api_key_file": ""}.get(name, shown)
        (row,) = [line for line in page.splitlines() if f"`{settings.variable(name)}` |" in line]
        cells = [cell.strip().strip("`") for cell in row.split("|")[1:5]]
        assert cells == [settings.flag(name), settings.variable(name), name, shown]


def test_the_home_of_a_stranger_is_refused_with_its_source() -> None:
    with pytest.raises(UsageError, match="--api-key-file"):
        settings.load({"api_key_file": "~nobody-of-this-name/keys"})
