"""Writes ``docs/help.md`` from the commands themselves; ``--check`` only says whether it is up to date."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).with_name("help.md")

HEAD = """# Help of every command

Made from the commands by `make help-pages`; what they do in more words is in [cli.md](cli.md).
"""


def page() -> str:
    """The whole page: each command's help as a terminal of 80 columns shows it."""
    # Nothing of this machine's terminal and settings may get into it.
    os.environ.update(COLUMNS="80", NO_COLOR="1", TERM="dumb")
    os.environ.pop("MASHBOX_HOME", None)
    from typer.testing import CliRunner

    from mashbox.cli.main import app

    runner = CliRunner()
    parts = [HEAD]
    for words in commands():
        shown = runner.invoke(app, [*words, "--help"])
        if shown.exit_code:
            raise SystemExit(f"mashbox {' '.join(words)} --help failed: {shown.output}")
        text = "\n".join(line.rstrip() for line in shown.stdout.strip().splitlines())
        parts.append(f"## {' '.join(['mashbox', *words])}\n\n```\n{text}\n```\n")
    return "\n".join(parts)


def commands() -> Iterator[list[str]]:
    """The words of every command, groups before what is in them."""
    import typer

    from mashbox.cli.main import app

    def below(command: object, words: list[str]) -> Iterator[list[str]]:
        yield words
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, [*words, name])

    yield from below(typer.main.get_command(app), [])


def main() -> None:
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit("docs/help.md is not what the commands say; make it anew: make help-pages")


if __name__ == "__main__":
    main()
