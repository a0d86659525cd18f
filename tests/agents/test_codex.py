"""Codex, headless, started by the line that ``mashbox run`` prints."""

from pathlib import Path

from mashbox.cli import recipes
from tests.agents.marks import MARKS
from tests.agents.place import Place
from tests.agents.server import AgentServer, serving
from tests.scripted_model.script import Rule, call

pytestmark = MARKS

RESPONSES = "POST /v1/responses"
COMMAND = "echo plum > fruit.txt; cat fruit.txt"
PATCH = "*** Begin Patch\n*** Add File: fruit.txt\n+plum\n*** End Patch\n"
SCRIPT = f"const done = await tools.exec_command({{cmd: '{COMMAND}'}}); text(done.output);"

TALK = [Rule(asked="Say ten", say="Ten it is."), Rule(asked="And eleven", say="Eleven it is.")]


def task(*calls: str) -> list[Rule]:
    """Rules by which the calls are made one after the other, and the last one's result is told."""
    rules = [Rule(asked="a fruit", results=number, say=say) for number, say in enumerate(calls)]
    return [*rules, Rule(asked="a fruit", results=len(calls), say="It says: {result}")]


def codex(server: AgentServer, place: Place, *, keyed: bool = False) -> str:
    line = recipes.codex(server.url, server.model.card.id, ctx=server.ctx, keyed=keyed)
    return f"{line} --sandbox {sandbox(place)} exec --skip-git-repo-check"


def sandbox(place: Place) -> str:
    """Codex's own sandbox where this machine lets it be built; in many containers it can't be."""
    checked = place.run("codex sandbox -- true && echo works || true")
    return "workspace-write" if checked.out == "works\n" else "danger-full-access"


def check_turns(server: AgentServer, calls: int) -> None:
    """One request for each call and one for the answer, all but the first mostly from the cache."""
    assert server.routes == [RESPONSES] * (calls + 1)
    assert server.refused == []
    assert [turn.finished.reason for turn in server.turns] == ["tool_calls"] * calls + ["stop"]
    begin = server.turns[0].roles
    assert [turn.roles for turn in server.turns] == [
        begin + ["assistant", "tool"] * done for done in range(calls + 1)
    ]
    assert all(turn.cached > 0.95 for turn in server.turns[1:])


def test_answers_in_two_processes_are_one_session(place: Place, qwen3: Path, tmp_path: Path) -> None:
    with serving(qwen3, TALK, tmp_path) as server:
        assert place.run(f"{codex(server, place)} 'Say ten.'").out == "Ten it is.\n"
        assert place.run(f"{codex(server, place)} resume --last 'And eleven?'").out == "Eleven it is.\n"
    assert server.routes == [RESPONSES, RESPONSES]
    assert server.refused == []
    assert server.turns[1].roles == [*server.turns[0].roles, "assistant", "user"]
    assert server.turns[1].cached > 0.95
    keys = [asked.body["prompt_cache_key"] for asked in server.asked]
    assert [turn.request.session for turn in server.turns] == keys and len(set(keys)) == 1


def test_a_file_is_written_by_its_shell(place: Place, qwen3: Path, tmp_path: Path) -> None:
    rules = task(call("exec_command", cmd=COMMAND))
    with serving(qwen3, rules, tmp_path, ctx=recipes.CODEX_NEEDS, keyed=True) as server:
        said = place.run(f"{codex(server, place, keyed=True)} 'Write a fruit into fruit.txt.'")
    assert (place.work / "fruit.txt").read_text() == "plum\n"
    assert said.out.startswith("It says: ") and "plum" in said.out
    check_turns(server, 1)
    # Functions of its namespace are shown, what would run on OpenAI's side is not.
    assert {"exec_command", "spawn_agent"} <= server.turns[0].tools
    assert "web_search" in {tool["type"] for tool in server.asked[0].body["tools"]}
    assert "web_search" not in server.turns[0].tools


def test_a_file_is_written_by_its_custom_tool(place: Place, qwen3: Path, tmp_path: Path) -> None:
    """For names of OpenAI's fifth generation it brings ``apply_patch``, whose text has a grammar."""
    with serving(qwen3, task(call("apply_patch", input=PATCH)), tmp_path, name="gpt-5.5") as server:
        said = place.run(f"{codex(server, place)} 'Write a fruit into fruit.txt.'")
    assert (place.work / "fruit.txt").read_text() == "plum\n"
    assert "A fruit.txt" in said.out
    check_turns(server, 1)
    called, result = server.asked[1].body["input"][-2:]
    assert (called["type"], called["input"]) == ("custom_tool_call", PATCH)
    assert result["type"] == "custom_tool_call_output"
    assert all(turn.finished.usage.thinking_tokens for turn in server.turns)


def test_tools_come_as_an_input_item_in_namespaces(place: Place, qwen3: Path, tmp_path: Path) -> None:
    """For names of OpenAI's sixth generation: a namespaced function, then a namespaced custom tool."""
    rules = task(call("sleep", duration_ms=1), call("exec", input=SCRIPT))
    with serving(qwen3, rules, tmp_path, name="gpt-6-sol") as server:
        said = place.run(f"{codex(server, place)} 'Write a fruit into fruit.txt.'")
    assert (place.work / "fruit.txt").read_text() == "plum\n"
    assert said.out.startswith("It says: ") and "plum" in said.out
    check_turns(server, 2)
    assert not server.asked[0].body.get("tools")
    calls = [item for item in server.asked[2].body["input"] if "namespace" in item]
    assert [(item["type"], item["namespace"], item["name"]) for item in calls] == [
        ("function_call", "clock", "sleep"),
        ("custom_tool_call", "functions", "exec"),
    ]
