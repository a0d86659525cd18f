"""The command line: one module a command, gathered in :mod:`mashbox.cli.main`."""
