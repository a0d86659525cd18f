"""How a mixture of experts computes its expert products, for ``/health``."""

from typing import Any

from torch import nn

_WHY = "The exact engine runs transformers' own expert modules."


def routed_experts(module: nn.Module) -> dict[str, Any] | None:
    """The report on a module that runs on the exact path; None if no token chooses among experts in it.

    A site is a module that holds the experts of one layer: transformers names the classes of them
    ``...Experts``. Those that every token passes through (``shared_experts``) are no choice and don't count.
    """
    sites = sum(_chosen_from(name, part) for name, part in module.named_modules())
    if not sites:
        return None
    return {
        "path": "exact",
        "kernel": None,
        "sites": {"kernel": 0, "exact": sites},
        "exact_why": [_WHY],
    }


def _chosen_from(name: str, part: nn.Module) -> bool:
    place = name.rpartition(".")[2]
    return type(part).__name__.endswith("Experts") and not place.startswith("shared")
