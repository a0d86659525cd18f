"""``mashbox bench`` against servers of known speed: figures, what is left out, errors, output."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from typer.testing import CliRunner

from mashbox.cli import spawn
from mashbox.cli.main import app
from mashbox.cli.measure import report
from mashbox.cli.measure.report import Report
from tests.cli.pacing import PacedServer, paced
from tests.marks import undisturbed
from tests.patience import PATIENCE

runner = CliRunner()

UNHURRIED = ("--seconds", "60")
"""Time for all that a test looks for, however busy the machine is: the servers' answers bound the work."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("MASHBOX_API_KEY", raising=False)
    return tmp_path


def bench(*words: str) -> Any:
    return runner.invoke(app, ["bench", *words])


def measured(server: PacedServer, *words: str) -> Report:
    """The JSON of a run, in the documented shape and no other."""
    result = bench("--url", server.url, "--json", *words)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    known = msgspec.json.decode(result.stdout, type=Report)
    assert msgspec.to_builtins(known) == json.loads(result.stdout)
    return known


@undisturbed
def test_counts_are_the_servers_and_times_what_it_took() -> None:
    with paced(read=2_000, write=200, slots=2, stop_after=64) as server:
        report = measured(server, "--only", "streams,prompts,cache", "--prompt-tokens", "200", *UNHURRIED)
    assert report.complete and report.left_out == []
    [target] = report.servers
    assert (target.model, target.slots, target.context, target.counts) == ("paced", 2, 4_096, "server")
    assert [row.streams for row in report.decode] == [1, 2]
    one, two = report.decode
    # 200 a second for each stream: never faster than the server's own pauses, slower on a busy machine.
    assert one.tokens_per_second and 30 < one.tokens_per_second <= 201
    assert two.tokens_per_second and 30 < two.tokens_per_second <= 402
    assert one.token_ms and 4.9 < one.token_ms.p50 < 40
    given = [min(64, body["max_tokens"]) for body in server.requests if body["max_tokens"] > 24]
    assert one.tokens + two.tokens == sum(given)
    [prompt] = report.prefill
    assert 150 < prompt.tokens < 250
    assert 0.1 * 2_000 < prompt.tokens_per_second <= 2_000
    assert prompt.first_ms.p50 >= 0.9 * (prompt.tokens - (prompt.cached or 0)) / 2
    [cache] = report.cache
    assert cache.cached_tokens and cache.cached_tokens > 0.8 * cache.prompt_tokens
    assert cache.ratio > 2


@undisturbed
def test_a_session_sends_what_was_said_and_the_cache_is_told() -> None:
    with paced(read=20_000, write=2_000) as server:
        report = measured(server, "--only", "session", *UNHURRIED)
    [session] = report.session
    turns = [body["messages"] for body in server.requests if body["messages"][0]["role"] == "system"]
    assert session.turns == len(turns) > 2
    for before, after in itertools.pairwise(turns):
        assert after[: len(before)] == before
        assert [message["role"] for message in after[len(before) :]] == ["assistant", "user"]
    words = [" ".join(message["content"] for message in turn).split() for turn in turns]
    assert session.prompt_tokens == sum(map(len, words))
    assert session.cached_tokens and session.cached_tokens >= sum(map(len, words[:-1])) - len(words)


@undisturbed
def test_no_prompt_begins_like_another_and_a_seed_brings_them_again() -> None:
    def prompts(server: PacedServer) -> list[str]:
        return [body["messages"][-1]["content"] for body in server.requests]

    runs = []
    for seed in (["--seed", "a"], ["--seed", "a"], []):
        with paced(write=5_000) as server:
            measured(server, "--only", "prompts", *UNHURRIED, *seed)
        runs.append(prompts(server))
    # How many of each length there is time for differs from run to run.
    first, again, other = (first_of_each_length(texts) for texts in runs)
    beginnings = [" ".join(text.split()[:4]) for text in runs[0]]
    assert len(set(beginnings)) == len(beginnings)
    assert len(first.keys() & again.keys()) > 1
    assert all(first[length] == again[length] for length in first.keys() & again.keys())
    assert all(first[length] != other[length] for length in first.keys() & other.keys())


def first_of_each_length(texts: list[str]) -> dict[int, str]:
    return {len(text.split()): text for text in reversed(texts)}


@undisturbed
def test_pieces_of_several_tokens_are_not_counted_as_tokens() -> None:
    with paced(write=300, piece=4, stop_after=80) as server:
        report = measured(server, "--only", "streams", "--concurrency", "1", *UNHURRIED)
    [row] = report.decode
    given = [min(80, body["max_tokens"]) for body in server.requests][2:]
    assert row.token_ms and 2 * row.token_ms.samples < row.tokens == sum(given)
    assert row.token_ms.p50 < 13  # a piece of four takes longer
    assert row.tokens_per_second and row.tokens_per_second <= 330


@undisturbed
def test_a_server_without_usage_is_measured_and_said_to_be_estimated() -> None:
    with paced(write=500, read=5_000, usage=False, stop_after=20) as server:
        report = measured(server, "--only", "streams,prompts,cache", *UNHURRIED)
        table = bench("--url", server.url, "--only", "streams", *UNHURRIED)
    assert report.servers[0].counts == "estimated"
    assert report.decode[0].tokens == 20 * report.decode[0].requests
    assert report.cache[0].cached_tokens is None
    assert any("estimated" in note for note in report.notes)
    assert "sends no usage: tokens are estimated" in table.stdout


@undisturbed
def test_answers_that_end_early_are_measured_as_they_came() -> None:
    with paced(write=300, stop_after=9) as server:
        report = measured(server, "--only", "streams", *UNHURRIED)
    assert all(row.tokens == 9 * row.requests for row in report.decode)
    assert any("ended before their limit" in note for note in report.notes)


@undisturbed
def test_as_many_at_a_time_as_was_asked_for() -> None:
    with paced(write=200, slots=2, stop_after=40) as server:
        report = measured(server, "--concurrency", "5,3", "--only", "streams", *UNHURRIED)
    assert [row.streams for row in report.decode] == [3, 5]
    assert server.most == 5
    assert any("has 2 slots" in note for note in report.notes)


@undisturbed
def test_up_to_the_servers_slots_or_four_where_it_has_none() -> None:
    for slots, expected in ((1, [1]), (6, [1, 2, 4, 6]), (None, [1, 2, 4])):
        with paced(write=2_000, slots=slots, stop_after=40) as server:
            report = measured(server, "--only", "streams", *UNHURRIED)
        assert [row.streams for row in report.decode] == expected


@undisturbed
def test_what_does_not_fit_the_time_or_the_context_is_left_out_and_said() -> None:
    with paced(read=100, write=40, context=700) as server:
        result = bench(
            "--url", server.url, "--seconds", "10", "--prompt-tokens", "100,650,2000,100000", "--json"
        )
    report = msgspec.json.decode(result.stdout, type=Report)
    # The long prompts alone would take 20 and 1,000 seconds.
    assert report.seconds < 18
    assert any("prompt of 2,000 tokens" in line for line in report.left_out)
    assert any("prompt of 100,000 tokens" in line for line in report.left_out)
    assert report.decode and report.prefill[0].tokens < 150


@pytest.mark.slow
@undisturbed
def test_the_usual_run_ends_within_a_minute_at_15_tokens_a_second() -> None:
    began = time.monotonic()
    with paced(read=150, write=15, slots=4, together=False) as server:
        report = measured(server)
    assert time.monotonic() - began < 60
    assert report.complete
    assert [row.streams for row in report.decode] == [1, 2, 4]
    assert all(row.tokens_per_second and 10 < row.tokens_per_second < 15.5 for row in report.decode)
    assert report.prefill and report.cache and report.session


@undisturbed
def test_a_server_that_refuses_so_many_at_a_time_is_measured_with_fewer() -> None:
    with paced(write=200, slots=4, refuse_from=2, stop_after=40) as server:
        report = measured(server, "--only", "streams", *UNHURRIED)
    assert [row.streams for row in report.decode] == [1, 2]
    assert report.left_out == ["4 streams: the server refused it: The line is full."]


@undisturbed
def test_a_table_a_plot_and_words_for_people_on_stdout(tmp_path: Path) -> None:
    plot = tmp_path / "speed.svg"
    with paced(read=5_000, write=500, stop_after=100) as server:
        result = bench("--url", server.url, *UNHURRIED, "--plot", str(plot))
    assert result.exit_code == 0, result.stderr
    assert "█" in result.stdout and "tokens/s" in result.stdout
    for words in ("Answers given at the same time", "New prompts that no cache knew", "agent's session"):
        assert words in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert result.stderr == f"Drawn into {plot}.\n"
    assert _drawn(plot) == {
        *(f"{name}{kind}" for name in [server.url[7:]] for kind in ("", " p50", " p95")),
    }


def _drawn(plot: Path) -> set[str]:
    """Names of the lines in an SVG; each has a point for every value that its title tells."""
    root = ElementTree.fromstring(plot.read_text(encoding="utf-8"))
    names = set()
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        for title in path.iter("{http://www.w3.org/2000/svg}title"):
            name, _, values = (title.text or "").partition(" (")
            names.add(name)
            assert path.attrib["d"].count("L") == values.count(": ") - 1
    return names


@undisturbed
def test_two_servers_are_compared_in_turn(tmp_path: Path) -> None:
    plot = tmp_path / "two.svg"
    words = [*UNHURRIED, "--only", "streams,prompts", "--prompt-tokens", "300", "--plot", str(plot)]
    bound = {"stop_after": 40}
    with paced(read=4_000, write=400, **bound) as quick, paced(read=2_000, write=100, **bound) as slow:
        result = bench("--url", quick.url, "--compare", slow.url, "--json", *words)
    report = msgspec.json.decode(result.stdout, type=Report)
    assert [server.url for server in report.servers] == [quick.url, slow.url]
    ratios = {row.figure: row for row in report.ratios}
    rate = ratios["tokens/s, 1 stream"]
    assert rate.pairs == 2 and rate.low <= rate.median <= rate.high
    # Four and two times as fast; how much of that is seen depends on what else the machine does.
    assert rate.median > 1
    assert ratios["prompt of 300 tokens"].median > 1
    # The same texts of the same lengths to both.
    assert [body["max_tokens"] for body in quick.requests] == [body["max_tokens"] for body in slow.requests]
    stories = [{body["messages"][0]["content"] for body in each.requests} for each in (quick, slow)]
    assert stories[0] == stories[1]
    assert len(_drawn(plot)) == 6


@undisturbed
def test_a_server_beside_itself_gets_other_texts() -> None:
    with paced(write=1_000, stop_after=40) as server:
        words = ["--only", "streams", "--concurrency", "1", *UNHURRIED, "--json"]
        result = bench("--url", server.url, "--compare", server.url, *words)
    assert result.exit_code == 0, result.stderr
    first = [body["messages"][0]["content"] for body in server.requests]
    assert len(set(first)) == len(first)
    names = [server["name"] for server in json.loads(result.stdout)["servers"]]
    assert len(set(names)) == 2


@undisturbed
def test_plain_prompts_for_models_without_a_template() -> None:
    with paced(write=500, stop_after=40) as server:
        report = measured(server, "--completions", "--only", "streams,session", *UNHURRIED)
    assert all("prompt" in body and "messages" not in body for body in server.requests)
    assert report.decode[0].tokens and report.session


def test_errors_are_one_line_with_a_remedy(tmp_path: Path) -> None:
    def said(status: int, *words: str) -> str:
        result = bench(*words)
        assert (result.exit_code, result.stdout) == (status, "")
        assert result.stderr.count("\n") == 1
        return str(result.stderr)

    assert "No server answers at http://127.0.0.1:1" in said(1, "--url", "127.0.0.1:1")
    with paced(key="secret") as server:
        assert "Give --api-key, or set MASHBOX_API_KEY" in said(1, "--url", server.url)
    with paced() as server:
        assert "has paced, not other" in said(1, "other", "--url", server.url)
        assert "--ctx is for a server that bench starts" in said(2, "--url", server.url, "--ctx", "512")
    with paced(break_after=0) as server:
        assert "broke off in the middle of an answer" in said(1, "--url", server.url)
    assert "--concurrency '1,x' is no list" in said(2, "--concurrency", "1,x")
    assert "--prompt-tokens '0' is no list" in said(2, "--prompt-tokens", "0")
    assert "--only 'speed' is no part" in said(2, "--only", "speed")
    assert "Name a FILE.svg" in said(2, "--plot", "a.png")
    assert "no such folder" in said(2, "--plot", str(tmp_path / "none" / "a.svg"))
    assert "--compare-model needs a second server" in said(2, "--compare-model", "x")


def test_a_key_opens_the_server_and_the_other_one_does_not_get_it() -> None:
    limits = {"write": 1_000, "stop_after": 40}
    with paced(key="secret", **limits) as server, paced(key="other", **limits) as second:
        words = ["--only", "streams", "--concurrency", "1", *UNHURRIED]
        assert bench("--url", server.url, "--api-key", "secret", *words).exit_code == 0
        both = ["--url", server.url, "--api-key", "secret", "--compare", second.url, *words]
        assert "--compare-key for --compare" in bench(*both).stderr
        assert bench(*both, "--compare-key", "other").exit_code == 0


@undisturbed
def test_what_was_measured_before_a_server_breaks_off_is_printed() -> None:
    with paced(write=300, break_after=5, stop_after=40) as server:
        result = bench("--url", server.url, "--json", "--only", "streams,prompts", *UNHURRIED)
    assert result.exit_code == 1
    assert "broke off" in result.stderr
    report = msgspec.json.decode(result.stdout, type=Report)
    assert not report.complete and report.decode[0].streams == 1 and report.prefill == []


def test_ctrl_c_prints_what_was_measured() -> None:
    with paced(write=60, slots=1) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "mashbox", "bench", "--url", server.url, "--json", "--seconds", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not any(body["max_tokens"] == 1 for body in server.requests):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    report = msgspec.json.decode(out, type=Report)
    assert not report.complete and report.decode[0].streams == 1
    assert err == ""


def test_without_url_a_server_is_started_with_the_options_and_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = (sys.executable, "-m", "tests.cli.fake_mashbox")
    monkeypatch.setattr(spawn, "COMMAND", fake)
    monkeypatch.setenv("FAKE_PACED", str(home / "words"))
    words = ["tiny", "--ctx", "512", "--concurrency", "1,3", "--only", "streams", *UNHURRIED, "--json"]
    result = bench(*words)
    assert result.exit_code == 0, result.stderr
    started = json.loads((home / "words").read_text())
    assert started["words"][:2] == ["run", "tiny"]
    for option in ("--ctx 512", "--slots 3"):
        assert option in " ".join(started["words"])
    report = msgspec.json.decode(result.stdout, type=Report)
    assert report.servers[0].own
    with pytest.raises(ProcessLookupError):
        os.kill(started["pid"], 0)


def test_every_field_of_the_json_is_described() -> None:
    text = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")
    shape = text[text.index("## `--json`") :]
    rows: list[Any] = [report.Report, report.Server, report.Decode, report.Prefill, report.Cache]
    for struct in (*rows, report.Session, report.Ratio, report.Spread):
        for field in struct.__struct_fields__:
            assert re.search(rf"[`\"]{field}(\[\])?[`\"]", shape), f"{struct.__name__}.{field}"


@pytest.mark.real
@pytest.mark.slow
def test_the_starter(starter_gguf: Path, tmp_path: Path) -> None:
    words = [str(starter_gguf), "--ctx", "2048", "--concurrency", "1,2", "--prompt-tokens", "128", "--json"]
    result = bench(*words, *UNHURRIED)
    assert result.exit_code == 0, result.stderr
    report = msgspec.json.decode(result.stdout, type=Report)
    assert report.servers[0].counts == "server"
    one = report.decode[0]
    assert one.streams == 1 and one.tokens > 0 and one.tokens_per_second and one.tokens_per_second > 1
    assert report.prefill[0].tokens > 90
    for row in report.cache:
        assert row.cached_tokens and row.cached_tokens > 0.8 * row.prompt_tokens
