"""A conversation to token ids, through the model's chat template."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from mashbox.engine.late_system import has_late_system, in_neighbours, takes_late_system
from mashbox.engine.request import Conversation, EncodedPrompt
from mashbox.engine.template import ChatTemplate
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.user_runs import joined_runs, takes_user_runs
from mashbox.engine.vocab_facts import THOUGHT_OPENERS
from mashbox.errors import InvalidRequest, PromptTooLong

Message = dict[str, Any]

_QUICK = 1 << 18
"""Characters that are tokenised in a moment."""

BEGINNING, ENDING = "\udc03", "\udc04"
"""Around the words that an answer goes on with, while a template is rendered: no text has such surrogates."""

_TAIL = 16
"""Pieces of a prompt (texts and control tokens) in which the assistant's turn surely begins."""


def encode(tokenizer: ModelTokenizer, prompt: Conversation | str, limit: int | None = None) -> EncodedPrompt:
    """Ids of a request's prompt: a conversation rendered, or raw text in which markers are tokens.

    Raw text opens no thought, whatever it ends with: it is continued as it is.
    Raises InvalidRequest like :func:`render`, and for a prompt of no tokens; PromptTooLong for a text that
    is beyond ``limit`` tokens whatever it says, instead of spending minutes on it.
    """
    if isinstance(prompt, Conversation):
        encoded, param = render(tokenizer, prompt, limit), "messages"
    else:
        _refuse_giant(tokenizer, [prompt], limit)
        encoded, param = EncodedPrompt(ids=tokenizer.encode_text(prompt, specials=True)), "prompt"
    if not encoded.ids:
        raise InvalidRequest("The prompt is empty.", param=param, remedy="Send at least one character.")
    return encoded


def render(tokenizer: ModelTokenizer, conversation: Conversation, limit: int | None = None) -> EncodedPrompt:
    """Ids of the rendered conversation, up to where the assistant's answer begins.

    Only control tokens that the template writes become control tokens; the same text typed in a message,
    a tool or an option stays text. BOS is there once where the model wants one. Raises InvalidRequest when
    the model has no template, or with the template's own words when it refuses the conversation, and when it
    does not show the words that the answer goes on with.
    """
    rendered = render_marked(tokenizer, conversation)
    pieces = tokenizer.markers.split(rendered)
    _refuse_giant(tokenizer, pieces, limit)
    ids = tokenizer.with_bos(tokenizer.encode_pieces(pieces))
    if conversation.continued:
        return _begun(tokenizer, conversation, rendered, ids)
    return EncodedPrompt(
        ids=ids,
        thinking_open=rendered.rstrip().endswith(THOUGHT_OPENERS),
        tail=_text(tokenizer, pieces[-_TAIL:]),
    )


def _begun(
    tokenizer: ModelTokenizer, conversation: Conversation, rendered: str, ids: list[int]
) -> EncodedPrompt:
    """The prompt of an answer that goes on: with its text, or with the thought that stands before it."""
    if conversation.messages[-1].get("content"):
        return EncodedPrompt(ids=ids, begun=True)
    lead = rendered[: rendered.rindex(BEGINNING)]
    if not lead.rstrip().endswith(THOUGHT_OPENERS):
        raise _not_shown(conversation)
    tail = _text(tokenizer, tokenizer.markers.split(lead)[-_TAIL:])
    return EncodedPrompt(ids=ids, thinking_open=True, tail=tail, begun=True)


def _not_shown(conversation: Conversation) -> InvalidRequest:
    return InvalidRequest(
        "The model's chat template does not show the last message as the answer that goes on.",
        param=f"messages[{len(conversation.messages) - 1}]",
        remedy="End the conversation with a user message.",
    )


def _refuse_giant(tokenizer: ModelTokenizer, pieces: list[str | int], limit: int | None) -> None:
    """Raise PromptTooLong when even the longest tokens could not make the text fit.

    The number of tokens it tells is an estimate then, from as much of the text as is quickly counted.
    """
    texts = [piece for piece in pieces if isinstance(piece, str)]
    size = sum(map(len, texts))
    if limit is None or size <= max(limit * tokenizer.longest_token, _QUICK):
        return
    sample = max(texts, key=len)[:_QUICK]
    counted = len(tokenizer.encode_pieces([sample]))
    raise PromptTooLong(max(counted * size // len(sample), size // tokenizer.longest_token), limit)


def render_text(tokenizer: ModelTokenizer, conversation: Conversation) -> str:
    """The rendered conversation as text, for display: not safe to encode, since it forgets who wrote what."""
    return _text(tokenizer, tokenizer.markers.split(render_marked(tokenizer, conversation)))


def _text(tokenizer: ModelTokenizer, pieces: list[str | int]) -> str:
    return "".join([tokenizer.markers.texts[piece] if isinstance(piece, int) else piece for piece in pieces])


def render_marked(tokenizer: ModelTokenizer, conversation: Conversation) -> str:
    """The template's output, the client's control tokens in it still wrapped.

    Of an answer that goes on, up to its last word; what it begins with is marked.
    """
    template = _template(tokenizer, conversation)
    shape = _shape(template, tuple(tokenizer.special_texts.items()))
    wrap = tokenizer.markers.wrap
    messages = conversation.messages
    if has_late_system(messages) and not shape.late_system:
        messages = in_neighbours(messages)
    if not shape.user_runs:
        messages = joined_runs(messages)
    wrapped = [wrap(message) for message in messages]
    if conversation.continued:
        wrapped[-1] = _bordered(wrapped[-1])
    variables = {
        "thinking": conversation.thinking,
        **wrap(conversation.options),
        **tokenizer.special_texts,
        "enable_thinking": conversation.thinking,
        "messages": [shape.message(message) for message in wrapped],
        "tools": wrap(conversation.tools) or None,
        "add_generation_prompt": not conversation.continued,
    }
    try:
        rendered = template.render(variables)
    # A template is a program of the model's maker: it can fail in any way, and never through our fault.
    except Exception as error:
        raise InvalidRequest(
            f"The model's chat template can't render this conversation: {error or type(error).__name__}",
            param="messages",
        ) from error
    if not conversation.continued:
        return rendered
    end = rendered.rfind(ENDING)
    if BEGINNING not in rendered[: max(0, end)]:
        raise _not_shown(conversation)
    return rendered[:end]


def _bordered(message: Message) -> Message:
    """The message with the borders of what the answer goes on with marked: its text, else its thought."""
    field = "content" if message.get("content") else "reasoning_content"
    return {**message, field: f"{BEGINNING}{message.get(field) or ''}{ENDING}"}


def _template(tokenizer: ModelTokenizer, conversation: Conversation) -> ChatTemplate:
    named = tokenizer.templates.get("tool_use") if conversation.tools else None
    template = named or tokenizer.templates.get("default")
    if template is None:
        raise InvalidRequest(
            "This model has no chat template, so it can't answer a conversation.",
            param="messages",
            remedy="Use /v1/completions with a plain prompt.",
        )
    return template


class _Shape:
    """How one template wants messages: found out once, by rendering small conversations with it.

    ``parts``: it takes contents only as lists of parts, not as strings. ``json_arguments``: it takes a
    tool call's arguments only as JSON text, not as objects. ``late_system``: it takes system messages behind
    the first turn. ``user_runs``: it takes several user messages in a row.
    """

    def __init__(
        self, *, parts: bool, json_arguments: bool, late_system: bool = False, user_runs: bool = False
    ) -> None:
        self.parts = parts
        self.json_arguments = json_arguments
        self.late_system = late_system
        self.user_runs = user_runs

    def message(self, message: Message) -> Message:
        """One message as the template wants it; reasoning under both names that templates read."""
        message = {key: value for key, value in message.items() if value is not None}
        if self.parts and isinstance(message.get("content"), str):
            message["content"] = _parts(message["content"])
        if "reasoning_content" in message:
            message.setdefault("thinking", message["reasoning_content"])
        if self.json_arguments and "tool_calls" in message:
            message["tool_calls"] = [_with_json_arguments(call) for call in message["tool_calls"]]
        return message


@lru_cache(maxsize=16)
def _shape(template: ChatTemplate, specials: tuple[tuple[str, str], ...]) -> _Shape:
    def render(messages: list[Message]) -> str:
        return template.render(
            {**dict(specials), "messages": messages, "tools": None, "add_generation_prompt": True}
        )

    def shows(messages: list[Message], test: Callable[[str], bool]) -> bool:
        try:
            text = render(messages)
        except Exception:
            return False
        return test(text)

    plain, listed = ([{"role": "user", "content": content}] for content in ("needle", _parts("needle")))
    parts = not shows(plain, _clean) and shows(listed, _clean)
    shapes = [_Shape(parts=parts, json_arguments=json_arguments) for json_arguments in (False, True)]
    objects, texts = (shows([shape.message(m) for m in _probe_call()], _clean_call) for shape in shapes)

    def shaped(messages: list[Message]) -> str:
        return render([shapes[0].message(message) for message in messages])

    return _Shape(
        parts=parts,
        json_arguments=texts and not objects,
        late_system=takes_late_system(shaped),
        user_runs=takes_user_runs(shaped),
    )


def _parts(text: str) -> list[Message]:
    return [{"type": "text", "text": text}]


def _probe_call() -> list[Message]:
    function = {"name": "probe", "arguments": {"needle": "value"}}
    return [
        {"role": "user", "content": "ask"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call00001", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "result", "tool_call_id": "call00001", "name": "probe"},
    ]


def _clean(text: str) -> bool:
    """Whether the text is there, and not as Python would print a list of parts."""
    return "needle" in text and "'needle'" not in text


def _clean_call(text: str) -> bool:
    return _clean(text) and '\\"needle' not in text


def _with_json_arguments(call: Message) -> Message:
    function = call.get("function")
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str):
        return call
    arguments = json.dumps(function.get("arguments", {}), ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}
