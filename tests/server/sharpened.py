"""The description with what it says in words alone, or not at all, put into its schemas.

Its structure is given, so some rules stand only in its texts. Here they are schemas: what these allow must
be answered, what they forbid must be refused.
"""

import copy
from typing import Any

Json = dict[str, Any]

REQUESTS = (
    "ChatCompletionRequest",
    "CompletionRequest",
    "MessagesRequest",
    "CountTokensRequest",
    "ResponsesRequest",
)

TEXT: Json = {"type": "string", "minLength": 1}


PART: Json = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
BLOCKS: Json = {"anyOf": [{"type": "string"}, {"type": "array", "items": PART}]}
PARTS: Json = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"anyOf": [{"type": "string"}, PART]}}]
}
STOPS: Json = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
CHOICES: Json = {"enum": ["auto", "none"]}
PLAIN: Json = {"type": "object", "properties": {"type": {"const": "text"}}, "required": ["type"]}
NONE: Json = {"enum": [None]}


def sharpened(document: Json, model: str) -> Json:
    """A copy with these rules: which model, what a prompt must hold, what is refused by its value."""
    document = copy.deepcopy(document)
    schemas = document["components"]["schemas"]
    fields = {name: schemas[name]["properties"] for name in REQUESTS}
    for name in REQUESTS:
        _sampling(fields[name], model if "Messages" not in name and "Count" not in name else None)
    _chat(fields["ChatCompletionRequest"], schemas["ChatMessage"]["properties"])
    _messages(fields)
    _responses(fields["ResponsesRequest"])
    _completions(fields["CompletionRequest"])
    for name in REQUESTS:
        _nullable(schemas[name])
    _add_streams(document)
    return document


def _add_streams(document: Json) -> None:
    """To the example of each route that streams, the same as a stream."""
    for operations in document["paths"].values():
        answers = operations.get("post", {"responses": {"200": {}}})["responses"]["200"].get("content", {})
        if "text/event-stream" in answers:
            media = operations["post"]["requestBody"]["content"]["application/json"]
            whole = media.pop("example")
            media["examples"] = {"whole": {"value": whole}, "stream": {"value": {**whole, "stream": True}}}


def _sampling(fields: Json, model: str | None) -> None:
    if "model" in fields and model is not None:
        fields["model"] = {"enum": [model]}
    if "top_p" in fields:
        fields["top_p"]["exclusiveMinimum"] = 0
        fields["min_p"]["exclusiveMaximum"] = 1
        fields["stop"] = STOPS
        fields["stop_sequences"]["items"] = TEXT
    for name in ("logprobs", "top_logprobs"):
        if name in fields:
            fields[name] = {"enum": [None, False]}


def _chat(body: Json, message: Json) -> None:
    message["content"] = PARTS
    call = message["tool_calls"]["items"]["properties"]["function"]["properties"]
    call["arguments"]["type"] = ["string", "object"]
    # Calls are looked at in the assistant's messages alone.
    answer = copy.deepcopy(message)
    answer["role"]["enum"] = ["assistant"]
    call = answer["tool_calls"]["items"]["properties"]["function"]["properties"]
    call["arguments"] = {"anyOf": [{"enum": ["", "null", "{}", '{"x": [1]}']}, {"type": "object"}]}
    message["role"]["enum"].remove("assistant")
    body["messages"]["items"] = {
        "anyOf": [{"type": "object", "properties": each, "required": ["role"]} for each in (message, answer)]
    }
    body["messages"]["minItems"] = 1
    # It needs an answer at the end of the messages, and a template that shows it.
    body["continue_final_message"] = {"enum": [None, False]}
    body["tools"]["items"]["properties"]["function"]["properties"]["name"] = TEXT
    body["tool_choice"] = CHOICES
    body["top_logprobs"] = NONE
    body["response_format"] = PLAIN


def _messages(fields: Json) -> None:
    body = fields["MessagesRequest"]
    body["messages"]["minItems"] = 1
    turn = body["messages"]["items"]["properties"]
    turn["role"]["enum"] = ["user"]
    turn["content"] = BLOCKS
    body["system"] = BLOCKS
    tool = body["tools"]["items"]["properties"]
    tool["name"] = TEXT
    tool["type"] = {"enum": ["custom"]}
    body["tool_choice"]["properties"]["type"]["enum"] = ["auto", "none"]
    body["output_config"]["properties"]["format"] = NONE
    body["output_format"] = NONE
    body["mcp_servers"]["maxItems"] = 0
    for name in ("messages", "system", "tools", "tool_choice", "thinking"):
        fields["CountTokensRequest"][name] = copy.deepcopy(body[name])


def _responses(body: Json) -> None:
    message = {
        "type": "object",
        "properties": {"role": {"const": "user"}, "content": PARTS},
        "required": ["role", "content"],
    }
    body["input"] = {"anyOf": [TEXT, {"type": "array", "minItems": 1, "items": message}]}
    function = {"type": {"const": "function"}, "name": TEXT, "description": {"type": "string"}}
    # Any other type is that of a hosted tool, which is left out.
    hosted = {"type": {**TEXT, "not": {"enum": ["function", "custom", "namespace"]}}}
    body["tools"]["items"] = {
        "anyOf": [
            {"type": "object", "properties": function, "required": ["type", "name"]},
            {"type": "object", "properties": hosted, "required": ["type"]},
        ]
    }
    body["tool_choice"] = CHOICES
    body["text"] = {"type": "object", "properties": {"format": PLAIN}}
    body["top_logprobs"] = NONE
    for name in ("previous_response_id", "conversation", "prompt"):
        body[name] = NONE
    body["background"] = {"enum": [False]}


def _completions(body: Json) -> None:
    body["prompt"] = {"anyOf": [TEXT, {"type": "array", "minItems": 1, "maxItems": 1, "items": TEXT}]}


def _nullable(schema: Json) -> None:
    """Null in a field that may be left out counts as absent."""
    for name, inner in schema.get("properties", {}).items():
        _nullable(inner)
        if name not in schema.get("required", ()):
            schema["properties"][name] = {"anyOf": [inner, {"type": "null"}]}
    if isinstance(schema.get("items"), dict):
        _nullable(schema["items"])
    for alternative in schema.get("anyOf", ()):
        _nullable(alternative)
