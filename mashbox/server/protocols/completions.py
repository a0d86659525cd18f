"""``POST /v1/completions``: continue a plain prompt, no chat template."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import post
from litestar.datastructures import State
from litestar.types import ASGIApp, Scope

from mashbox.engine.events import Event, Finished, Text, Thinking
from mashbox.engine.request import Request
from mashbox.server import sse
from mashbox.server.body import invalid, parse
from mashbox.server.failure import Failure
from mashbox.server.protocols.common import (
    SamplingFields,
    limit_of,
    new_id,
    random_seed,
    refuse_logprobs,
    sampling_of,
    session_of,
    stops_of,
    tenant_of,
    usage_json,
)
from mashbox.server.respond import Respond
from mashbox.server.service import Service


class CompletionRequest(SamplingFields, kw_only=True):
    """The body. Unknown fields are ignored."""

    prompt: str | list[Any]
    logprobs: int | bool | None = None


_decoder = msgspec.json.Decoder(CompletionRequest)


def _prompt(given: str | list[Any]) -> str:
    if isinstance(given, list):
        if len(given) != 1 or not isinstance(given[0], str):
            raise invalid("prompt", "must be a string, or a list of one string.")
        given = given[0]
    if not given:
        raise invalid("prompt", "must not be empty.")
    return str(given)


def to_request(body: CompletionRequest, scope: Scope, seed: int) -> Request:
    """The internal request. Raises InvalidRequest naming the field."""
    refuse_logprobs("logprobs", body.logprobs)
    return Request(
        id=new_id("cmpl-"),
        prompt=_prompt(body.prompt),
        sampling=sampling_of(body, seed),
        max_tokens=limit_of(body),
        stop=stops_of(body),
        session=session_of(scope, body.prompt_cache_key),
        tenant=tenant_of(scope),
    )


def _finish(finished: Finished) -> str:
    return "length" if finished.reason == "length" else "stop"


class CompletionAnswer:
    """Events in Completions' words. A plain prompt has no thinking of its own: it is text."""

    keep_alive = sse.KEEP_ALIVE
    prompt_field = "prompt"

    def __init__(self, request_id: str, model: str, seed: int) -> None:
        self._id = request_id
        self._head = {
            "id": request_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"seed-{seed}",
        }
        frame = sse.json_bytes(self._head)[:-1]
        self._before = b"data: " + frame + b',"choices":[{"index":0,"text":'
        self._after = b',"finish_reason":null}]}\n\n'

    def opening(self) -> bytes:
        return b""

    def event(self, event: Event) -> bytes:
        if isinstance(event, Text | Thinking):
            return self._before + sse.json_bytes(event.text) + self._after
        if isinstance(event, Finished):
            choice = {"index": 0, "text": "", "finish_reason": _finish(event)}
            return sse.data({**self._head, "choices": [choice]}) + sse.DONE
        return b""

    def failed(self, failure: Failure) -> bytes:
        return sse.data(failure.event("openai", self._id))

    def whole(self, events: Sequence[Event]) -> bytes:
        finished = events[-1]
        assert isinstance(finished, Finished)
        text = "".join(event.text for event in events if isinstance(event, Text | Thinking))
        choice = {"index": 0, "text": text, "finish_reason": _finish(finished)}
        return sse.json_bytes({**self._head, "choices": [choice], "usage": usage_json(finished.usage)})


@post("/v1/completions", status_code=200)
async def create_completion(request: HttpRequest[Any, Any, Any], state: State) -> ASGIApp:
    """Continue a plain prompt."""
    service: Service = state.service
    service.check_ready()
    body = parse(await request.body(), _decoder)
    service.check_model(body.model)
    seed = random_seed() if body.seed is None else body.seed
    asked = to_request(body, request.scope, seed)
    answer = CompletionAnswer(asked.id, service.engine.card.id, seed)
    return Respond(service, asked, answer, stream=bool(body.stream))
