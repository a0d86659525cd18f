"""``mashbox bench``: how fast is a server, and does the engine here give what it should (``--certify``)?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from mashbox import settings as configuration
from mashbox.cli import complete
from mashbox.errors import UsageError
from mashbox.settings import RULES

EPILOG = (
    "Examples: mashbox bench · mashbox bench --url http://127.0.0.1:8000 --plot speed.svg · "
    "mashbox bench --compare http://127.0.0.1:8080 --json · mashbox bench --certify smollm2-135m --ctx 4096"
)


def _of_run(name: str) -> Any:
    """The option of the same name of ``mashbox run``."""
    return typer.Option(configuration.flag(name), metavar=RULES[name].metavar, help=RULES[name].help)


def bench(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="What to measure: a model as for `mashbox run`, or with --url the server's name for it.",
            autocompletion=complete.models,
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="An OpenAI-compatible server to measure; without it, one is started."
        ),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="URL", help="A second server, measured in turn; prints ratios.")
    ] = None,
    compare_model: Annotated[
        str | None, typer.Option(metavar="ID", help="The second server's model, where it has several.")
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Answers at a time; default 1, 2, 4 … up to the server's slots."),
    ] = None,
    prompts: Annotated[
        str, typer.Option("--prompt-tokens", metavar="N,N", help="Lengths of prompts to read.")
    ] = "128,512,2048",
    only: Annotated[
        str | None,
        typer.Option(metavar="PARTS", help="Some of streams, prompts, cache, session; default all."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="S", min=1, help="Most time it may take; default 60, with --compare 120."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=50, help="Times each figure is taken; default 1, with --compare 2."
        ),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The same prompts again; a server's cache may know them by now."),
    ] = None,
    completions: Annotated[
        bool,
        typer.Option("--completions", help="Ask at /v1/completions: for models without a chat template."),
    ] = False,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="MASHBOX_API_KEY", show_envvar=True, help="Key for --url."),
    ] = None,
    compare_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", envvar="MASHBOX_COMPARE_KEY", show_envvar=True, help="Key for --compare."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the figures into this file.")
    ] = None,
    certify: Annotated[
        bool,
        typer.Option("--certify", help="Compare the engine with the exact reference path; keep the record."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON instead of tables.")] = False,
    ctx: Annotated[str | None, _of_run("ctx")] = None,
    slots: Annotated[str | None, _of_run("slots")] = None,
    weights: Annotated[str | None, _of_run("weights")] = None,
    activations: Annotated[str | None, _of_run("activations")] = None,
    threads: Annotated[str | None, _of_run("threads")] = None,
    engine: Annotated[str | None, _of_run("engine")] = None,
) -> None:
    """Measure how fast a server is, or check the engine here.

    Measured are answers, one and several at a time, the reading of prompts, the prompt cache, and an
    agent's session.

    Any OpenAI-compatible server at --url; without it, one is started for MODEL and ended afterwards.

    With --certify, the engine that `mashbox run` would use is compared with the exact reference path
    instead, with the settings of `mashbox run`; a server with the same ones then says `certified` in
    /health. Status 1: outside the bounds.
    """
    of_run = {
        "ctx": ctx,
        "slots": slots,
        "weights": weights,
        "activations": activations,
        "threads": threads,
        "engine": engine,
    }
    of_measuring: dict[str, Any] = {
        "--url": url,
        "--compare": compare,
        "--compare-model": compare_model,
        "--concurrency": concurrency,
        "--only": only,
        "--seconds": seconds,
        "--rounds": rounds,
        "--seed": seed,
        "--completions": completions or None,
        "--plot": plot,
    }
    if certify:
        if unfit := [name for name, value in of_measuring.items() if value is not None]:
            raise UsageError(f"{unfit[0]} has no meaning with --certify.", "Leave one of them out.")
        from mashbox.cli import certifying

        passed = certifying.run(configuration.load({"model": model} | of_run), as_json=as_json)
        raise typer.Exit(0 if passed else 1)
    from mashbox.cli import measuring

    measuring.run(
        measuring.Wanted(
            model=model,
            url=url,
            key=api_key,
            compare=compare,
            compare_model=compare_model,
            compare_key=compare_key,
            streams=measuring.numbers(concurrency, "--concurrency", 256) if concurrency else None,
            prompts=measuring.numbers(prompts, "--prompt-tokens", 1_000_000),
            parts=measuring.parts(only),
            seconds=seconds or (120.0 if compare else 60.0),
            rounds=rounds or (2 if compare else 1),
            seed=seed,
            chat=not completions,
            options={name: value for name, value in of_run.items() if value is not None},
        ),
        as_json=as_json,
        plot=plot,
    )
