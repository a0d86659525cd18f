"""``/v1/page``: what the catalogue knows of the model."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mashbox import catalog
from mashbox.server.page_state import PageState
from tests.server.described import facts
from tests.server.live import live
from tests.server.schema import COMPONENTS, check
from tests.server.scripted import CARD, ScriptedEngine


def state(engine: ScriptedEngine) -> Any:
    with live(engine) as server, server.client() as client:
        answer = client.get("/v1/page")
        check(answer)
        return answer.json()


def of(model: str) -> Any:
    return state(ScriptedEngine(card=msgspec.structs.replace(CARD, id=model)))


def test_a_model_without_an_entry_has_no_facts() -> None:
    none: dict[str, Any] = {"title": None, "thinking": None, "plain_sampling": {}, "thinking_sampling": {}}
    assert of("scripted") == none


def test_what_the_makers_recommend_is_told_by_the_fields_of_a_request() -> None:
    spec = next(one for one in catalog.load().models.values() if one.sampling and one.sampling.thinking)
    assert spec.sampling and spec.sampling.plain and spec.sampling.thinking
    told = of(spec.id)
    assert told["title"] == spec.title
    assert told["thinking"] == spec.thinking
    assert told["plain_sampling"] == spec.sampling.plain.fields() != {}
    assert told["thinking_sampling"] == spec.sampling.thinking.fields() != {}


def test_a_broken_file_of_entries_takes_nothing_else_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(catalog, "user_path", lambda: tmp_path / "models.json")
    (tmp_path / "models.json").write_text(json.dumps({"version": 1, "models": [{}]}))
    assert of("smollm2-135m")["title"] is None


def test_it_asks_for_the_key() -> None:
    with live(ScriptedEngine(), api_keys=("secret",)) as server, server.client() as client:
        answer = client.get("/v1/page")
        check(answer)
        assert answer.status_code == 401


def test_the_description_is_the_struct() -> None:
    schema = msgspec.json.schema(PageState)
    told = facts(COMPONENTS["schemas"]["PageState"], COMPONENTS["schemas"])
    assert set(told) == set(facts(schema, schema["$defs"]))
