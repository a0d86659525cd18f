"""``mashbox pull``: fetch a model, list the catalogue and what is here, remove."""

from typing import Annotated

import typer

from mashbox.cli import complete, console
from mashbox.cli.fetching import shown, size
from mashbox.errors import UsageError

EPILOG = "Example: mashbox pull smollm2-135m, or: mashbox pull --list"


def pull(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A catalogue id, org/repo, org/repo:file.gguf, or a local path. Default: the starter.",
            metavar="MODEL",
            show_default=False,
            autocompletion=complete.models,
        ),
    ] = None,
    list_models: Annotated[
        bool, typer.Option("--list", help="Show the catalogue, what is here, and what fits this machine.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print an array of objects.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Delete the model, and unfinished downloads of it.")
    ] = False,
) -> None:
    """Fetch a model, so that it can be served.

    An interrupted download goes on where it stopped; every file is held to its size and SHA-256. The path
    of the weights is printed. A local path is not copied: the model is served from where it lies.
    """
    if list_models and (model is not None or remove):
        raise UsageError("--list takes no MODEL and no --remove.", "Use one at a time.")
    if as_json and not list_models:
        raise UsageError("--json goes with --list.", "Try: mashbox pull --list --json")
    if list_models:
        _list(as_json=as_json)
    elif remove:
        _remove(model)
    else:
        _fetch(model)


def _fetch(model: str | None) -> None:
    from mashbox import catalog
    from mashbox.pull import ensure

    name = model or catalog.load().starter
    try:
        with shown() as progress:
            found = ensure(name, progress, repair=True)
    except KeyboardInterrupt:
        console.note("Interrupted. What is here already is kept: pull again to go on.")
        raise
    console.note(f"{found.id} is here ({size(found.bytes)}). Serve it: mashbox run {name}")
    console.output().print(str(found.weights), markup=False, soft_wrap=True)


def _remove(model: str | None) -> None:
    from mashbox import store

    if model is None:
        raise UsageError("--remove needs the name of a model.", "See what is here: mashbox pull --list")
    freed = store.remove(model)
    console.note(f"Removed {model}, {size(freed)} freed.")


def _list(*, as_json: bool) -> None:
    from mashbox.cli import listing

    rows = listing.overview()
    out = console.output()
    if as_json:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()
        out.print(text, markup=False, soft_wrap=True)
        return
    head, *body = listing.table(rows, out.width if out.is_terminal else None)
    out.print(head.text, style="bold", markup=False, soft_wrap=True)
    for line in body:
        out.print(line.text, style="" if line.fits else "dim", markup=False, soft_wrap=True)
    console.note(listing.legend(rows))
