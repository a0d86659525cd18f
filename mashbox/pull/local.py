"""A model that lies on this machine already: used where it is, and known by its hashes."""

from pathlib import Path

from mashbox import store
from mashbox.errors import BadWeights, UnsupportedModel
from mashbox.pull.choose import choose
from mashbox.pull.plan import Plan, Wanted, split_set
from mashbox.pull.progress import Progress
from mashbox.pull.verify import Promise


def plan(path: Path) -> tuple[Plan, Path]:
    """The files of a GGUF (any part of a split one) or of a folder, and the folder that they are in."""
    if path.is_dir():
        base = path
        names = [entry.name for entry in path.iterdir() if entry.is_file()]
        ggufs = {split_set(name)[0] for name in names if name.endswith(".gguf")}
        if len(ggufs) > 1 and not any(name.endswith(".safetensors") for name in names):
            raise UnsupportedModel(f"{path} has {len(ggufs)} GGUF models.", "Name the file that is meant.")
        format, chosen = choose(names, str(path))
    elif path.is_file():
        base = path.parent
        names = [entry.name for entry in base.iterdir() if entry.is_file()]
        format, chosen = choose(names, str(base), path.name)
    else:
        raise BadWeights(f"{path} is gone.", "Check the path.")
    files = [Wanted(path=name, promise=Promise(bytes=(base / name).stat().st_size)) for name in chosen]
    return Plan(format=format, files=files, source=f"local {path}"), base


def hash_files(plan: Plan, base: Path, progress: Progress) -> list[str]:
    """SHA-256 of each file of the plan; by these a later change is noticed."""
    progress.note("Computing SHA-256")
    found = []
    for file in plan.files:
        total = file.promise.bytes
        seen = lambda done, file=file, total=total: progress.update(file.path, done, total)  # noqa: E731
        found.append(store.sha256_of(base / file.path, seen))
    return found
