"""Health and models."""

import msgspec
import pytest

from mashbox.engine.engine import EngineStatus
from tests.server.live import live
from tests.server.scripted import CARD, ScriptedEngine

LOADING = EngineStatus(state="loading", stage="reading weights", progress=0.5)


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/"])
def test_health_is_503_while_loading_and_200_when_ready(path: str) -> None:
    engine = ScriptedEngine(status=LOADING)
    with live(engine) as server, server.client() as client:
        loading = client.get(path)
        engine.become(None)
        ready = client.get(path)
    assert (loading.status_code, loading.json()["status"]) == (503, "loading")
    assert loading.json()["live_rows"] is None
    assert loading.json()["loading"] == {"stage": "reading weights", "share": 0.5}
    assert ready.status_code == 200
    assert ready.json() == {
        "status": "ok",
        "live_rows": 0,
        "waiting": 0,
        "cache_bytes": 0,
        "host_cache_bytes": 0,
        "snapshot_bytes": 0,
        "host_cache_cap_bytes": 0,
        "host_cache_evictions": 0,
        "cache_namespace": None,
        "deployment_id": None,
        "component_set_sha": None,
        "certification": "not_certified",
        "compiles_after_ready": 0,
        "routed_experts": None,
        "engine": None,
        "engine_why": None,
        "worker_pid": 4242,
        "worker_restarts": 0,
    }


def test_a_certified_engine_says_so() -> None:
    engine = ScriptedEngine(status=EngineStatus(state="ok", certified=True))
    with live(engine) as server, server.client() as client:
        assert client.get("/health").json()["certification"] == "certified"


def test_head_answers_on_any_path_without_a_body() -> None:
    engine = ScriptedEngine(status=LOADING)
    paths = ["/", "/v1/health", "/v1/messages", "/api/hello", "//x"]
    with live(engine, api_keys=("k",)) as server, server.client() as client:
        loading = [client.head(path) for path in paths]
        engine.become(None)
        ready = [client.head(path) for path in paths]
    assert [(answer.status_code, answer.content) for answer in loading] == [(503, b"")] * len(paths)
    assert [(answer.status_code, answer.content) for answer in ready] == [(200, b"")] * len(paths)


def test_models_while_loading_serve_both_families() -> None:
    with live(ScriptedEngine(status=LOADING)) as server, server.client() as client:
        page = client.get("/v1/models?limit=1000")
        one = client.get("/v1/models/scripted")
        other = client.get("/v1/models/other")
    assert page.status_code == one.status_code == 200
    body = page.json()
    assert body["object"] == "list"
    assert (body["first_id"], body["last_id"], body["has_more"]) == ("scripted", "scripted", False)
    assert body["data"] == [one.json()]
    model = one.json()
    assert (model["object"], model["created"], model["owned_by"]) == ("model", 0, "mashbox-labs")
    assert (model["max_model_len"], model["slots"], model["weights"]) == (4096, 2, "scripted.gguf")
    assert (model["type"], model["display_name"]) == ("model", "scripted")
    assert (model["engine"], model["engine_why"]) == (None, None)
    assert other.status_code == 404
    assert other.json()["error"]["code"] == "model_not_found"


def test_what_the_loaded_model_has_counts_not_what_was_planned() -> None:
    """Fewer slots and a shorter context, where another engine runs than they were planned for."""
    engine = ScriptedEngine(status=LOADING)
    with live(engine) as server, server.client() as client:
        assert client.get("/v1/models/scripted").json()["slots"] == 2
        why = "its layer 1 differs"
        engine.card = msgspec.structs.replace(CARD, slots=1, max_model_len=64, engine="exact", engine_why=why)
        engine.become(None)
        model = client.get("/v1/models/scripted").json()
        assert (model["slots"], model["max_model_len"]) == (1, 64)
        assert (model["engine"], model["engine_why"]) == ("exact", why)
        assert server.service.line.slots == 1
        assert 'num_blocks="1"' in client.get("/metrics").text


@pytest.mark.parametrize("path", ["org/repo", "org%2Frepo", "org%2frepo"])
def test_a_model_id_may_hold_slashes(path: str) -> None:
    engine = ScriptedEngine(card=msgspec.structs.replace(CARD, id="org/repo"))
    with live(engine) as server, server.client() as client:
        answer = client.get(f"/v1/models/{path}")
    assert answer.status_code == 200
    assert answer.json()["id"] == "org/repo"


def test_the_engine_starts_and_stops_with_the_server() -> None:
    engine = ScriptedEngine()
    with live(engine):
        assert engine.started
        assert not engine.stopped
    assert engine.stopped
