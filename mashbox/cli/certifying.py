"""Certifies a deployment: prompts from here, the comparison in a process of its own, the record kept."""

import datetime
import os
import signal
import subprocess
import sys

import msgspec

import mashbox
from mashbox.cli import console
from mashbox.cli.run import engine_settings, prepare
from mashbox.engine import certificates
from mashbox.engine.certificates import Certificate, Report
from mashbox.engine.identity import component_set_sha, deployment_id
from mashbox.engine.process import ENVIRONMENT
from mashbox.engine.prompt import encode
from mashbox.engine.settings import start_message
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.wire import Failed
from mashbox.errors import ModelError
from mashbox.facts import ModelFacts
from mashbox.memory import available_memory, check_fits, plan_memory
from mashbox.settings import Settings

COMMAND = (sys.executable, "-m", "mashbox.engine.worker.certify")

_STORY = (
    "The ferry leaves at six, when the gulls are still asleep on the harbour wall. Marta counts the crates "
    "twice, signs for nineteen of them, and asks the captain what became of the twentieth. He shrugs: "
    "crates get lost, like umbrellas and Tuesdays. She writes that down as well. "
)
_TABLE = (
    "Item, price, stock\nlamp, 24.90, 7\nkettle, 31.50, 0\nchair, 79.00, 12\n"
    'def total(rows):\n    """Sum of price times stock."""\n'
    "    return sum(float(price) * int(stock) for _, price, stock in rows)\n"
)
_LANGUAGES = "Die Fähre fährt um sechs. El barco sale a las seis. 船は六時に出ます。 1 + 1 = 2; 17 × 3 = 51. "

PROMPTS = (
    "Hello",
    "Name three planets, and say which of them is the largest.",
    _STORY,
    _TABLE,
    f"{_STORY}{_LANGUAGES}{_TABLE}",
)
"""Texts of several kinds and lengths."""


def certify(chosen: Settings) -> Certificate:
    """Compare, and keep the record where the deployment has a name.

    Raises what forbids to serve the model, DoesNotFit when the reference needs more memory than there is, and
    ModelError when the comparison itself breaks off.
    """
    model, facts, plan, cache_ram = prepare(chosen)
    _check_reference_fits(facts)
    settings = engine_settings(chosen, plan, cache_ram)
    tokenizer = ModelTokenizer.load(model.tokenizer)
    # Long enough for a prompt of several pieces, whatever the tokenizer makes of it.
    text = encode(tokenizer, " ".join(PROMPTS[2:]) * 8).ids
    job = {
        "start": start_message(model, settings),
        "prompts": [encode(tokenizer, prompt).ids for prompt in PROMPTS],
        "text": text,
    }
    report = _compare(msgspec.json.encode(job))
    # What fits is seen when the engine is: it may not be the one that was planned for.
    settings = msgspec.structs.replace(settings, ctx=report.ctx, slots=report.slots)
    certificate = Certificate(
        deployment_id=deployment_id(component_set_sha(model), settings.deployment),
        passed=report.passed,
        model=model.id,
        weights=chosen.weights,
        threads=settings.threads,
        mashbox=mashbox.__version__,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        report=report,
    )
    if certificate.deployment_id is None:
        console.warn("The record is not kept: the SHA-256 of the model's files is not known.")
    else:
        console.note(f"Record: {certificates.write(certificate)}")
    return certificate


def _check_reference_fits(facts: ModelFacts) -> None:
    # It runs alone, over one prompt of two thousand tokens at most.
    tokens = min(facts.context_length, 2048)
    check_fits(plan_memory(facts, tokens, 1, 4, chunk=tokens), available_memory())


def _compare(job: bytes) -> Report:
    """The report of a process that compares; it tells its stages on our stderr."""
    done = subprocess.run(
        COMMAND,
        input=job,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT | os.environ,
        check=False,
        # Ctrl-C reaches both: we end, and take it along, without a word of its own.
        preexec_fn=_leave_ctrl_c,
    )
    try:
        outcome = msgspec.json.decode(done.stdout, type=Report | Failed)
    except msgspec.DecodeError:
        raise ModelError(
            f"The comparison broke off (exit status {done.returncode}).", "Its own words are above."
        ) from None
    if isinstance(outcome, Failed):
        raise ModelError(outcome.message, outcome.remedy)
    return outcome


def _leave_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run(chosen: Settings, *, as_json: bool) -> bool:
    """Certify and print the record; whether it passed."""
    certificate = certify(chosen)
    if as_json:
        console.output().print_json(msgspec.json.encode(certificate).decode())
    else:
        _print(certificate)
    return certificate.passed


def _print(certificate: Certificate) -> None:
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
