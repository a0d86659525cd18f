"""The one request that every protocol is turned into, and what it becomes on its way."""

from typing import Any

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is drawn from a row of logits.

    Applied in this order: penalties, temperature, top_k, top_p, min_p. ``temperature`` 0 is greedy.
    ``repetition_penalty`` counts prompt and output, ``presence_penalty`` and ``frequency_penalty``
    output only. ``seed`` is an unsigned 64-bit number: together with a token's position it decides the
    random number that draws the token, so that a request's tokens do not depend on its batch.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always the one."""
        return self.temperature == 0.0 or self.top_k == 1


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in the shape that chat templates take.

    ``messages`` hold ``role`` and ``content`` (a string), and where they apply ``reasoning_content``,
    ``tool_calls`` (arguments as objects), ``tool_call_id`` and ``name``. ``tools`` are OpenAI function
    tools. ``options`` are further template variables a client asked for; they never replace
    messages or tools. ``continued``: the last message is the assistant's, and the answer goes on with it.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    thinking: bool = False
    options: dict[str, Any] = {}
    continued: bool = False


class ForcedCall(msgspec.Struct, frozen=True, kw_only=True):
    """The answer must be a tool call: of the tool ``name``, or of any of the conversation's (None)."""

    name: str | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asked for, whichever API it used.

    ``prompt`` is a conversation, or raw text whose markers are tokens (Completions). ``max_tokens`` None
    means up to the end of the context. ``session`` tags requests of one conversation, ``tenant`` is the
    owner of the key ("" without keys). ``held``: nothing of the answer leaves before all of it is there, so
    that it can be made again from the start after a fault. ``counted``: pieces of text and thought tell how
    many tokens there are so far.
    """

    id: str
    prompt: Conversation | str
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    forced: ForcedCall | None = None
    ignore_end: bool = False
    session: str | None = None
    tenant: str = ""
    held: bool = False
    counted: bool = False


class EncodedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as token ids, and what the answer's reader must know of it.

    ``thinking_open`` when its last marker opened a thought, ``tail`` the end of its text, ``grammar`` what a
    forced answer is held to (see :mod:`mashbox.engine.grammar`). ``begun`` when it ends in words of the
    answer (or of the thought that ``tail`` opens).
    """

    ids: list[int]
    thinking_open: bool = False
    tail: str = ""
    grammar: str | None = None
    begun: bool = False
