"""``python -m mashbox``: the same as the ``mashbox`` command."""

from mashbox.cli.main import main

main()
