"""``mashbox count-tokens``: how many tokens a text or a conversation is for a model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mashbox.cli import complete, console
from mashbox.errors import UsageError

if TYPE_CHECKING:
    from mashbox.engine.request import Conversation, ForcedCall
    from mashbox.store import LocalModel

EPILOG = "Examples: mashbox count-tokens 'Hello' · cat notes.md | mashbox count-tokens --model smollm2-135m"


def count_tokens(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text; without it, standard input.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A pulled model or a path. Default: the starter.",
            autocompletion=complete.models,
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Count a text file.")] = None,
    messages: Annotated[
        Path | None,
        typer.Option(
            "--messages",
            metavar="FILE",
            help="Count a conversation: a JSON list of messages, or the body of a Chat or Messages request.",
        ),
    ] = None,
) -> None:
    """Count tokens, as the server does, without loading the model.

    A text is counted as /v1/completions reads it (no template; markers are tokens). A conversation is counted
    in the model's chat template, with its tools.
    """
    given = [name for name, value in (("TEXT", text), ("--file", file), ("--messages", messages)) if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} can't be counted at once.", "Give one of them.")
    if messages is not None:
        count = _count_conversation(_model(model), _read(messages))
    else:
        content = text if text is not None else _read(file) if file is not None else _stdin()
        count = _count_text(_model(model), content)
    console.output().print(count)


def _model(name: str | None) -> "LocalModel":
    from mashbox import catalog, store

    return store.find(name or catalog.load().starter)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} can't be read: {problem}.", "Name a UTF-8 text file.") from None


def _stdin() -> str:
    if sys.stdin.isatty():
        raise UsageError("There is nothing to count.", "Give a TEXT, --file, --messages, or a pipe.")
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _count_text(model: "LocalModel", text: str) -> int:
    from mashbox.engine.tokenizer import ModelTokenizer

    return len(ModelTokenizer.load(model.tokenizer).encode_text(text, specials=True))


def _count_conversation(model: "LocalModel", text: str) -> int:
    from mashbox.engine.dialect import Dialect
    from mashbox.engine.request import Request
    from mashbox.engine.tokenizer import ModelTokenizer

    conversation, forced = _conversation(text)
    dialect = Dialect(ModelTokenizer.load(model.tokenizer), model.spec.tools if model.spec else None)
    return len(dialect.encode(Request(id="count", prompt=conversation, forced=forced)).ids)


def _conversation(text: str) -> "tuple[Conversation, ForcedCall | None]":
    """The conversation of a body, in whichever of the two APIs' words it is. Raises InvalidRequest."""
    import msgspec

    from mashbox.server.body import parse
    from mashbox.server.protocols import chat, messages_body

    try:
        body = msgspec.json.decode(text)
    except msgspec.DecodeError as problem:
        raise UsageError(f"The messages are not valid JSON: {problem}.") from None
    if isinstance(body, list):
        body = {"messages": body}
    if not isinstance(body, dict):
        raise UsageError("The messages must be a JSON list, or an object with messages in it.")
    raw = msgspec.json.encode(body)
    if _is_anthropic(body):
        counted = msgspec.json.Decoder(messages_body.CountTokensRequest)
        return messages_body.conversation_of(parse(raw, counted))
    return chat.conversation_of(parse(raw, msgspec.json.Decoder(chat.ChatCompletionRequest)))


def _is_anthropic(body: dict[str, Any]) -> bool:
    """Whether a body has what only Messages has: a system beside the messages, its tools, its blocks."""
    tools, turns = body.get("tools"), body.get("messages")
    blocks = [
        block
        for turn in (turns if isinstance(turns, list) else [])
        if isinstance(turn, dict) and isinstance(turn.get("content"), list)
        for block in turn["content"]
        if isinstance(block, dict)
    ]
    return (
        "system" in body
        or any(isinstance(tool, dict) and "input_schema" in tool for tool in tools or [])
        or any(block.get("type") in ("tool_use", "tool_result", "thinking") for block in blocks)
    )
