"""The ``mashbox`` command and ``python -m mashbox``: quiet about a Ctrl-C that comes while it is imported."""

import sys


def main() -> None:
    """The console script."""
    try:
        from mashbox.cli.main import main as command
    except KeyboardInterrupt:
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
