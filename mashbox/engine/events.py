"""What a request is answered with: a stream of these, always ended by one :class:`Finished`.

A whole (not streamed) answer is a fold over the same events, so both kinds are equal by construction.
"""

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls"]


class Text(msgspec.Struct, frozen=True):
    """A piece of the answer, never empty. ``tokens`` so far, this piece's included; 0 where it isn't told."""

    text: str
    tokens: int = 0


class Thinking(msgspec.Struct, frozen=True):
    """A piece of the model's thought, never empty. ``tokens`` as in :class:`Text`."""

    text: str
    tokens: int = 0


class ToolCall(msgspec.Struct, frozen=True):
    """A whole tool call; ``arguments`` is valid JSON text."""

    id: str
    name: str
    arguments: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts. ``cached_tokens`` of the prompt were served from the prompt cache.

    ``completion_tokens`` counts the end-of-turn token, as llama-server and vLLM do; ``thinking_tokens`` of
    them were thought. A marker counts with what follows it.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    thinking_tokens: int = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in milliseconds: in the waiting line, to the first new token, from first to last.

    ``drafted`` tokens were guessed on the way, ``accepted`` of them came.
    """

    queue_ms: float = 0.0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0
    drafted: int = 0
    accepted: int = 0


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The last event. ``stop_sequence`` is the stop string that ended the text, if one did."""

    reason: FinishReason
    usage: Usage
    timings: Timings
    stop_sequence: str | None = None


Event = Text | Thinking | ToolCall | Finished
