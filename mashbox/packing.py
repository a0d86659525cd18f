"""What the fast engine makes of a model, known without torch: which models it runs, and what they take.

The kernels and the loader decide; tests hold these tables to them.
"""

from collections.abc import Iterable

PACKED_BITS = {
    "F32": 32.0,
    "F16": 16.0,
    "BF16": 16.0,
    "Q4_0": 4.5,
    "Q4_1": 5.0,
    "Q5_0": 5.5,
    "Q5_1": 6.0,
    "Q8_0": 8.5,
    "Q4_K": 4.625,
    "Q5_K": 5.625,
    "Q6_K": 6.5625,
}
"""Bits of a weight in memory, by the type of its matrix in the file."""

QUANTISED = {"q8": "Q8_0", "q4": "Q4_1"}
"""The types that ``--weights`` rounds unquantised weights to while they are loaded."""

FAST_ARCHITECTURES = {
    "ernie4_5": "ernie4_5",
    "exaone4": "exaone4",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "glm4": "glm4",
    "granite": "granite",
    "llama": "llama",
    "mistral3": "mistral",
    "olmo2": "olmo2",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2vl": "qwen2",
    "qwen3": "qwen3",
    "qwen3vl": "qwen3",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
}
"""GGUF architectures whose dense models the fast engine runs, each with one of its transformers' types."""

FAST_TYPES = frozenset({*FAST_ARCHITECTURES.values(), "olmo3"})
"""transformers' model types that the fast engine runs."""


def padded_head(size: int, turned: int) -> int:
    """Places that the fast engine gives a head of ``size`` numbers, of which the first ``turned`` are turned.

    Both halves of what is turned, and the rest, begin at a multiple of eight.
    """
    return 2 * eights(turned // 2) + eights(size - turned)


def eights(count: int) -> int:
    """The next multiple of eight."""
    return -(-count // 8) * 8


_PACKING = 1.03
"""A file's weights grow at most by so much when they are packed."""

_MIXED_BITS = 0.7
"""What a mixture of types, as Q4_K_M is, has above the one of its name (the catalogue's: 0.3 to 0.8)."""


def told_bytes(
    architecture: str | None, parameters: int, nbytes: int | None, quant: str | None
) -> int | None:
    """As :func:`packed_bytes` of a GGUF that is not here: by its file's size, else its quantisation's name.

    None if the fast engine doesn't run such a model, or where too little is known.
    """
    if architecture not in FAST_ARCHITECTURES:
        return None
    if nbytes is not None:
        return int(nbytes * _PACKING)
    if quant in PACKED_BITS:
        return int(parameters * PACKED_BITS[quant] / 8)
    kind, _, size = (quant or "").rpartition("_")
    if kind in PACKED_BITS and size in ("S", "M", "L"):
        return int(parameters * (PACKED_BITS[kind] + _MIXED_BITS) / 8)
    return None


def packed_bytes(matrices: Iterable[tuple[str, int, int]], numbers: int) -> int | None:
    """Bytes of packed weights; None if a matrix can't be packed.

    ``matrices`` are (type, outputs, inputs), ``numbers`` counts those that are kept in float32.
    """
    total = 4.0 * numbers
    for kind, outputs, inputs in matrices:
        if kind not in PACKED_BITS or inputs % 32:
            return None
        # Panels are of eight rows, the last one filled up.
        total += PACKED_BITS[kind] / 8 * inputs * (-(-outputs // 8) * 8)
    return int(total)
