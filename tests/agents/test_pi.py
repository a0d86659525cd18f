"""Pi, headless, started by the line that ``mashbox run`` prints, in each of the APIs that it speaks."""

import json
from pathlib import Path
from typing import Any

import pytest

from mashbox.cli import recipes
from tests.agents.marks import MARKS
from tests.agents.place import Place
from tests.agents.server import AgentServer, serving
from tests.scripted_model.script import Rule, call

pytestmark = MARKS

RULES = [
    Rule(asked="And eleven", say="Eleven it is."),
    Rule(asked="Say ten", say="Ten it is."),
    Rule(asked="a fruit", say=call("write", path="fruit.txt", content="plum\n")),
    Rule(asked="a fruit", results=1, say=call("read", path="fruit.txt")),
    Rule(asked="a fruit", results=2, say="It says: {result}"),
]
ROUTES = {
    "openai-completions": "POST /v1/chat/completions",
    "openai-responses": "POST /v1/responses",
    "anthropic-messages": "POST /v1/messages",
}


def point(place: Place, server: AgentServer, *, keyed: bool = False, **changes: Any) -> str:
    """Write ``models.json`` as it is printed, but for the changes; the line that starts Pi with it."""
    models: Any = recipes.pi_models(server.url, "scripted-8b", ctx=server.ctx, keyed=keyed)
    provider = models["providers"]["mashbox"]
    provider["models"][0] |= changes.pop("model", {})
    provider |= changes
    path = place.home / ".pi" / "agent" / "models.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(models))
    return recipes.pi("scripted-8b")


def test_answers_in_two_processes_are_one_session(place: Place, qwen3: Path, tmp_path: Path) -> None:
    with serving(qwen3, RULES, tmp_path, keyed=True) as server:
        pi = point(place, server, keyed=True)
        assert place.run(f"{pi} -p 'Say ten.'").out == "Ten it is.\n"
        assert place.run(f"{pi} --continue -p 'And eleven?'").out == "Eleven it is.\n"
    assert server.routes == ["POST /v1/chat/completions"] * 2
    assert server.refused == []
    assert [turn.roles for turn in server.turns] == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert server.turns[1].cached > 0.95


@pytest.mark.parametrize("api", ROUTES)
def test_a_file_is_written_and_read_by_its_own_tools(
    place: Place, qwen3: Path, tmp_path: Path, api: str
) -> None:
    with serving(qwen3, RULES, tmp_path, ctx=recipes.PI_NEEDS) as server:
        # Its client for Anthropic's API adds the version to the address itself.
        url = server.url if api == "anthropic-messages" else f"{server.url}/v1"
        thinking = {"reasoning": True, "compat": {"thinkingFormat": "qwen-chat-template"}}
        if api != "openai-completions":
            del thinking["compat"]
        pi = point(place, server, api=api, baseUrl=url, model=thinking)
        said = place.run(f"{pi} -p 'Write a fruit into fruit.txt.'")
    assert (place.work / "fruit.txt").read_text() == "plum\n"
    assert said.out.startswith("It says: plum")
    assert server.routes == [ROUTES[api]] * 3
    assert server.refused == []
    assert [turn.finished.reason for turn in server.turns] == ["tool_calls", "tool_calls", "stop"]
    assert [turn.roles for turn in server.turns] == [
        ["system", "user"] + ["assistant", "tool"] * calls for calls in range(3)
    ]
    assert all(turn.finished.usage.thinking_tokens for turn in server.turns)
    assert all(turn.cached > 0.95 for turn in server.turns[1:])
