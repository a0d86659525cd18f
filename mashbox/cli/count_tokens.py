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

EPILOG = (
    "Examples: mashbox count-tokens 'Hello' · cat notes.md | mashbox count-tokens --model smollm2-135m ·"
    " mashbox count-tokens --messages request.json --per-message"
)


def count_tokens(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text; without it, standard input.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="A pulled model or a path. Default: that of `mashbox run`.",
            autocompletion=complete.models,
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", metavar="FILE", help="Count a text file; repeatable, then each and their sum."
        ),
    ] = None,
    messages: Annotated[
        Path | None,
        typer.Option(
            "--messages",
            metavar="FILE",
            help="Count a conversation: a JSON list of messages, or the body of a Chat or Messages request.",
        ),
    ] = None,
    per_message: Annotated[
        bool, typer.Option("--per-message", help="With --messages: also what each message adds.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print an object instead.")] = False,
) -> None:
    """Count tokens, as the server does, without loading the model.

    A text is counted as /v1/completions reads it (no template; markers are tokens). A conversation is counted
    in the model's chat template, with its tools. The number is the first word on stdout.
    """
    _check_use(text, file, messages, per_message=per_message)
    if messages is not None:
        total, parts = _count_conversation(_model(model), _read(messages), each=per_message)
    elif file:
        contents = [_read(path) for path in file]
        counts = _count_texts(_model(model), contents)
        total = sum(counts)
        parts = [{"file": str(path), "tokens": count} for path, count in zip(file, counts, strict=True)]
    else:
        (total,) = _count_texts(_model(model), [text if text is not None else _stdin()])
        parts = []
    _print(total, parts, as_json=as_json)


def _check_use(
    text: str | None, file: list[Path] | None, messages: Path | None, *, per_message: bool
) -> None:
    given = [name for name, value in (("TEXT", text), ("--file", file), ("--messages", messages)) if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} can't be counted at once.", "Give one of them.")
    if per_message and messages is None:
        raise UsageError("--per-message goes with --messages.", "Give a conversation: --messages FILE")


def _print(total: int, parts: list[dict[str, Any]], *, as_json: bool) -> None:
    # Plain lines: rich, which could draw more, would take as long to import as a short text to count.
    lines = [str(total)]
    width = len(lines[0])
    if as_json:
        import msgspec

        kind = "files" if parts and "file" in parts[0] else "messages"
        lines = [msgspec.json.encode({"tokens": total, **({kind: parts} if parts else {})}).decode()]
    elif not (len(parts) == 1 and "file" in parts[0]):
        for part in parts:
            count = "-" if part["tokens"] is None else part["tokens"]
            lines.append(f"{count:>{width}}  {part.get('file') or _place(part)}")
    sys.stdout.write("\n".join([*lines, ""]))


def _place(message: dict[str, Any]) -> str:
    return f"{message['index']} {message['role']}"


def _model(name: str | None) -> "LocalModel":
    from mashbox import catalog, settings, store

    return store.find(settings.load({"model": name}).model or catalog.load().starter)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{path} can't be read: {problem.strerror}.", "Name a text file.") from None
    except UnicodeDecodeError as problem:
        raise UsageError(
            f"{path} is not UTF-8: byte {problem.start:,} is {problem.object[problem.start]:#04x}.",
            "Name a UTF-8 text file, or pipe it in.",
        ) from None


def _stdin() -> str:
    if sys.stdin.isatty():
        raise UsageError("There is nothing to count.", "Give a TEXT, --file, --messages, or a pipe.")
    return console.text_of(sys.stdin.buffer.read())


def _count_texts(model: "LocalModel", texts: list[str]) -> list[int]:
    from mashbox.engine.tokenizer import ModelTokenizer

    tokenizer = ModelTokenizer.load(model.tokenizer)
    return [tokenizer.count_text(text) for text in texts]


def _count_conversation(model: "LocalModel", text: str, *, each: bool) -> tuple[int, list[dict[str, Any]]]:
    """Tokens of the whole, and (where ``each`` is asked for) what each message adds to those before it.

    The first one's hold also what the template writes once: its beginning, the tools, the answer's start.
    A message up to which the template takes no conversation has None: its tokens are the next one's too.
    """
    from mashbox.engine.dialect import Dialect
    from mashbox.engine.request import Request
    from mashbox.engine.tokenizer import ModelTokenizer
    from mashbox.errors import InvalidRequest

    conversation, forced = _conversation(text)
    dialect = Dialect(ModelTokenizer.load(model.tokenizer), model.spec.tools if model.spec else None)

    def count(messages: list[dict[str, Any]]) -> int:
        import msgspec

        prompt = msgspec.structs.replace(conversation, messages=messages)
        return len(dialect.encode(Request(id="count", prompt=prompt, forced=forced)).ids)

    total = count(conversation.messages)
    parts: list[dict[str, Any]] = []
    before = 0
    for number, message in enumerate(conversation.messages if each else [], start=1):
        last = number == len(conversation.messages)
        try:
            so_far = total if last else count(conversation.messages[:number])
            added: int | None = so_far - before
            before = so_far
        except InvalidRequest:
            added = None
        parts.append({"index": number - 1, "role": message["role"], "tokens": added})
    return total, parts


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
