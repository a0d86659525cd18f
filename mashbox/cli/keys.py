"""``mashbox keys``: the API keys that a server asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mashbox import paths
from mashbox.cli import console
from mashbox.cli.words import Command

if TYPE_CHECKING:
    from mashbox.server.keyfile import Entry

EPILOG = "Example: mashbox keys add --tenant alice, then: mashbox run --api-key-file FILE"

app = typer.Typer(
    name="keys",
    help="Make, list and revoke the API keys of a server.",
    epilog=EPILOG,
    rich_markup_mode=None,
)

KeyFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The key file. [default: keys in the config folder]"),
]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `mashbox keys list` shows it.")]


@app.command(cls=Command, epilog="Example: mashbox keys add --tenant alice")
def add(
    tenant: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Whose key it is. A tenant's keys wait in one queue and share cached prompts.",
        ),
    ] = "",
    file: KeyFile = None,
) -> None:
    """Make a key, and print it: this once, since only its hash is kept.

    Without --tenant the key is a tenant of its own. A running server knows it from the next request on.
    """
    from mashbox.server import keyfile

    path = _path(file)
    entry, key = keyfile.add(path, tenant, console.warn)
    _print(key)
    console.note(f"Added {_named(entry)} to {path}. The key is shown only this once.")
    console.note(f"Serve with it: mashbox run --api-key-file {path}")


@app.command("list", cls=Command, epilog="Example: mashbox keys list --json")
def list_keys(
    file: KeyFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an array of objects.")] = False,
) -> None:
    """Show the keys' ids, tenants and days of making. The keys themselves are not kept."""
    from mashbox.server import keyfile

    path = _path(file)
    entries: list[Entry] = []
    if path.exists() or file is not None:
        entries = keyfile.entries_of(keyfile.load(path, console.warn)[0])
    if as_json:
        import msgspec

        _print(msgspec.json.format(msgspec.json.encode([_facts(entry) for entry in entries])).decode())
    elif entries:
        for line in _table(entries):
            _print(line)
    else:
        console.note(f"There is no key in {path}. Make one: mashbox keys add")


@app.command(cls=Command, epilog="Example: mashbox keys revoke 1a2b3c4d")
def revoke(id: KeyId, file: KeyFile = None) -> None:
    """Make a key void, in a running server from the next request on."""
    from mashbox.server import keyfile

    path = _path(file)
    entry = keyfile.revoke(path, id, console.warn)
    console.note(f"Removed {_named(entry)} from {path}.")


@app.command(cls=Command, epilog="Example: mashbox keys rotate 1a2b3c4d")
def rotate(id: KeyId, file: KeyFile = None) -> None:
    """Replace a key by a new one of the same id and tenant, and print it. The old one is void at once."""
    from mashbox.server import keyfile

    path = _path(file)
    entry, key = keyfile.rotate(path, id, console.warn)
    _print(key)
    console.note(f"Replaced {_named(entry)} in {path}. The new key is shown only this once.")


def _path(file: Path | None) -> Path:
    return file.expanduser() if file is not None else paths.key_file()


def _print(text: str) -> None:
    console.output().print(text, markup=False, soft_wrap=True)


def _named(entry: "Entry") -> str:
    return f"key {entry.id}" + (f" of {entry.tenant}" if entry.tenant else "")


def _facts(entry: "Entry") -> dict[str, Any]:
    return {
        "id": entry.id,
        "tenant": entry.tenant or None,
        "created": entry.created or None,
        "stored": "plain" if entry.plain else "hashed",
    }


def _table(entries: "list[Entry]") -> list[str]:
    rows = [("id", "created", "stored", "tenant")]
    rows += [tuple(_facts(entry)[name] or "-" for name in rows[0]) for entry in entries]  # type: ignore[misc]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
