"""The GGUF architectures that can be loaded, by the name their files give."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.architectures.llama import LLAMA
from mashbox.errors import UnsupportedModel
from mashbox.gguf_file import GGUFFile

ARCHITECTURES: dict[str, Architecture] = {
    "llama": LLAMA,
}


def find_architecture(file: GGUFFile) -> Architecture:
    """The architecture of a file; UnsupportedModel, with the list of those that work, if it is not known."""
    found = ARCHITECTURES.get(file.architecture)
    if found is None:
        raise UnsupportedModel(
            f"{file.paths[0]}: GGUF models of the architecture {file.architecture!r} can't be served.",
            f"These can: {', '.join(sorted(ARCHITECTURES))}.",
        )
    return found


__all__ = ["ARCHITECTURES", "Architecture", "find_architecture"]
