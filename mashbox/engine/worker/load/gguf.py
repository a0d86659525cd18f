"""Loads a GGUF file into a transformers module, one tensor at a time."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, PretrainedConfig

from mashbox.engine.worker.load.architectures import Architecture, find_architecture
from mashbox.engine.worker.load.dequant import can_unpack, unpack, unpacking_threads
from mashbox.engine.worker.load.gguf_names import Config, Rule, find_rule
from mashbox.engine.worker.load.model import LoadedModel, build_empty, fill
from mashbox.errors import GET_ANEW, BadWeights, UnsupportedModel
from mashbox.gguf_file import GGUFFile
from mashbox.gguf_keys import Keys

Progress = Callable[[str, int, int], None]
STAGE = "reading the weights"


def load_gguf(path: Path, dtype: torch.dtype, progress: Progress) -> LoadedModel:
    """The model in ``path`` with parameters of ``dtype``, unpacked, in memory once.

    ``progress`` gets the stage, the bytes of the file that are done and those of all. Raises BadWeights
    or UnsupportedModel.
    """
    file = GGUFFile(path)
    architecture = find_architecture(file)
    config = gguf_config(file)
    module = build_empty(config, dtype)
    plan = _plan(module, file, architecture, config)
    with unpacking_threads() as pool:
        weight_bytes = fill(module, _tensors(module, file, plan, config, pool, progress), dtype)
    return LoadedModel(
        module=module, config=config, architecture=file.architecture, weight_bytes=weight_bytes, dtype=dtype
    )


def gguf_config(file: GGUFFile) -> PretrainedConfig:
    """The transformers configuration that a file's metadata describe."""
    architecture = find_architecture(file)
    try:
        model_type, fields = architecture.config(Keys(file))
        config: PretrainedConfig = CONFIG_MAPPING[model_type](**fields)
    except (ValueError, TypeError, LookupError, ArithmeticError, StrictDataclassError) as error:
        raise BadWeights(f"{file.paths[0]}: the metadata describe no usable model ({error}).") from error
    return config


def _plan(
    module: nn.Module, file: GGUFFile, architecture: Architecture, config: Config
) -> list[tuple[str, Rule]]:
    """Each parameter of the module with its rule, in the file's order; every tensor is accounted for."""
    rules = architecture.rules(config)
    plan: list[tuple[str, Rule]] = []
    lacking: list[str] = []
    for name in module.state_dict(keep_vars=True):
        rule = find_rule(rules, name)
        if rule is None:
            raise UnsupportedModel(
                f"{file.paths[0]}: {file.architecture!r} models with a {name!r} can't be read from GGUF."
            )
        if fitting := rule.for_tensors(file.tensors):
            plan.append((name, fitting))
        elif name != "lm_head.weight" or not config.tie_word_embeddings:
            lacking += [source for source in rule.sources if source not in file.tensors]
    if lacking:
        raise BadWeights(
            f"{file.paths[0]}: the tensor {lacking[0]!r} is missing (and {len(lacking) - 1} more).",
            GET_ANEW,
        )
    _check_all_used(file, architecture, plan)
    return sorted(plan, key=lambda entry: file.tensors[entry[1].sources[0]].start)


def _check_all_used(file: GGUFFile, architecture: Architecture, plan: list[tuple[str, Rule]]) -> None:
    """A tensor left over would mean a model computed without it: wrong answers instead of an error."""
    used = {source for _, rule in plan for source in rule.sources}
    layers = Keys(file).layers
    for name, info in file.tensors.items():
        if name not in used and not architecture.leaves_out(name, layers):
            raise UnsupportedModel(
                f"{file.paths[0]}: a {file.architecture!r} model with the tensor {name!r} can't be served."
            )
        if name in used and not can_unpack(info.type):
            raise UnsupportedModel(
                f"{file.paths[0]}: the tensor {name!r} has the type {info.type}, which can't be unpacked.",
                "Use a file with another quantisation, such as Q4_K_M or Q8_0.",
            )


def _tensors(
    module: nn.Module,
    file: GGUFFile,
    plan: list[tuple[str, Rule]],
    config: Config,
    pool: Executor,
    progress: Progress,
) -> Iterator[tuple[str, Tensor]]:
    shapes = module.state_dict(keep_vars=True)
    total = sum(info.nbytes for info in file.tensors.values())
    done = 0
    for name, rule in plan:
        progress(STAGE, done, total)
        expected = shapes[name]
        target = torch.empty(expected.shape, dtype=expected.dtype, device="cpu")
        for source, views in zip(rule.sources, rule.places(target, config), strict=True):
            info = file.tensors[source]
            if info.n_elements != sum(view.numel() for view in views):
                raise BadWeights(
                    f"{file.paths[0]}: the tensor {source!r} has shape {list(info.shape)}, "
                    f"which does not fit {name!r} of {list(expected.shape)}."
                )
            unpack(file.data(source), info.type, views, pool, rule.values)
            done += info.nbytes
        yield name, target
    progress(STAGE, total, total)
