"""Names for what is served: equal names mean equal bytes, settings and device."""

import hashlib
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from mashbox import __version__
from mashbox.store import LocalModel, sha256_of


def component_set_sha(model: LocalModel) -> str | None:
    """SHA-256 over the SHA-256 of weights, tokenizer, config and chat template; None if one is unknown."""
    digests = {file.path.name: file.sha256 for file in model.files}
    digests |= {path.name: sha256_of(path) for path in _files(model.tokenizer) if path.name not in digests}
    if None in digests.values():
        return None
    return _name(f"{name} {digest}" for name, digest in sorted(digests.items()))


def deployment_id(component_set: str | None, settings: Iterable[object]) -> str | None:
    """Over the components, the versions of what computes, the engine's settings and the device."""
    if component_set is None:
        return None
    libraries = [version(name) for name in ("torch", "transformers")]
    return _name([component_set, __version__, *libraries, platform.machine(), *map(repr, settings)])


def cache_namespace(component_set: str | None, engine: str, weights: str, activations: int) -> str | None:
    """Over what makes a cached state valid: the components, and what computes with them."""
    return None if component_set is None else _name([component_set, engine, weights, str(activations)])


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def _name(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
