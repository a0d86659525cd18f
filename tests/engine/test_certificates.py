"""Only the record of the very deployment certifies, and only one that passed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from mashbox.engine import certificates
from mashbox.engine.certificates import Bounds, Certificate, Check, Report

CHECK = Check(
    name="alone", requests=1, tokens=16, same=16, ties=0, kl_mean=0.0, kl_max=0.0, cached=0, passed=True
)
REPORT = Report(
    engine="exact",
    architecture="llama",
    ctx=256,
    slots=2,
    bounds=Bounds(kl_mean=1e-7, kl_max=1e-5, tie=1e-3, other_tokens=0.0),
    checks=[CHECK],
    compiles_after_ready=0,
)
CERTIFICATE = Certificate(
    deployment_id="ab" * 32,
    passed=True,
    model="tiny",
    weights="auto",
    threads=1,
    mashbox="0",
    created="2026-01-01T00:00:00+00:00",
    report=REPORT,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASHBOX_HOME", str(tmp_path))
    return tmp_path


def test_a_record_certifies_its_deployment_and_no_other(home: Path) -> None:
    assert not certificates.certified("ab" * 32)
    path = certificates.write(CERTIFICATE)
    assert path == home / "state" / "certificates" / f"{'ab' * 32}.json"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert certificates.certified("ab" * 32)
    assert not certificates.certified("cd" * 32)
    assert not certificates.certified(None)
    # What runs is seen when it is loaded: one that could not run the fast engine was not certified for that.
    assert certificates.certified("ab" * 32, "exact")
    assert not certificates.certified("ab" * 32, "fast")


def test_a_later_failure_takes_the_certificate_away() -> None:
    certificates.write(CERTIFICATE)
    certificates.write(replace(CERTIFICATE, passed=False))
    assert not certificates.certified("ab" * 32)


@pytest.mark.parametrize("text", ["", "{}", '{"passed": true}', "not json"])
def test_a_damaged_record_is_none(text: str) -> None:
    certificates.write(CERTIFICATE).write_text(text)
    assert not certificates.certified("ab" * 32)


def test_a_record_under_another_name_is_none() -> None:
    path = certificates.write(CERTIFICATE)
    path.rename(path.with_stem("cd" * 32))
    assert not certificates.certified("cd" * 32)


def test_a_report_passes_when_every_check_did_and_nothing_was_compiled() -> None:
    assert REPORT.passed
    assert not replace(REPORT, checks=[]).passed
    assert not replace(REPORT, checks=[CHECK, replace(CHECK, passed=False)]).passed
    assert not replace(REPORT, compiles_after_ready=1).passed
