"""Which files of a repository or folder make a model that can be served."""

import fnmatch
from collections.abc import Iterable, Sequence

from mashbox.errors import NotFound, UnsupportedModel
from mashbox.pull.plan import SPLIT, Format, split_set

PREFERRED_QUANTS = (
    "Q4_K_M", "Q4_K_S", "MXFP4", "Q4_1", "Q4_0", "IQ4_XS", "IQ4_NL", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0",
    "Q6_K", "Q8_0", "Q3_K_L", "Q3_K_M", "BF16", "F16", "F32",
)  # fmt: skip
"""Of a repository with many GGUFs the first of these: four bits with the better mix, then what is larger."""

_NOT_A_MODEL = ("mmproj", "mtp-", "imatrix", "draft")
"""Vision towers, draft heads and calibration data lie beside the models."""

_BESIDE = ("*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt", "LICENSE*")
"""What belongs to safetensors: configuration, tokenizer, chat template, licence. Never code."""


def choose(names: Iterable[str], where: str, file: str | None = None) -> tuple[Format, list[str]]:
    """The format and the files to take of ``names``; the weights of a GGUF come first, parts in order.

    ``file`` is a GGUF in ``names``, or a quantisation (``Q8_0``); None leaves the choice to us. ``where``
    names the place in errors. Raises NotFound or UnsupportedModel.
    """
    present = sorted(names)
    if file is not None:
        return "gguf", _parts(_named(file, present, where), present, where)
    weights = _safetensors(present)
    if weights:
        beside = [name for name in present if "/" not in name and _is_beside(name)]
        for needed in ("config.json", "tokenizer.json"):
            if needed not in beside:
                raise UnsupportedModel(
                    f"{where} has safetensors but no {needed}.",
                    "Look for a GGUF of the model, or for a repository in the transformers format.",
                )
        return "safetensors", [*beside, *weights]
    ggufs = _models(present)
    if not ggufs:
        raise UnsupportedModel(f"{where} has neither a GGUF nor safetensors at its top.", "")
    return "gguf", _parts(_best(ggufs), present, where)


def _named(file: str, present: Sequence[str], where: str) -> str:
    if file.endswith(".gguf"):
        if file not in present:
            raise NotFound(f"{where} has no file {file}.", _offer(_models(present)))
        return file
    tagged = [name for name in _models(present) if _has_quant(name, file)]
    if not tagged:
        raise NotFound(f"{where} has no GGUF of quantisation {file}.", _offer(_models(present)))
    return min(tagged, key=len)


def _offer(ggufs: Sequence[str]) -> str:
    shown = ", ".join(ggufs[:8]) + (" ..." if len(ggufs) > 8 else "")
    return f"It has: {shown}" if ggufs else "It has no GGUF at all."


def _models(present: Sequence[str]) -> list[str]:
    """GGUF files that are models; of a split one the first part only."""
    found = [name for name in present if name.endswith(".gguf")]
    found = [name for name in found if not any(mark in name.lower() for mark in _NOT_A_MODEL)]
    return [name for name in found if split_set(name)[0] == name]


def _has_quant(name: str, quant: str) -> bool:
    match = SPLIT.match(name)
    stem = (match["stem"] if match else name.removesuffix(".gguf")).upper()
    return stem.endswith(quant.upper()) and not stem.removesuffix(quant.upper())[-1:].isalnum()


def _best(ggufs: Sequence[str]) -> str:
    for quant in PREFERRED_QUANTS:
        tagged = [name for name in ggufs if _has_quant(name, quant)]
        if tagged:
            return min(tagged, key=len)
    return ggufs[0]


def _parts(name: str, present: Sequence[str], where: str) -> list[str]:
    parts = split_set(name)
    missing = [part for part in parts if part not in present]
    if missing:
        raise NotFound(f"{where} lacks {missing[0]}, one of the {len(parts)} parts of {name}.")
    return parts


def _safetensors(present: Sequence[str]) -> list[str]:
    """The weights of a transformers checkpoint; other sets beside it (``consolidated``) are left out."""
    weights = [name for name in present if name.endswith(".safetensors") and "/" not in name]
    standard = [name for name in weights if name.startswith("model")]
    sharded = [name for name in standard if name != "model.safetensors"]
    if "model.safetensors.index.json" in present and sharded:
        return sharded
    if "model.safetensors" in standard:
        return ["model.safetensors"]
    return standard or [name for name in weights if not name.startswith(("consolidated", "adapter"))]


def _is_beside(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _BESIDE)
