"""Claude Code, headless, started by the line that ``mashbox run`` prints."""

import json
from pathlib import Path

from mashbox.cli import recipes
from tests.agents.marks import MARKS
from tests.agents.place import Place
from tests.agents.server import AgentServer, serving
from tests.scripted_model.engine import CTX
from tests.scripted_model.script import Rule, call

pytestmark = MARKS

MESSAGES, COUNT = "POST /v1/messages", "POST /v1/messages/count_tokens"

WHERE = r"fruit into (?P<path>\S+)"
RULES = [
    Rule(asked="And eleven", say="Eleven it is."),
    Rule(asked="Say ten", say="Ten it is."),
    Rule(asked=WHERE, say=call("Write", file_path="{path}", content="plum\n")),
    Rule(asked=WHERE, results=1, say=call("Read", file_path="{path}")),
    Rule(asked=WHERE, results=2, say="The file says: {result}"),
    Rule(asked="plans", say=call("ToolSearch", query="select:CronList")),
    Rule(asked="plans", results=1, say=call("CronList")),
    Rule(asked="plans", results=2, say="Planned: {result}"),
]


def claude(server: AgentServer, *, keyed: bool = False) -> str:
    return recipes.claude_code(server.url, "scripted-8b", ctx=server.ctx, keyed=keyed)


def test_answers_in_two_processes_are_one_session(place: Place, qwen3: Path, tmp_path: Path) -> None:
    with serving(qwen3, RULES, tmp_path) as server:
        assert place.run(f"{claude(server)} -p 'Say ten.'").out == "Ten it is.\n"
        again = place.run(f"{claude(server)} -p --continue --output-format json 'And eleven?'")
    result = json.loads(again.out)
    assert result["result"] == "Eleven it is."
    assert server.routes == [MESSAGES, MESSAGES]
    assert server.refused == []
    assert [turn.finished.usage.thinking_tokens > 0 for turn in server.turns] == [True, True]
    # The header in its first system block may change with the process, and is no prompt text.
    header = "x-anthropic-billing-header:"
    assert all(asked.body["system"][0]["text"].startswith(header) for asked in server.asked)
    assert not any(header in turn.text for turn in server.turns)
    assert server.turns[1].cached > 0.95
    usage = server.turns[1].finished.usage
    assert result["usage"]["cache_read_input_tokens"] == usage.cached_tokens
    assert result["usage"]["output_tokens"] == usage.completion_tokens
    assert result["modelUsage"]["scripted-8b"]["contextWindow"] == CTX


def test_a_file_is_written_and_read_by_its_own_tools(place: Place, qwen3: Path, tmp_path: Path) -> None:
    file = place.work / "fruit.txt"
    with serving(qwen3, RULES, tmp_path, ctx=recipes.CLAUDE_CODE_NEEDS, keyed=True) as server:
        line = f"{claude(server, keyed=True)} -p 'Write a fruit into {file} .' --allowedTools Read Write"
        said = place.run(line)
    assert file.read_text() == "plum\n"
    assert said.out.startswith("The file says: ") and "plum" in said.out
    assert server.routes == [MESSAGES] * 3
    assert server.refused == []
    assert [turn.finished.reason for turn in server.turns] == ["tool_calls", "tool_calls", "stop"]
    assert {"Bash", "Read", "Write"} <= server.turns[0].tools
    # Its own late system messages aside, each turn adds a call and a result.
    talk = [[role for role in turn.roles if role != "system"] for turn in server.turns]
    assert talk == [["user"] + ["assistant", "tool"] * calls for calls in range(3)]
    thoughts = [block for block in server.asked[1].body["messages"][-2]["content"] if "thinking" in block]
    assert [block["signature"] for block in thoughts] == ["mashbox-local"]
    assert all(turn.cached > 0.95 for turn in server.turns[1:])


def test_a_deferred_tool_is_shown_once_it_was_found(place: Place, qwen3: Path, tmp_path: Path) -> None:
    with serving(qwen3, RULES, tmp_path) as server:
        said = place.run(f"{claude(server)} -p 'Which plans are there?' --allowedTools ToolSearch CronList")
    assert said.out == "Planned: No scheduled jobs.\n"
    assert server.routes == [MESSAGES] * 3
    assert server.refused == []
    assert ["CronList" in turn.tools for turn in server.turns] == [False, True, True]
    # Its definition stands behind the other tools, so that what came before it stays cached.
    assert server.turns[1].cached > 0.6 and server.turns[2].cached > 0.95


def test_models_are_listed_and_counting_fires_at_once(place: Place, qwen3: Path, tmp_path: Path) -> None:
    with serving(qwen3, RULES, tmp_path) as server:
        context = place.run(f"{claude(server)} -p /context").out
        assert "| System prompt |" in context and f"/ {CTX / 1000:.1f}k" in context
        assert server.routes == [COUNT] * len(server.routes) and len(server.routes) > 20
        discovery = {"CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1"}
        assert place.run(f"{claude(server)} -p 'Say ten.'", **discovery).out == "Ten it is.\n"
        assert "GET /v1/models" in server.routes
        # What it asks when no proxy is set: whether the server is there.
        with server.client() as client:
            assert client.head("/api/hello").status_code == 200
    assert server.refused == []
