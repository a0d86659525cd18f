"""``mashbox chat``: talk to a model in the terminal, or ask it one thing from a script."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mashbox.cli import complete, console
from mashbox.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from mashbox.cli.client import Client
    from mashbox.cli.conversation import Conversation
    from mashbox.cli.leaving import Leaving
    from mashbox.cli.talk import Options

EPILOG = (
    "Examples: mashbox chat · mashbox chat 'Name three planets.' · git diff | mashbox chat 'Review this.'"
)


def chat(
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="Ask this one thing, print the answer, and end.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="An OpenAI-compatible server; without it, one is found or started.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="ID", help="The model to talk to.", autocompletion=complete.models
        ),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", "-s", metavar="TEXT", help="System prompt.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", min=0.0, help="0 always takes the likeliest token.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Longest answer, in tokens.")
    ] = None,
    think: Annotated[
        bool | None, typer.Option("--think/--no-think", help="Let the model think before it answers.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", envvar="MASHBOX_API_KEY", show_envvar=True, help="Key, where the server wants one."
        ),
    ] = None,
) -> None:
    """Chat with a model in the terminal, or ask it one thing.

    A message as argument or on stdin is answered once, as plain text where stdout is not a terminal.

    Uses the server at --url or on this machine's usual port; without --url it starts one when none is
    there and ends it afterwards.

    --url, --system, --temperature, --max-tokens and --think can also be set in the environment (MASHBOX_URL,
    MASHBOX_MAX_TOKENS ...) and in config.toml, in the table [chat].
    """
    from mashbox import settings

    flags = {
        "url": url,
        "system": system and console.text_of(os.fsencode(system)),
        "temperature": temperature,
        "max_tokens": max_tokens,
        "think": think,
    }
    chosen = settings.load_chat(flags)
    question = one_shot(message)
    if question is None and not console.interactive():
        raise UsageError("There is no message.", "Give one as an argument, or on stdin.")
    from mashbox.cli.conversation import Conversation
    from mashbox.cli.leaving import Leaving
    from mashbox.cli.talk import Options, pick_model

    leaving = Leaving()
    keys = console.held_keys() if question is None else contextlib.nullcontext()
    with leaving.on_signals(), keys, connected(chosen.url, model, api_key) as (client, own):
        options = Options(temperature=chosen.temperature, max_tokens=chosen.max_tokens, think=chosen.think)
        options.choose(pick_model(client, None if own else model))
        if question is None:
            _dialogue(client, Conversation(chosen.system), options, leaving)
        else:
            _once(client, Conversation(chosen.system), options, question)


def one_shot(argument: str | None) -> str | None:
    """The message from the argument and from stdin when that is a pipe or file; None when from neither."""
    if argument is None:
        piped = None if sys.stdin.isatty() else _stdin()
    else:
        # Beside an argument, only what was surely meant is read: under a service stdin may never end.
        piped = _stdin() if _redirected() else None
    if argument is None and piped is None:
        return None
    given = (argument and console.text_of(os.fsencode(argument)), piped)
    text = "\n\n".join(part.strip() for part in given if part and part.strip())
    if not text:
        raise UsageError("The message is empty.", "Give one as an argument, or on stdin.")
    return text


def _stdin() -> str:
    return console.text_of(sys.stdin.buffer.read())


def _redirected() -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return not sys.stdin.isatty()
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


@contextlib.contextmanager
def connected(url: str | None, model: str | None, key: str | None) -> Iterator["tuple[Client, bool]"]:
    """A client of a server whose model is loaded: the one at ``url``, the usual one, or one of our own.

    The second value tells whether it is our own, started for ``model`` and ended on the way out.
    """
    from rich.text import Text

    from mashbox.cli.client import Client
    from mashbox.cli.spawn import own_server, wait_ready

    with contextlib.ExitStack() as stack:
        status = console.notes().status("Looking for a server", spinner="dots")
        with status if sys.stderr.isatty() else contextlib.nullcontext():
            client = stack.enter_context(Client(url or usual_url(), key))

            def show(text: str) -> None:
                status.update(Text(text, no_wrap=True, overflow="ellipsis"))

            own = url is None and not _is_mashbox(client)
            if own:
                client = stack.enter_context(own_server(model, show))
            else:
                wait_ready(client, show)
        yield client, own


def usual_url() -> str:
    """Where ``mashbox run`` listens on this machine with the present settings."""
    from mashbox import settings

    chosen = settings.load({})
    host = "127.0.0.1" if chosen.host in ("0.0.0.0", "::", "localhost") else chosen.host
    return f"http://[{host}]:{chosen.port}" if ":" in host else f"http://{host}:{chosen.port}"


def _is_mashbox(client: "Client") -> bool:
    try:
        return client.health() is not None
    except Unreachable:
        return False


def _dialogue(client: "Client", talk: "Conversation", options: "Options", leaving: "Leaving") -> None:
    from mashbox.cli.prompt import reader
    from mashbox.cli.talk import Talk

    screen = console.output()
    title = console.wrapped(f"{options.title() if options.model else client.url} · /help for help", screen)
    screen.print(title, style="dim", markup=False, soft_wrap=True)
    dialogue = Talk(client, talk, options, screen)
    dialogue.run(reader(dialogue, leaving))


def _once(client: "Client", talk: "Conversation", options: "Options", question: str) -> None:
    from mashbox.cli.client import End, Piece
    from mashbox.cli.talk import Said, show_answer, summary

    messages = talk.request(question)
    if sys.stdout.isatty():
        end = show_answer(client, messages, options, console.output(), Said())
        console.notes().print(summary(end), style="dim", markup=False)
        return
    text = "\n"
    for event in client.chat(messages, **options.body()):
        if isinstance(event, Piece) and event.kind == "text":
            text = event.text
            sys.stdout.write(text)
            sys.stdout.flush()
        elif isinstance(event, End) and event.reason == "length":
            console.warn("The answer was cut off by the token limit.")
    if not text.endswith("\n"):
        sys.stdout.write("\n")
