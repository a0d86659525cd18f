"""schemathesis asks a live server what its description allows, and what it doesn't.

It goes through the examples, through the bounds of every schema one by one, and through random requests.
"""

from collections import defaultdict
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from mashbox.engine.events import Thinking, ToolCall
from mashbox.server.describe import description
from tests.server.live import live
from tests.server.schema import check_response
from tests.server.scripted import CARD, Script, ScriptedEngine
from tests.server.sharpened import sharpened

pytestmark = pytest.mark.slow

SCRIPT: Script = [Thinking("hm"), "so", ToolCall("call_1", "f", "{}")]
DOCUMENT = description(CARD.id)
for _operation in (operation for path in DOCUMENT["paths"].values() for operation in path.values()):
    # schemathesis reads a stream's schema as that of an event with its name; it is that of the event's data,
    # which check_response holds to it.
    _operation["responses"]["200"].get("content", {}).get("text/event-stream", {}).pop("schema", None)
EXAMPLES = 15
"""Random requests for each operation, beside those that are worked out from its schemas."""
SEED = 20
"""Random requests that are the same in every run. Another seed asks others."""
POSTS = {path for path, operations in DOCUMENT["paths"].items() if "post" in operations}

BEYOND_THE_STRUCTURE = {
    # Some rules stand in words alone: what parts a content may hold, that a conversation must have a turn,
    # that only one model is served, which features are refused by their value.
    "positive_data_acceptance": {"enabled": False},
    # Null is taken for an absent field everywhere, and a call's arguments may be an object.
    "negative_data_rejection": {"enabled": False},
}
"""Checks that the description can't satisfy, since its structure is given. The sharpened one must."""


class Asked:
    """What came of it: failed checks, and the statuses of each operation that is described."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.statuses: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.streams: set[str] = set()

    def take(self, event: events.EngineEvent) -> None:
        if isinstance(event, events.NonFatalError | events.FatalError):
            self.problems.append(f"{event!r}")
        if isinstance(event, events.ScenarioFinished):
            for identifier, interaction in event.recorder.interactions.items():
                self._take_answer(event.recorder.cases[identifier].value, interaction.response)
            for identifier, checks in event.recorder.checks.items():
                case = event.recorder.cases[identifier].value
                answer = event.recorder.interactions[identifier].response
                for check in checks:
                    if check.failure_info is not None:
                        body = answer.content.decode() if answer else ""
                        problem = f"{check.failure_info.failure}\n{case.as_curl_command()}\n{body}"
                        self.problems.append(problem)

    def _take_answer(self, case: schemathesis.Case, answer: Any) -> None:
        assert answer is not None, case.as_curl_command()
        self.statuses[case.path, case.method.lower()].append(answer.status_code)
        if answer.content.startswith((b"event:", b"data:")):
            self.streams.add(case.path)
        try:
            check_response(case.formatted_path, case.method, answer.status_code, answer.content)
        except AssertionError as error:
            self.problems.append(f"{error}\n{case.as_curl_command()}")


def ask(document: dict[str, Any], examples: int, checks: dict[str, Any]) -> Asked:
    """Everything about a document, with so many random requests an operation."""
    asked = Asked()
    with live(ScriptedEngine(SCRIPT)) as server:
        config = SchemathesisConfig.from_dict(
            {
                "base-url": server.url,
                "seed": SEED,
                "checks": checks,
                "generation": {"max-examples": examples, "database": ":memory:"},
            }
        )
        for event in from_schema(schemathesis.openapi.from_dict(document, config=config)).execute():
            asked.take(event)
    return asked


def test_no_request_breaks_the_server_and_every_answer_is_as_described() -> None:
    asked = ask(DOCUMENT, EXAMPLES, BEYOND_THE_STRUCTURE)
    assert not asked.problems, "\n\n".join(asked.problems)
    described = {(path, method) for path, operations in DOCUMENT["paths"].items() for method in operations}
    assert described <= set(asked.statuses)
    for path in POSTS:
        assert {200, 400} <= set(asked.statuses[path, "post"]), path


def test_what_is_allowed_is_answered_and_what_is_forbidden_is_refused() -> None:
    asked = ask(sharpened(DOCUMENT, CARD.id), EXAMPLES, {})
    assert not asked.problems, "\n\n".join(asked.problems)
    for path in POSTS:
        statuses = asked.statuses[path, "post"]
        assert {200, 400} <= set(statuses), path
        assert statuses.count(200) >= 10, path
    assert asked.streams == POSTS - {"/v1/messages/count_tokens"}
