"""Compiles the CPU kernels into the package: ``python -m mashbox.engine.worker.kernels.compile``.

The build hook runs this at every install, before any dependency is there: the standard library only. The
library's name carries a digest of its sources, so that one of another version is never loaded.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "cpu"

_FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-pthread",
)
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_OF_A_FILE = {
    "ops_avx2.cpp": _AVX2,
    "ops_avxvnni.cpp": (*_AVX2, "-mavxvnni"),
    "ops_avx512.cpp": (*_AVX2, "-mavx512f", "-mavx512vl", "-mavx512vnni"),
}
"""Flags of single files: what they hold is chosen at run time, by what the processor can do."""

_OPTIONAL = ("ops_avxvnni.cpp",)
"""Files that hold nothing where the compiler (before g++ 11, clang 12) does not know their flags."""

_OF_ANY_PROCESSOR = {"ops_plain.cpp": ("-O2",)}
"""Likewise for any processor: -O3 unrolls the plain kernels for a minute, and makes them no faster."""

builds = 0
"""Libraries that this process has built."""

_WITHOUT = "the fast engine is left out, the exact one runs"


def library_path() -> Path:
    """Where the library of these very sources lies, once compiled."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".cpp", ".h", ".inc"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return SOURCES / f"kernels_{digest.hexdigest()[:16]}.so"


def compile_kernels() -> str | None:
    """Compile unless that is done; None, or a sentence that says what is missing."""
    global builds
    target = library_path()
    if target.exists():
        return None
    if sys.platform == "win32":
        return f"the CPU kernels are not built on Windows: {_WITHOUT}."
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "c++", "clang++")), None)
    if compiler is None:
        return f"no C++ compiler was found: {_WITHOUT}. Install g++, then install mashbox again."
    with tempfile.TemporaryDirectory(dir=SOURCES, prefix="build-") as folder:
        built = Path(folder) / target.name
        if error := _build(compiler, Path(folder), built):
            return f"the CPU kernels could not be compiled ({error}): {_WITHOUT}."
        for old in SOURCES.glob("kernels_*.so"):
            old.unlink(missing_ok=True)
        built.replace(target)
    builds += 1
    return None


def _build(compiler: str, folder: Path, target: Path) -> str | None:
    """Compile and link; the compiler's last words if it failed."""
    intel = platform.machine().lower() in ("x86_64", "amd64")
    jobs = []
    for source in sorted(SOURCES.glob("*.cpp")):
        own = _OF_ANY_PROCESSOR.get(source.name, ()) + (_OF_A_FILE.get(source.name, ()) if intel else ())
        if source.name in _OPTIONAL and not _knows(compiler, own):
            own = ()
        command = [
            *compiler.split(),
            *_FLAGS,
            *own,
            "-c",
            str(source),
            "-o",
            str(folder / f"{source.stem}.o"),
        ]
        jobs.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    errors = [job.communicate()[1] for job in jobs]
    for job, error in zip(jobs, errors, strict=True):
        if job.returncode:
            return _last_line(error)
    objects = map(str, sorted(folder.glob("*.o")))
    link = [*compiler.split(), "-shared", "-pthread", *objects, "-o", str(target)]
    linked = subprocess.run(link, stderr=subprocess.PIPE, text=True, check=False)
    return _last_line(linked.stderr) if linked.returncode else None


def _knows(compiler: str, flags: tuple[str, ...]) -> bool:
    """Whether the compiler takes these flags."""
    command = [*compiler.split(), *flags, "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input=b"", capture_output=True, check=False).returncode == 0


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


if __name__ == "__main__":
    sys.exit(compile_kernels())
