"""The records of ``mashbox bench --certify``: one file a deployment, in the state folder of this machine."""

import os
from pathlib import Path

import msgspec

from mashbox.paths import state_dir


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run the prompts, against the reference.

    Of ``tokens`` greedy tokens ``same`` are the reference's own; of the others ``ties`` are as likely there,
    within the bound. ``kl_mean`` and ``kl_max`` are the divergences of the distributions at all of them, in
    nats. ``cached`` counts prompt tokens that were taken from the cache.
    """

    name: str
    requests: int
    tokens: int
    same: int
    ties: int
    kl_mean: float
    kl_max: float
    cached: int
    passed: bool


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a check may differ by: in nats, and in the share of tokens that are neither the same nor ties."""

    kl_mean: float
    kl_max: float
    tie: float
    other_tokens: float


class Report(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """What the comparison found of an engine with ``slots`` slots of ``ctx`` tokens.

    ``compiles_after_ready`` are programs compiled while the prompts ran.
    """

    engine: str
    architecture: str
    ctx: int
    slots: int
    bounds: Bounds
    checks: list[Check]
    compiles_after_ready: int

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(c.passed for c in self.checks) and not self.compiles_after_ready


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A report with what it is about."""

    deployment_id: str | None
    passed: bool
    model: str
    weights: str
    threads: int
    mashbox: str
    created: str
    report: Report


def write(certificate: Certificate) -> Path:
    """Keep the record of a deployment, in the place of an older one. Needs its ``deployment_id``."""
    path = _path(str(certificate.deployment_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n")
    part.replace(path)
    return path


def certified(deployment_id: str | None, engine: str | None = None) -> bool:
    """Whether this very deployment has passed on this machine, on ``engine`` if that is known.

    A record that can't be read counts as none.
    """
    if deployment_id is None:
        return False
    try:
        found = msgspec.json.decode(_path(deployment_id).read_bytes(), type=Certificate)
    except (OSError, msgspec.DecodeError):
        return False
    return found.deployment_id == deployment_id and found.passed and engine in (None, found.report.engine)


def _path(deployment_id: str) -> Path:
    return state_dir() / "certificates" / f"{deployment_id}.json"
