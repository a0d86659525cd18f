"""Counts the programs that this process has made: graphs that torch compiled, kernels that were built.

Counted where they are made, by whoever makes them: torch's own counters, and our compile step's.
"""

import sys

from mashbox.engine.worker.kernels import compile as kernels


def programs_made() -> int:
    """All since the process began. Cheap enough for every step: what is not loaded made nothing."""
    return kernels.builds + _traced() + _extensions()


def _traced() -> int:
    """Graphs of torch.compile, whatever its backend: each is traced once before it is compiled."""
    module = sys.modules.get("torch._dynamo.utils")
    return int(module.counters["stats"]["unique_graphs"]) if module else 0


def _extensions() -> int:
    """C++ and CUDA extensions that torch built, or loaded, as the process ran."""
    module = sys.modules.get("torch.utils.cpp_extension")
    versions = module.JIT_EXTENSION_VERSIONER.entries if module else {}
    return sum(entry.version + 1 for entry in versions.values())
