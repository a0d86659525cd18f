"""``mashbox bench``: does this machine's engine give what it should? (``--certify``)"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mashbox import settings as configuration
from mashbox.cli import complete, console
from mashbox.errors import UsageError
from mashbox.settings import RULES

if TYPE_CHECKING:
    from mashbox.engine.certificates import Certificate

EPILOG = "Examples: mashbox bench --certify · mashbox bench --certify smollm2-135m --ctx 4096 --json"


def _of_run(name: str) -> Any:
    """The option of the same name of ``mashbox run``."""
    return typer.Option(configuration.flag(name), metavar=RULES[name].metavar, help=RULES[name].help)


def bench(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help=RULES["model"].help, autocompletion=complete.models),
    ] = None,
    certify: Annotated[
        bool,
        typer.Option("--certify", help="Compare the engine with the exact reference path; keep the record."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The record as JSON instead of a table.")] = False,
    ctx: Annotated[str | None, _of_run("ctx")] = None,
    slots: Annotated[str | None, _of_run("slots")] = None,
    weights: Annotated[str | None, _of_run("weights")] = None,
    threads: Annotated[str | None, _of_run("threads")] = None,
    engine: Annotated[str | None, _of_run("engine")] = None,
) -> None:
    """Compare the engine that `mashbox run` would use with the exact reference path.

    The settings are those of `mashbox run`, from options, environment and config.toml: the record belongs to
    them, the model and this machine, and a server with the same ones then says `certified` in /health.
    Status 1: outside the bounds.
    """
    if not certify:
        raise UsageError("This version of bench only certifies.", "Add --certify.")
    flags = {"model": model, "ctx": ctx, "slots": slots, "weights": weights, "threads": threads}
    from mashbox.cli import certifying

    certificate = certifying.certify(configuration.load(flags | {"engine": engine}))
    if as_json:
        import msgspec

        console.output().print_json(msgspec.json.encode(certificate).decode())
    else:
        _print(certificate)
    raise typer.Exit(0 if certificate.passed else 1)


def _print(certificate: "Certificate") -> None:
    from rich.table import Table

    report = certificate.report
    table = Table(box=None, pad_edge=False)
    table.add_column("run")
    for heading in ("requests", "tokens", "same", "ties", "cached", "KL mean", "KL max"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for check in report.checks:
        counts = (check.requests, check.tokens, check.same, check.ties, check.cached)
        divergence = (f"{check.kl_mean:.1e}", f"{check.kl_max:.1e}")
        table.add_row(check.name, *map(str, counts), *divergence, "passed" if check.passed else "FAILED")
    output = console.output()
    output.print(table)
    output.print(
        f"bounds: KL mean {report.bounds.kl_mean:.0e}, max {report.bounds.kl_max:.0e} nats; "
        f"compiled after ready: {report.compiles_after_ready}"
    )
    output.print(f"{certificate.model}: {'certified' if certificate.passed else 'not certified'}")
