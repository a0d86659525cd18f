"""Load a folder of safetensors, single or sharded, with transformers' own renaming of checkpoint names.

Checkpoints don't always hold what the modules hold: experts are stored one by one and used as one tensor,
prefixes have changed. transformers knows those conversions; they are applied tensor by tensor while the file
is read, so the weights are in memory once (mapped from the file where no conversion is needed).
"""

import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.modeling_utils import LoadStateDictConfig
from transformers.utils.logging import disable_progress_bar

from mashbox.engine.worker.load.model import LoadedModel, build_empty, finish
from mashbox.errors import GET_ANEW, BadWeights, UnsupportedModel

Progress = Callable[[str, int, int], None]

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"

OTHER_INPUTS = re.compile(r"(^|\.)(vision_|visual|multi_modal|audio_|embed_vision|embed_audio|mtp)")
"""Tensors of other inputs, and of draft heads: only the text part of a model is run."""

_TEXT_PART = re.compile(r"^(?:model\.language_model|language_model\.model)\.(?=.)")
_TEXT_HEAD = re.compile(r"^language_model\.(?=lm_head\.)")


def load_safetensors(folder: Path, dtype: torch.dtype, progress: Progress) -> LoadedModel:
    """The model in ``folder`` (config.json and model*.safetensors), its parameters as ``dtype``.

    ``progress`` gets a stage in words and bytes done of bytes in all. Raises BadWeights naming the file or
    tensor that is damaged, missing, unexpected or of a wrong shape, and UnsupportedModel for a model type or
    quantisation that can't be run.
    """
    config = read_config(folder)
    files = _weight_files(folder)
    module: Any = build_empty(config, dtype)
    expected = set(module.state_dict())
    meter = _Meter(progress, sum(file.stat().st_size for file in files))
    with ExitStack() as stack:
        missing = _convert(module, _open(files, stack, meter), dtype)
    weight_bytes = finish(module, expected - missing)
    return LoadedModel(module, config, str(config.model_type), weight_bytes, dtype)


def read_config(folder: Path) -> PretrainedConfig:
    """The configuration in ``folder``; of a model with several inputs only the text part."""
    if not (folder / "config.json").is_file():
        raise BadWeights(f"{folder} has no config.json.", GET_ANEW)
    try:
        # Code that came with the weights is never run.
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, json.JSONDecodeError) as error:
        raise BadWeights(f"{folder / 'config.json'} can't be read: {error}", GET_ANEW) from error
    except (ValueError, KeyError) as error:
        raise UnsupportedModel(f"transformers doesn't know the model in {folder}: {error}") from error
    quantised = getattr(config, "quantization_config", None)
    if quantised is not None:
        method = quantised.get("quant_method", "unknown") if isinstance(quantised, dict) else quantised
        raise UnsupportedModel(
            f"The safetensors in {folder} are quantised ({method}), which mashbox can't read.",
            "Use the model's GGUF, or its unquantised safetensors.",
        )
    text: PretrainedConfig = config.get_text_config(decoder=True)
    if text is not config and getattr(config, "tie_word_embeddings", False):
        text.tie_word_embeddings = True
    return text


def _weight_files(folder: Path) -> list[Path]:
    """The one file or all shards that the index names, each of which must be there."""
    index = folder / _INDEX
    if not index.exists():
        if not (folder / _SINGLE).exists():
            raise BadWeights(f"{folder} has neither {_SINGLE} nor {_INDEX}.", GET_ANEW)
        return [folder / _SINGLE]
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadWeights(f"{index} is damaged: {error}", GET_ANEW) from error
    for name in names:
        if not (folder / name).is_file():
            raise BadWeights(f"The weights file {folder / name} is missing.", GET_ANEW)
    return [folder / name for name in names]


def open_tensors(folder: Path, stack: ExitStack, progress: Progress) -> dict[str, Any]:
    """All tensors in ``folder`` by their names in the text part; indexing one reads it from its file."""
    files = _weight_files(folder)
    meter = _Meter(progress, sum(file.stat().st_size for file in files))
    return dict(_open(files, stack, meter))


class _Meter:
    """Adds up the bytes read and passes them on."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, size: int) -> None:
        self._done += size
        self._progress("reading the weights", self._done, self._total)


class _Slice:
    """A tensor still in its file; indexing reads it."""

    def __init__(self, stored: Any, meter: _Meter) -> None:
        self._stored = stored
        self._meter = meter

    def __getitem__(self, index: Any) -> Tensor:
        tensor: Tensor = self._stored[index]
        self._meter.add(tensor.nbytes)
        return tensor


def _open(files: list[Path], stack: ExitStack, meter: _Meter) -> dict[str, _Slice]:
    """All tensors by name; those of the text part within a larger model by their names in it alone."""
    slices: dict[str, _Slice] = {}
    for file in files:
        try:
            opened = stack.enter_context(safe_open(file, framework="pt", device="cpu"))
        except (SafetensorError, OSError) as error:
            raise BadWeights(f"The weights file {file} is damaged: {error}", GET_ANEW) from error
        for stored in opened.keys():  # noqa: SIM118 - it is not a mapping
            name = _TEXT_HEAD.sub("", _TEXT_PART.sub("model.", stored))
            if name in slices:
                raise BadWeights(f"The weights hold the tensor {stored!r} twice.", GET_ANEW)
            slices[name] = _Slice(opened.get_slice(stored), meter)
    return slices


def _convert(module: Any, slices: dict[str, _Slice], dtype: torch.dtype) -> set[str]:
    """Put the tensors in their places; the names in the module that got none."""
    # One after the other: its threads would read ahead and hold experts both apart and joined.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    disable_progress_bar()
    rules = LoadStateDictConfig(
        dtype=dtype,
        dtype_plan=module._get_dtype_plan(dtype),
        weight_mapping=get_model_conversion_mapping(module),
    )
    info, _ = convert_and_load_state_dict_in_model(module, slices, rules)
    missing = set(info.missing_keys)
    module._adjust_missing_and_unexpected_keys(info)
    for name, found, wanted in info.mismatched_keys:
        raise BadWeights(
            f"The tensor {name!r} has shape {list(found)}, the model needs {list(wanted)}.", GET_ANEW
        )
    for name, reason in info.conversion_errors.items():
        raise BadWeights(f"The tensor {name!r} can't be converted: {reason}", GET_ANEW)
    for name in sorted(info.unexpected_keys):
        if not OTHER_INPUTS.search(name):
            raise BadWeights(f"The weights hold a tensor {name!r} that the model has no place for.", GET_ANEW)
    return missing
