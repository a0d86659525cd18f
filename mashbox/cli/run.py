"""``mashbox run``: serve one model."""

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mashbox import settings as configuration
from mashbox.cli import complete, console
from mashbox.errors import UsageError
from mashbox.settings import RULES, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from mashbox.engine.settings import EngineSettings
    from mashbox.facts import ModelFacts
    from mashbox.memory import MemoryPlan
    from mashbox.server.settings import ServerSettings
    from mashbox.store import LocalModel

EPILOG = "Examples: mashbox run · mashbox run smollm2-135m --port 9000 --ctx 4096 · mashbox run ./model.gguf"


def _flag(name: str) -> Any:
    """The option of a setting, with its help and default from the table of settings."""
    rule, default = RULES[name], getattr(Settings(), name)
    shown = ", ".join(default) if isinstance(default, tuple) else "auto" if default is None else str(default)
    tail = f" [default: {shown}]" if shown and name not in ("api_key_file",) else ""
    if not rule.metavar:
        flag = configuration.flag(name)
        return typer.Option(f"{flag}/--no-{flag[2:]}", help=rule.help)
    return typer.Option(configuration.flag(name), metavar=rule.metavar, help=rule.help + tail)


def run(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help=RULES["model"].help, autocompletion=complete.models),
    ] = None,
    host: Annotated[str | None, _flag("host")] = None,
    port: Annotated[str | None, _flag("port")] = None,
    ui: Annotated[bool | None, _flag("ui")] = None,
    open: Annotated[bool | None, _flag("open")] = None,
    ctx: Annotated[str | None, _flag("ctx")] = None,
    slots: Annotated[str | None, _flag("slots")] = None,
    cache_ram: Annotated[str | None, _flag("cache_ram")] = None,
    share_cache: Annotated[bool | None, _flag("share_cache")] = None,
    api_key_file: Annotated[str | None, _flag("api_key_file")] = None,
    allow_host: Annotated[list[str] | None, _flag("allow_host")] = None,
    weights: Annotated[str | None, _flag("weights")] = None,
    activations: Annotated[str | None, _flag("activations")] = None,
    device: Annotated[str | None, _flag("device")] = None,
    threads: Annotated[str | None, _flag("threads")] = None,
    engine: Annotated[str | None, _flag("engine")] = None,
    speculation: Annotated[str | None, _flag("speculation")] = None,
    max_body_mib: Annotated[str | None, _flag("max_body_mib")] = None,
    drain: Annotated[str | None, _flag("drain")] = None,
    step_timeout: Annotated[str | None, _flag("step_timeout")] = None,
    read_timeout: Annotated[str | None, _flag("read_timeout")] = None,
    log_json: Annotated[bool | None, _flag("log_json")] = None,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """Serve a model to OpenAI-compatible clients.

    The model is pulled first when it is missing.

    Every option can also be set in the environment (--max-body-mib as MASHBOX_MAX_BODY_MIB) and in
    config.toml, in the table [run] (as max_body_mib). Ctrl-C lets running requests finish.
    """
    flags = dict(locals())
    flags.pop("until_eof")
    chosen = configuration.load(flags)
    if until_eof:
        end_with_stdin()
    check_and_serve(chosen)


def check_and_serve(chosen: Settings) -> None:
    """Check, pull, plan, and serve until told to end."""
    from mashbox.engine.process import WorkerProcess
    from mashbox.engine.settings import start_message
    from mashbox.server import logs
    from mashbox.server.listen import check_exposure, open_socket

    console.as_json(chosen.log_json)
    on_terminal = sys.stderr.isatty() and not chosen.log_json
    logs.configure(
        as_json=chosen.log_json, brief=on_terminal, stream=console.Stream() if on_terminal else None
    )
    server = server_settings(chosen)
    check_exposure(server)
    # Tried now, so that a taken port is told before gigabytes are fetched.
    open_socket(server).close()
    model, facts, plan, cache_ram = prepare(chosen)
    settings = engine_settings(chosen, plan, cache_ram)
    # Where a line is kept at the terminal's bottom, or all are JSON, the worker's own go through us.
    heard = chosen.log_json or sys.stderr.isatty()
    with WorkerProcess(start_message(model, settings), heard=heard) as worker:
        # What a server needs is imported while the worker loads.
        from mashbox.cli import serving

        serving.serve_model(chosen, server, model, facts, plan, settings, worker)


def engine_settings(chosen: Settings, plan: "MemoryPlan", cache_ram: int) -> "EngineSettings":
    """How the model is run: what was chosen, with what the memory plan settled; ``cache_ram`` is in MiB."""
    from mashbox.engine.settings import EngineSettings

    return EngineSettings(
        ctx=plan.ctx,
        slots=plan.slots,
        ctx_auto=chosen.ctx is None,
        slots_auto=chosen.slots is None,
        engine=chosen.engine,
        weights=chosen.weights,
        activations=chosen.activations,
        device="cpu",
        threads=chosen.threads or 0,
        step_timeout=float(chosen.step_timeout),
        cache_ram_mib=cache_ram,
        cache_ram_auto=chosen.cache_ram is None,
        share_cache=chosen.share_cache,
        speculation=chosen.speculation,
    )


def server_settings(chosen: Settings) -> "ServerSettings":
    """What the HTTP server is told. Raises UsageError for a key file that can't be used."""
    from mashbox.server.settings import ServerSettings

    return ServerSettings(
        host=chosen.host,
        port=chosen.port,
        allow_hosts=chosen.allow_host,
        api_keys=own_key(),
        key_file=checked_key_file(chosen.api_key_file),
        ui=chosen.ui or chosen.open,
        max_body_mib=chosen.max_body_mib,
        drain_s=float(chosen.drain),
        read_timeout_s=float(chosen.read_timeout),
    )


def own_key() -> tuple[str, ...]:
    """The key of MASHBOX_API_KEY, if it is set. Raises UsageError for one that no client could send."""
    from mashbox.server.keyfile import check_key

    key = os.environ.get("MASHBOX_API_KEY", "")
    if key:
        check_key(key, "MASHBOX_API_KEY")
    return (key,) if key else ()


def checked_key_file(path: "Path | None") -> "Path | None":
    """A key file that can be served from. Raises UsageError: missing, damaged, without a key."""
    if path is not None:
        from mashbox.server import keyfile

        lines, _ = keyfile.load(path, console.warn)
        if not keyfile.entries_of(lines):
            raise UsageError(
                f"The key file {path} holds no key.", f"Make one: mashbox keys add --file {path}"
            )
    return path


def prepare(chosen: Settings) -> "tuple[LocalModel, ModelFacts, MemoryPlan, int]":
    """The model, pulled when it is missing, its facts, the memory plan, and the prompt cache's MiB; printed.

    Raises what forbids to serve it: UsageError, PullError, ModelError.
    """
    from mashbox import capacity, catalog
    from mashbox.cli.fetching import shown
    from mashbox.facts import read_facts
    from mashbox.memory import available_memory
    from mashbox.pull import ensure

    if chosen.device not in ("auto", "cpu"):
        raise UsageError(
            f"--device {chosen.device} is not supported in this version.", "Use cpu, or leave it out."
        )
    with shown() as progress:
        model = ensure(chosen.model or catalog.load().starter, progress)
    facts = read_facts(model.weights, model.format)
    available = available_memory()
    plan = capacity.plan(facts, chosen, available)
    cache_ram = capacity.cache_ram(plan, available, chosen.cache_ram)
    million = facts.parameters / 1e6
    size = f"{million / 1e3:.1f} B" if million >= 1000 else f"{million:.0f} M"
    console.note(
        f"{model.id}: {facts.architecture}, {size} parameters, {facts.quant} ({facts.bpw:.1f} bits each)"
    )
    console.note(
        f"Memory: weights {_gb(plan.weights)} + {plan.slots} slots of {plan.ctx:,} tokens {_gb(plan.kv)}"
        f" + working {_gb(plan.working)} = {_gb(plan.total)} of {_gb(available)} GB free"
    )
    if cache_ram:
        console.note(f"Prompts read before are kept in up to {_gb(cache_ram << 20)} GB more.")
    if plan.ctx < facts.context_length and chosen.ctx is None:
        console.note(f"The model can hold {facts.context_length:,} tokens; the context is cut to what fits.")
    return model, facts, plan, cache_ram


def end_with_stdin() -> None:
    """End like on SIGTERM when standard input does: whoever started us has gone."""

    def wait() -> None:
        # Past Python's buffer: its lock, held by a thread that waits, ends the interpreter with an abort.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f}"
