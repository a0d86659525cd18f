"""The ``mashbox`` command: gathers the commands of the other modules.

Importing this module stays cheap: each command imports what it needs when it runs.
"""

from typing import Annotated

import typer

import mashbox
from mashbox.cli import bench, chat, console, count_tokens, keys, pull, run
from mashbox.cli.frame import CommandLine
from mashbox.cli.words import Command

app = typer.Typer(
    name="mashbox",
    cls=CommandLine,
    help="Serve a large language model on this machine: OpenAI and Anthropic APIs, coding agents, a chat.",
    epilog="Example: mashbox run, then in another terminal: mashbox chat",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        console.output().print(f"mashbox {mashbox.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Works behind every command.")
    ] = False,
) -> None:
    del version, debug
    if context.invoked_subcommand is None:
        console.output().print(context.get_help(), markup=False)


app.command(cls=Command, epilog=pull.EPILOG)(pull.pull)
app.command(cls=Command, epilog=run.EPILOG)(run.run)
app.command(cls=Command, epilog=chat.EPILOG)(chat.chat)
app.command(cls=Command, epilog=bench.EPILOG)(bench.bench)
app.command("count-tokens", cls=Command, epilog=count_tokens.EPILOG)(count_tokens.count_tokens)
app.add_typer(keys.app, name="keys", epilog=keys.EPILOG)


def main() -> None:
    """Run the command line, and exit with its status."""
    console.prepare()
    app()
