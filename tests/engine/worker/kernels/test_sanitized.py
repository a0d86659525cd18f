"""The kernels' own tests once more, over a library that notices foreign memory and undefined behaviour."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mashbox.engine.worker.kernels import compile as step
from mashbox.engine.worker.kernels.cpu import Instructions, instructions_here

PLUGIN = """
from pathlib import Path
from mashbox.engine.worker.kernels import cpu
cpu.library_path = lambda: Path({library!r})
"""
TESTS = ("test_draw.py", "test_product.py", "test_fast.py", "test_packed.py", "test_shapes.py")
WITHOUT_KERNELS = "not rotary_tables and not do_not_fit and not each_type_has"
"""Tests of torch and of Python only: nothing of the library runs in them."""


def runtime(name: str) -> str | None:
    """A sanitizer's library, which must be loaded before Python."""
    if shutil.which("g++") is None:
        return None
    told = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(told.stdout.strip())
    return str(path) if path.is_absolute() and path.exists() else None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="libraries are loaded beforehand in Linux' way")
def test_no_foreign_memory_and_nothing_undefined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtimes = [runtime("libasan.so"), runtime("libubsan.so")]
    if None in runtimes:
        pytest.skip("g++ has no sanitizers here")
    library = tmp_path / "with-checks.so"
    # Lower than usual: with checks, functions grow too long for -O2, and for one to be within another.
    monkeypatch.setattr(step, "_FLAGS", tuple(flag for flag in step._FLAGS if flag != "-O3"))
    monkeypatch.setattr(step, "_OF_ANY_PROCESSOR", {})
    for file, set_of in (("ops_avxvnni.cpp", Instructions.AVX_VNNI), ("ops_avx512.cpp", Instructions.AVX512)):
        if set_of not in instructions_here():
            idle = (*step._OF_A_FILE[file], "-O0", "-fno-sanitize=all")
            monkeypatch.setitem(step._OF_A_FILE, file, idle)
    flags = "-O1 -g1 -fno-inline -DALWAYS=inline -fsanitize=address,undefined -fno-sanitize-recover=undefined"
    assert step._build(f"g++ {flags}", tmp_path, library) is None
    (tmp_path / "sanitized.py").write_text(PLUGIN.format(library=str(library)))
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--hypothesis-profile",
            "fast",
            "-k",
            WITHOUT_KERNELS,
            "-p",
            "sanitized",
            "-p",
            "no:cacheprovider",
            "--capture=sys",
        ]
        + [str(Path(__file__).parent / name) for name in TESTS],
        env={
            **os.environ,
            "LD_PRELOAD": " ".join(map(str, runtimes)),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python's own, all of them
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]
    assert " passed" in found.stdout
