"""The metrics page, scraped over HTTP and read by prometheus-client's own parser."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.parser import text_string_to_metric_families

from mashbox.engine.engine import EngineStatus
from mashbox.engine.events import Thinking, ToolCall
from mashbox.engine.request import Request
from mashbox.errors import WorkerFault
from mashbox.server.metrics import Histogram, token_bounds
from tests.patience import PATIENCE
from tests.server.live import Live, eventually, live
from tests.server.scripted import CARD, Hold, Script, ScriptedEngine, finished

CACHED = msgspec.structs.replace(CARD, prefix_cache=True)
COMPLETIONS = "/v1/completions"

COUNTERS = {
    "mashbox:prompt_tokens_total",
    "mashbox:generation_tokens_total",
    "mashbox:prefix_cache_queries_total",
    "mashbox:prefix_cache_hits_total",
    "mashbox:num_preemptions_total",
    "mashbox:request_success_total",
    "mashbox:worker_restarts_total",
    "mashbox:host_cache_evictions_total",
    "mashbox:spec_decode_num_drafts_total",
    "mashbox:spec_decode_num_draft_tokens_total",
    "mashbox:spec_decode_num_accepted_tokens_total",
    "mashbox:spec_decode_num_accepted_tokens_per_pos_total",
}
GAUGES = {
    "mashbox:num_requests_running",
    "mashbox:num_requests_waiting",
    "mashbox:kv_cache_usage_perc",
    "mashbox:cache_config_info",
    "mashbox:programs_compiled_after_ready",
    "mashbox:host_cache_bytes",
    "mashbox:host_cache_cap_bytes",
    "mashbox:snapshot_bytes",
}
ONCE_A_REQUEST = {
    "mashbox:e2e_request_latency_seconds",
    "mashbox:request_queue_time_seconds",
    "mashbox:request_inference_time_seconds",
    "mashbox:request_prefill_time_seconds",
    "mashbox:request_decode_time_seconds",
    "mashbox:request_prompt_tokens",
    "mashbox:request_prefill_kv_computed_tokens",
    "mashbox:request_generation_tokens",
    "mashbox:request_max_num_generation_tokens",
    "mashbox:request_params_n",
}
HISTOGRAMS = ONCE_A_REQUEST | {
    "mashbox:time_to_first_token_seconds",
    "mashbox:inter_token_latency_seconds",
    "mashbox:time_per_output_token_seconds",
    "mashbox:request_time_per_output_token_seconds",
    "mashbox:request_params_max_tokens",
}


class Page:
    """One scrape."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.families = list(text_string_to_metric_families(answer.text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def __getitem__(self, name: str) -> float:
        """The one sample of that name, or the sum over its labels."""
        values = [sample.value for sample in self.samples if sample.name == name]
        assert values, f"there is no {name}"
        return sum(values)

    def ended(self) -> dict[str, float]:
        found = [sample for sample in self.samples if sample.name == "mashbox:request_success_total"]
        return {sample.labels["finished_reason"]: sample.value for sample in found}


def scrape(server: Live) -> Page:
    with server.client() as client:
        return Page(client.get("/metrics"))


def complete(server: Live, prompt: str = "x", **fields: object) -> httpx.Response:
    with server.client() as client:
        return client.post(COMPLETIONS, json={"prompt": prompt, **fields})


def test_every_family_is_there_while_loading_and_named_as_vllm_names_it() -> None:
    loading = EngineStatus(state="loading")
    with live(ScriptedEngine(status=loading)) as server:
        page = scrape(server)
    kinds: dict[str, set[str]] = {}
    for family in page.families:
        kinds.setdefault(family.type, set()).add(family.name)
    assert {f"{name}_total" for name in kinds["counter"]} == COUNTERS
    assert kinds["gauge"] == GAUGES
    assert kinds["histogram"] == HISTOGRAMS
    assert set(kinds) == {"counter", "gauge", "histogram"}
    assert not [sample for sample in page.samples if sample.name.endswith("_created")]
    assert not [sample for sample in page.samples if sample.name == "mashbox:programs_compiled_after_ready"]
    assert page.ended() == {"stop": 0, "length": 0, "abort": 0, "error": 0}


def test_speculation_is_told_by_runs_tokens_and_places() -> None:
    status = EngineStatus(state="ok", drafts=5, drafted=12, accepted=(4, 3, 1))
    with live(ScriptedEngine(status=status)) as server:
        found = {
            (
                sample.name.removeprefix("mashbox:spec_decode_num_"),
                sample.labels.get("position"),
            ): sample.value
            for sample in scrape(server).samples
            if "spec_decode" in sample.name
        }
    assert found == {
        ("drafts_total", None): 5,
        ("draft_tokens_total", None): 12,
        ("accepted_tokens_total", None): 8,
        ("accepted_tokens_per_pos_total", "0"): 4,
        ("accepted_tokens_per_pos_total", "1"): 3,
        ("accepted_tokens_per_pos_total", "2"): 1,
    }


def test_labels_tell_the_model_and_the_reason_and_nothing_of_who_asked() -> None:
    keys = {"authorization": "Bearer the-key", "x-session-id": "the-session"}
    with live(ScriptedEngine(), api_keys=("the-key",)) as server, server.client(headers=keys) as client:
        for path in (COMPLETIONS, "/v1/chat/completions"):
            body = {"prompt": "the-prompt", "messages": [{"role": "user", "content": "the-prompt"}]}
            assert client.post(path, json={**body, "prompt_cache_key": "the-session"}).status_code == 200
        page = Page(client.get("/metrics"))
        text = client.get("/metrics").text
        refused = httpx.get(f"{server.url}/metrics", trust_env=False)
    allowed = {"model_name", "finished_reason", "le"}
    for sample in page.samples:
        if sample.name != "mashbox:cache_config_info":
            assert set(sample.labels) <= allowed
            assert sample.labels.get("model_name", "scripted") == "scripted"
    assert "the-" not in text
    assert refused.status_code == 401


def test_the_cache_is_described_in_slots() -> None:
    with live(ScriptedEngine(card=CACHED)) as server:
        page = scrape(server)
    (info,) = [sample for sample in page.samples if sample.name == "mashbox:cache_config_info"]
    assert info.value == 1
    assert info.labels == {
        "block_size": "4096",
        "num_blocks": "2",
        "num_gpu_blocks": "2",
        "enable_prefix_caching": "True",
        "cache_ram_mib": "0",
    }


def test_figures_of_one_request() -> None:
    with live(ScriptedEngine(["a", "b", "c"], card=CACHED)) as server:
        complete(server, max_tokens=100)
        page = scrape(server)
    assert page["mashbox:prompt_tokens_total"] == 5
    assert page["mashbox:generation_tokens_total"] == 3
    assert page["mashbox:prefix_cache_queries_total"] == 5
    assert page["mashbox:prefix_cache_hits_total"] == 2
    assert page["mashbox:request_prefill_kv_computed_tokens_sum"] == 3
    assert page["mashbox:request_params_max_tokens_sum"] == 100
    assert page["mashbox:request_prefill_time_seconds_sum"] == pytest.approx(0.010)
    assert page["mashbox:request_decode_time_seconds_sum"] == pytest.approx(0.040)
    assert page["mashbox:request_inference_time_seconds_sum"] == pytest.approx(0.050)
    for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
        assert page[f"mashbox:{name}_count"] == 2
        assert page[f"mashbox:{name}_sum"] == pytest.approx(0.040)
    assert page["mashbox:request_time_per_output_token_seconds_sum"] == pytest.approx(0.020)
    assert page["mashbox:request_time_per_output_token_seconds_count"] == 1


@pytest.mark.parametrize("limit", [4097, 10**400])
def test_a_limit_beyond_the_context_counts_as_the_context(limit: int) -> None:
    with live(ScriptedEngine()) as server:
        assert complete(server, max_tokens=limit).status_code == 200
        assert scrape(server)["mashbox:request_params_max_tokens_sum"] == 4096


def test_without_a_prefix_cache_nothing_is_looked_up() -> None:
    with live(ScriptedEngine()) as server:
        complete(server)
        page = scrape(server)
    assert page["mashbox:prefix_cache_queries_total"] == page["mashbox:prefix_cache_hits_total"] == 0


def test_running_and_waiting_requests_show_with_their_tokens_before_they_end() -> None:
    hold = Hold()
    with live(ScriptedEngine(["a", "b", hold, "c"])) as server, ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(complete, server) for _ in range(3)]
        eventually(lambda: server.service.line.waiting == 1 and server.service.engine.running == 2)
        assert hold.reached.wait(PATIENCE)
        eventually(lambda: scrape(server)["mashbox:generation_tokens_total"] == 4)
        page = scrape(server)
        hold.release()
        assert [answer.result().status_code for answer in answers] == [200] * 3
        after = scrape(server)
    assert page["mashbox:num_requests_running"] == 2
    assert page["mashbox:num_requests_waiting"] == 1
    assert page["mashbox:kv_cache_usage_perc"] == 1.0
    assert page["mashbox:prompt_tokens_total"] == 10
    assert sum(page.ended().values()) == 0
    assert after["mashbox:generation_tokens_total"] == 9
    assert after["mashbox:prompt_tokens_total"] == 15
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert after[f"mashbox:{name}"] == 0


def test_more_pieces_than_tokens_never_turn_the_counter_back() -> None:
    hold = Hold()
    script: Script = [Thinking("so"), "yes", hold, finished(5, 1)]
    with live(ScriptedEngine(script)) as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(complete, server)
        assert hold.reached.wait(PATIENCE)
        eventually(lambda: scrape(server)["mashbox:generation_tokens_total"] == 2)
        hold.release()
        answer.result()
        assert scrape(server)["mashbox:generation_tokens_total"] == 2
        complete(server)
        assert scrape(server)["mashbox:generation_tokens_total"] == 2


def test_the_first_token_of_a_late_call_is_dated_by_the_engine() -> None:
    with live(ScriptedEngine([0.5, ToolCall("call_1", "f", "{}"), finished(5, 21)])) as server:
        began = time.monotonic()
        complete(server)
        took = time.monotonic() - began
        page = scrape(server)
    # 20 tokens of 20 ms after the first one, which came with the call 0.5 s after the start
    assert 0.05 < page["mashbox:time_to_first_token_seconds_sum"] < took - 0.35


ENDS: list[tuple[str, Script]] = [
    ("stop", ["a"]),
    ("stop", ["a", ToolCall("call_1", "f", "{}")]),
    ("length", ["a", finished(5, 1, reason="length")]),
    ("error", [WorkerFault("The device failed.")]),
    ("error", ["a", WorkerFault("The device failed.")]),
    ("error", ["a", ValueError("unforeseen")]),
]


@pytest.mark.parametrize(("reason", "script"), ENDS)
@pytest.mark.parametrize("stream", [False, True])
def test_every_end_is_counted_once_under_its_reason(reason: str, script: Script, stream: bool) -> None:
    with live(ScriptedEngine(script)) as server:
        complete(server, stream=stream)
        page = scrape(server)
    assert page.ended() == {**dict.fromkeys(("stop", "length", "abort", "error"), 0), reason: 1}
    whole = reason in ("stop", "length")
    assert page["mashbox:e2e_request_latency_seconds_count"] == whole


@pytest.mark.parametrize("waiting", [False, True])
def test_a_client_that_leaves_is_an_abort(waiting: bool) -> None:
    hold = Hold()
    with live(ScriptedEngine(["a", hold])) as server, ThreadPoolExecutor(2) as pool:
        line = server.service.line
        held = [pool.submit(complete, server) for _ in range(2)] if waiting else []
        eventually(lambda: line.running == len(held))
        with server.connect() as sock:
            server.post_raw(COMPLETIONS, {"prompt": "x", "stream": True}, sock)
            eventually(lambda: line.waiting == 1 if waiting else hold.reached.is_set())
        eventually(lambda: scrape(server).ended()["abort"] == 1)
        hold.release()
        for answer in held:
            answer.result()
        ended = scrape(server).ended()
    assert ended == {"stop": len(held), "length": 0, "abort": 1, "error": 0}


def test_what_is_refused_is_no_request() -> None:
    with live(ScriptedEngine()) as server:
        assert complete(server, temperature=9).status_code == 400
        assert complete(server, model="other").status_code == 404
        page = scrape(server)
    assert sum(page.ended().values()) == 0
    assert page["mashbox:prompt_tokens_total"] == 0


def test_restarts_programs_and_kept_prompts_are_the_engines() -> None:
    status = EngineStatus(
        state="ok",
        worker_restarts=3,
        compiles_after_ready=0,
        host_cache_bytes=100,
        snapshot_bytes=20,
        host_cache_evictions=7,
    )
    card = msgspec.structs.replace(CARD, cache_ram_mib=2)
    with live(ScriptedEngine(status=status, card=card)) as server:
        page = scrape(server)
    assert page["mashbox:host_cache_bytes"] == 100
    assert page["mashbox:snapshot_bytes"] == 20
    assert page["mashbox:host_cache_cap_bytes"] == 2 << 20
    assert page["mashbox:host_cache_evictions_total"] == 7
    assert page["mashbox:worker_restarts_total"] == 3
    assert page["mashbox:programs_compiled_after_ready"] == 0


def test_scrapes_under_load_parse_never_go_back_and_add_up() -> None:
    def script(request: Request) -> Script:
        count = int(str(request.prompt))
        return [step for _ in range(count) for step in ("x", 0.001)]

    counts = [3 + n % 5 for n in range(24)]
    pages: list[Page] = []
    done = threading.Event()

    def watch(server: Live) -> None:
        while not done.is_set():
            pages.append(scrape(server))

    with live(ScriptedEngine(script, card=CACHED)) as server, ThreadPoolExecutor(9) as pool:
        watching = pool.submit(watch, server)
        asked = [
            pool.submit(complete, server, str(count), stream=n % 3 > 0, max_tokens=50)
            for n, count in enumerate(counts)
        ]
        assert [answer.result().status_code for answer in asked] == [200] * len(counts)
        done.set()
        watching.result()
        end = scrape(server)
    assert len(pages) > 2
    for before, after in zip(pages, [*pages[1:], end], strict=True):
        # Nothing was guessed here, so there is no place in a run to count for.
        for name in COUNTERS - {"mashbox:spec_decode_num_accepted_tokens_per_pos_total"}:
            assert after[name] >= before[name]
    assert end.ended() == {"stop": len(counts), "length": 0, "abort": 0, "error": 0}
    assert end["mashbox:generation_tokens_total"] == sum(counts)
    assert end["mashbox:prompt_tokens_total"] == end["mashbox:prefix_cache_queries_total"] == 5 * len(counts)
    assert end["mashbox:prefix_cache_hits_total"] == 2 * len(counts)
    for name in ONCE_A_REQUEST | {"mashbox:time_to_first_token_seconds", "mashbox:request_params_max_tokens"}:
        assert end[f"{name}_count"] == len(counts), name
    assert end["mashbox:inter_token_latency_seconds_count"] == sum(counts) - len(counts)
    assert end["mashbox:request_generation_tokens_sum"] == sum(counts)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 5.0, 7.0, math.pi])))
def test_buckets_are_those_of_prometheus_client(values: list[float]) -> None:
    ours, theirs = Histogram("", (1.0, 2.0, 5.0)), TheirHistogram("h", "h", buckets=(1, 2, 5), registry=None)
    for value in values:
        ours.add(value)
        theirs.observe(value)
    (family,) = theirs.collect()
    theirs_buckets = [(s.labels["le"], s.value) for s in family.samples if s.name == "h_bucket"]
    assert ours.buckets() == theirs_buckets
    assert ours.total == pytest.approx(sum(values))


@pytest.mark.parametrize(
    ("most", "bounds"), [(1, [1]), (19, [1, 2, 5, 10]), (100, [1, 2, 5, 10, 20, 50, 100])]
)
def test_bounds_of_token_counts_reach_the_context(most: int, bounds: list[float]) -> None:
    assert token_bounds(most) == bounds
