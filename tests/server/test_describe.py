"""The description: equal to the one that the product is built from, and to the structs that read requests."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mashbox import __version__
from mashbox.engine.engine import EngineStatus
from mashbox.server.app import create_app
from mashbox.server.describe import description
from mashbox.server.protocols.chat import ChatCompletionRequest
from mashbox.server.protocols.completions import CompletionRequest
from mashbox.server.protocols.conversation import ChatMessage
from mashbox.server.protocols.messages_body import CountTokensRequest, MessagesRequest
from mashbox.server.protocols.responses_body import ResponsesRequest
from mashbox.server.settings import ServerSettings
from mashbox.server.status import Health
from tests.server.described import Facts, facts, flat
from tests.server.live import live
from tests.server.scripted import CARD, ScriptedEngine

REQUIRED = json.loads((Path(__file__).parent.parent / "data" / "openapi-structure.json").read_text())
SERVED = description("org/model")
SCHEMAS: dict[str, Any] = SERVED["components"]["schemas"]

PROPERTIES = "/components/schemas/{}/properties/{}"
ADDED_FIELDS = {
    "Health": ("loading", "engine", "engine_why"),
    "Model": ("type", "display_name", "created_at", "engine", "engine_why"),
    "ModelList": ("first_id", "last_id", "has_more"),
    "Error": ("request_id", "error/properties/param", "error/properties/code"),
    "AnthropicError": ("request_id",),
    "MessagesRequest": (
        *("output_format", "mcp_servers", "logprobs", "top_logprobs"),
        *("tools/items/properties/defer_loading", "tool_choice/properties", "tool_choice/required"),
        "output_config/properties",
    ),
    "MessageStreamEvent": ("request_id",),
    "ChatCompletionRequest": (
        "continue_final_message",
        "stream_options/properties/continuous_usage_stats",
    ),
    "ResponsesRequest": ("previous_response_id", "conversation", "prompt", "background"),
    "Response": ("error",),
    "ResponseItem": ("encrypted_content",),
    "ResponseStreamEvent": ("logprobs", "code", "message", "param", "error", "request_id"),
}
ADDED = [
    r"/info/.*",
    r"/servers/.*",
    r"/tags/.*",
    r"/security/.*",
    r"/components/(securitySchemes|responses)/.*",
    r"/paths/[^/]+/\w+/security.*",
    r"/paths/[^/]+/\w+/responses/(401|403|405|408|413|415)/\$ref",
    r"/paths/[^/]+/\w+/responses/(429|503|529)/headers/Retry-After/.*",
    r"/paths/~1v1~1messages~1count_tokens/post/responses/500/.*",
    r"/paths/~1/get/responses/200/content/text~1html/.*",
    r"/paths/~1/get/responses/304",
    r"/paths/~1assets~1\{name\}/.*",
    r"/paths/~1v1~1page/.*",
    r"/components/schemas/PageState/.*",
    *(
        re.escape(PROPERTIES.format(schema, field)) + "(/.*)?"
        for schema, fields in ADDED_FIELDS.items()
        for field in fields
    ),
]
"""What the product has beyond the structure that it must have, as patterns of places."""

REQUESTS: dict[str, type[msgspec.Struct]] = {
    "ChatCompletionRequest": ChatCompletionRequest,
    "CompletionRequest": CompletionRequest,
    "MessagesRequest": MessagesRequest,
    "ResponsesRequest": ResponsesRequest,
    "ChatMessage": ChatMessage,
}

WIDER = {
    # Clients that keep a call's arguments as an object are understood too.
    ("ChatMessage", "tool_calls[].function.arguments"): "object",
    ("ChatCompletionRequest", "messages[].tool_calls[].function.arguments"): "object",
    # false means that none are wanted, which is fine.
    ("CompletionRequest", "logprobs"): "boolean",
}
"""A type that is read beyond those that are described."""

BY_HAND = {
    # The other variables of a template are not known here, so no struct can hold them.
    ("ChatCompletionRequest", "chat_template_kwargs.enable_thinking"): (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"enable_thinking": 1}},
    ),
}
"""Described fields without a struct: where to send a wrong value, and which, to see that they are checked."""


def typed(struct: type[msgspec.Struct]) -> Facts:
    schema = msgspec.json.schema(struct)
    return facts(schema, schema["$defs"])


def described(name: str) -> Facts:
    return facts(SCHEMAS[name], SCHEMAS)


def is_item_of_open_list(place: str, told: Facts) -> bool:
    """The struct says what a list holds, where the description says in words alone."""
    return place.endswith("[]") and place not in told and "array" in told[place.removesuffix("[]")]["types"]


def test_the_structure_is_the_required_one() -> None:
    required, served = flat(REQUIRED), flat(SERVED)
    added = {place for place in served if any(re.fullmatch(pattern, place) for pattern in ADDED)}
    assert not added & set(required)
    assert {place: value for place, value in served.items() if place not in added} == required


@pytest.mark.parametrize("pattern", ADDED)
def test_every_addition_is_there(pattern: str) -> None:
    assert any(re.fullmatch(pattern, place) for place in flat(SERVED))


@pytest.mark.parametrize("name", REQUESTS)
def test_every_described_field_is_read_as_described(name: str) -> None:
    read = typed(REQUESTS[name])
    for place, told in described(name).items():
        if (name, place) in BY_HAND:
            assert place not in read
            continue
        expected = dict(told)
        if (name, place) in WIDER:
            assert WIDER[name, place] not in told["types"]
            expected["types"] = told["types"] | {WIDER[name, place]}
        assert read[place] == expected, place


@pytest.mark.parametrize("name", REQUESTS)
def test_every_field_that_is_read_is_described(name: str) -> None:
    told = described(name)
    for place in typed(REQUESTS[name]):
        assert place in told or is_item_of_open_list(place, told), place


def test_counting_reads_the_fields_of_messages() -> None:
    count, messages = typed(CountTokensRequest), typed(MessagesRequest)
    assert {place: messages[place] for place in count} == count
    told = described("CountTokensRequest")
    assert {place for place in count if "." not in place and not place.endswith("[]")} == {
        place for place in told if "." not in place and not place.endswith("[]")
    }
    for place, expected in told.items():
        assert count[place] == expected, place


def test_health_is_described_as_it_is_written() -> None:
    written, told = typed(Health), described("Health")
    assert {place for place in told if not place.startswith("routed_experts.")} == set(written)
    for place, fact in written.items():
        assert (fact.get("types"), fact.get("enum")) == (told[place].get("types"), told[place].get("enum")), (
            place
        )


@pytest.mark.parametrize("name", REQUESTS)
def test_a_described_field_of_another_type_is_refused(name: str) -> None:
    """What both sides agree on is what the server does."""
    struct = REQUESTS[name]
    required: dict[str, Any] = {"messages": [], "prompt": "x", "input": "x", "role": "user"}
    for place, told in described(name).items():
        if not place or "." in place or "[" in place or "types" not in told:
            continue
        wrong: Any = {"a": 1} if "object" not in told["types"] else 7
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode({**required, place: wrong}), type=struct)


@pytest.mark.parametrize(("path", "body"), BY_HAND.values())
def test_what_no_struct_holds_is_checked_by_hand(path: str, body: dict[str, Any]) -> None:
    with live(ScriptedEngine()) as server, server.client() as client:
        assert client.post(path, json=body).status_code == 400


def test_every_route_is_described_and_every_described_path_is_a_route() -> None:
    routes = set()
    for route in create_app(ScriptedEngine(), ServerSettings()).routes:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        routes |= {(path, method.lower()) for method in route.methods if method != "OPTIONS"}
    told = {(path, method) for path, operations in SERVED["paths"].items() for method in operations}
    assert told == routes | {("/v1/health", "head")}


def test_examples_name_the_model_and_are_answered() -> None:
    engine = ScriptedEngine(card=msgspec.structs.replace(CARD, id="org/model"))
    with live(engine) as server, server.client() as client:
        document = client.get("/openapi.json").json()
        for path, operations in document["paths"].items():
            if "post" in operations:
                example = operations["post"]["requestBody"]["content"]["application/json"]["example"]
                assert example["model"] == "org/model"
                assert client.post(path, json=example).status_code == 200
    assert document == SERVED
    assert document["info"]["version"] == __version__


def test_it_is_served_while_loading_and_behind_the_key() -> None:
    loading = EngineStatus(state="loading")
    with live(ScriptedEngine(status=loading), api_keys=("k",)) as server, server.client() as client:
        refused = client.get("/openapi.json")
        answer = client.get("/openapi.json", headers={"x-api-key": "k"})
    assert refused.status_code == 401
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"


def test_every_place_is_described_in_words() -> None:
    def without_words(schema: dict[str, Any], at: str) -> list[str]:
        missing = [] if "$ref" in schema or schema.get("description") else [at]
        for name, inner in schema.get("properties", {}).items():
            missing += without_words(inner, f"{at}.{name}")
        return missing

    assert [place for name, schema in SCHEMAS.items() for place in without_words(schema, name)] == []
    for operations in SERVED["paths"].values():
        for operation in operations.values():
            assert operation["summary"] and operation["description"]
