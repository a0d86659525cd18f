"""The lines for clients. That agents work by theirs is shown in ``tests/agents``."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mashbox.catalog import Recommended, Sampling
from mashbox.cli import recipes

URL, MODEL = "http://127.0.0.1:8000", "org/a model:it's.gguf"


def printed(ctx: int = 32_768, keyed: bool = False) -> dict[str, str]:
    """Lines by their purpose."""
    found = {}
    for recipe in recipes.clients(URL, MODEL, ctx=ctx, keyed=keyed):
        line = recipe.line
        assert line.startswith("  ") and "\n" not in line
        found[line[2:14].strip()] = line[14:]
    return found


@pytest.mark.parametrize("keyed", [False, True])
def test_claude_code_takes_all_from_its_environment(keyed: bool) -> None:
    *variables, program = shlex.split(printed(keyed=keyed)["Claude Code"])
    assert program == "claude"
    settings = dict(word.split("=", 1) for word in variables)
    assert settings["ANTHROPIC_BASE_URL"] == URL
    assert settings["ANTHROPIC_AUTH_TOKEN"] == ("$MASHBOX_API_KEY" if keyed else "none")
    assert settings["ANTHROPIC_MODEL"] == settings["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == MODEL
    assert settings["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "32768"
    assert settings["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "4096"


@pytest.mark.parametrize("keyed", [False, True])
def test_codex_takes_all_from_its_options(keyed: bool) -> None:
    words = shlex.split(printed(keyed=keyed)["Codex"])
    assert words[0] == "codex" and words[-2:] == ["-m", MODEL]
    assert words[1:-2:2] == ["-c"] * len(words[2:-2:2])
    provider, table, *others = words[2:-2:2]
    assert provider == "model_provider=mashbox"
    settings: dict[str, Any] = tomllib.loads("\n".join([table, *others]))
    expected = {"name": "mashbox", "base_url": f"{URL}/v1", "wire_api": "responses"}
    if keyed:
        expected["env_key"] = "MASHBOX_API_KEY"
    assert settings["model_providers"]["mashbox"] == expected
    assert settings["model_context_window"] == 32_768
    assert settings["features"] == {"plugins": False}


@pytest.mark.parametrize("keyed", [False, True])
def test_pi_has_a_file_and_a_line(keyed: bool) -> None:
    lines = printed(keyed=keyed)
    path, _, text = lines["Pi"].partition(": ")
    provider = json.loads(text)["providers"]["mashbox"]
    assert path == "~/.pi/agent/models.json"
    assert provider["apiKey"] == ("$MASHBOX_API_KEY" if keyed else "none")
    assert [(model["id"], model["contextWindow"]) for model in provider["models"]] == [(MODEL, 32_768)]
    assert shlex.split(lines[""]) == ["pi", "--provider", "mashbox", "--model", MODEL]


def test_an_agent_is_left_out_where_its_prompt_has_no_room() -> None:
    agents = {"Claude Code", "Codex", "Pi"}
    assert printed(ctx=32_768).keys() & {*agents, "agents"} == agents
    assert printed(ctx=32_767).keys() & {*agents, "agents"} == {"Codex", "Pi", "agents"}
    assert printed(ctx=8_192).keys() & {*agents, "agents"} == {"Pi", "agents"}
    few = printed(ctx=2_048)
    assert few.keys() & {*agents, "agents"} == {"agents"}
    assert re.findall(r"[\d,]+\d", few["agents"]) == ["2,048", "32,768", "16,384", "8,192"]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 1000])
@pytest.mark.parametrize("keyed", [False, True])
def test_on_a_terminal_a_line_in_pieces_is_the_same_to_a_shell(width: int, keyed: bool) -> None:
    for recipe in recipes.clients(URL, MODEL, ctx=32_768, keyed=keyed):
        laid = recipe.laid_out(width)
        if len(recipe.line) <= width:
            assert laid == [recipe.line]
            continue
        rest = laid[1:] if recipe.purpose else laid
        if recipe.purpose:
            assert laid[0].split() == f"{recipe.purpose} {recipe.lead}".split()
        longest_word = max(map(len, recipes.WORD.findall(recipe.text)))
        assert max(map(len, rest)) <= max(width, longest_word + len("     \\"))
        if recipe.lead:
            assert json.loads("\n".join(rest)) == json.loads(recipe.text)
        elif not recipe.prose:
            # shlex does not know that a shell drops a backslash with the line feed behind it.
            assert shlex.split("\n".join(rest).replace("\\\n", "")) == shlex.split(recipe.text)


def test_sampling_is_told_for_agents_where_it_is_known() -> None:
    plain, thinking = Recommended(temperature=0.7, top_p=0.8), Recommended(temperature=0.6)
    text = recipes.sampling(Sampling(plain=plain, thinking=thinking))
    assert "temperature 0.7, top_p 0.8; temperature 0.6 while it thinks" in text
    assert "greedily" in text
    assert "thinks" not in recipes.sampling(Sampling(plain=plain))


@pytest.mark.parametrize("page", ["README.md", "docs/agents.md"])
def test_the_documentation_shows_the_lines_as_they_are_printed(page: str) -> None:
    text = (Path(__file__).parent.parent.parent / page).read_text().replace(" \\\n  ", " ")
    shown: Any = {"url": URL, "model": "qwen3-4b", "ctx": 32_768, "keyed": False}
    assert recipes.claude_code(**shown) in text
    assert recipes.codex(**shown) in text
    assert recipes.pi("qwen3-4b") in text
    (models,) = re.findall(r'^\{\s*"providers".*?^(?:\}|.*\}\}\})$', text, re.DOTALL | re.MULTILINE)
    assert json.loads(models) == recipes.pi_models(**shown)


def test_the_configuration_file_of_codex_says_the_same() -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "agents.md").read_text()
    (held,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    words = shlex.split(recipes.codex(URL, "qwen3-4b", ctx=32_768, keyed=False))
    _, *settings = words[2:-2:2]
    expected = {"model": words[-1], "model_provider": "mashbox", **tomllib.loads("\n".join(settings))}
    assert tomllib.loads(held) == expected
