"""From a configuration to an empty module, and from named tensors to a filled one.

A module is built on the meta device (shapes only), then every tensor is put in its place as it is read, so
that the weights are in memory once.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig
from transformers import initialization as init

from mashbox.engine.worker.architectures import check_supported
from mashbox.errors import GET_ANEW, BadWeights, UnsupportedModel

_T = TypeVar("_T", bound=Tensor)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A module ready to run.

    ``architecture`` is the file format's own name for it, ``config.model_type`` transformers'.
    ``weight_bytes`` counts each parameter and buffer in memory once.
    """

    module: nn.Module
    config: PretrainedConfig
    architecture: str
    weight_bytes: int
    dtype: torch.dtype


def build_empty(config: PretrainedConfig, dtype: torch.dtype) -> nn.Module:
    """The causal language model of ``config`` on the meta device: shapes and dtypes, no memory.

    Raises UnsupportedModel if transformers has no such model, or it is known not to run over slots.
    """
    check_supported(config)
    try:
        with torch.device("meta"), init.meta_device_safe_creation_ops(), init.no_init_weights():
            module: nn.Module = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except (ValueError, KeyError) as error:
        name = getattr(config, "model_type", type(config).__name__)
        raise UnsupportedModel(f"transformers can't build a text model of type {name!r}: {error}") from error
    return module.eval()


def fill(module: nn.Module, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> int:
    """Put ``tensors`` (name in ``module.state_dict()``, value) into an empty module and make it whole.

    Parameters become ``dtype`` (those that the model pins, and buffers, keep theirs); a tensor that has it
    already is taken over without a copy. Then tied weights are tied, and the buffers that no file holds
    (rotary frequencies and the like) are computed. Returns the bytes in memory. Raises BadWeights naming
    the tensor that is missing, unexpected, given twice or of a wrong shape.
    """
    seen: set[str] = set()
    for name, tensor in tensors:
        if name in seen:
            raise BadWeights(f"The weights hold the tensor {name!r} twice.", GET_ANEW)
        assign(module, name, tensor, dtype)
        seen.add(name)
    return finish(module, seen)


def assign(module: nn.Module, name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Put one tensor in its place, checked against the shape the configuration asks for."""
    owner_name, _, leaf = name.rpartition(".")
    try:
        owner = module.get_submodule(owner_name)
    except AttributeError:
        owner = None
    parameter = owner._parameters.get(leaf) if owner is not None else None
    buffer = owner._buffers.get(leaf) if owner is not None else None
    expected = parameter if parameter is not None else buffer
    if owner is None or expected is None:
        raise BadWeights(f"The weights hold a tensor {name!r} that the model has no place for.", GET_ANEW)
    if tensor.shape != expected.shape:
        raise BadWeights(
            f"The tensor {name!r} has shape {list(tensor.shape)}, the model needs {list(expected.shape)}.",
            GET_ANEW,
        )
    if parameter is not None:
        # A parameter built in another dtype than the rest is one that the model pins (to float32, say).
        pinned = parameter.dtype != module.config.dtype
        wanted = parameter.dtype if pinned else dtype
        owner._parameters[leaf] = _marked(nn.Parameter(tensor.to(wanted), requires_grad=False))
    else:
        owner._buffers[leaf] = _marked(tensor.to(expected.dtype))


def finish(module: nn.Module, seen: set[str]) -> int:
    """Tie, compute what no file holds, and check that nothing is left empty; bytes in memory."""
    model: Any = module
    # Ties from whichever name of a pair was given, and leaves a pair alone whose two values differ.
    model.tie_weights(missing_keys=set(module.state_dict()) - seen, recompute_mapping=False)
    missing = [name for name, tensor in module.state_dict(keep_vars=True).items() if tensor.is_meta]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadWeights(f"The weights lack the tensor {missing[0]!r}{more}.", GET_ANEW)
    compute_buffers(module)
    return memory_bytes(module)


def memory_bytes(module: nn.Module) -> int:
    """Bytes of all parameters and buffers, shared ones counted once."""
    tensors = [*module.parameters(), *module.buffers()]
    storages = {t.untyped_storage().data_ptr(): t.numel() * t.element_size() for t in tensors}
    return sum(storages.values())


def compute_buffers(module: nn.Module) -> None:
    """Give the buffers outside the state dict memory and let transformers initialise them."""
    model: Any = module
    computed: list[tuple[str, Tensor]] = []
    for name, buffer in list(model.named_non_persistent_buffers()):
        owner_name, _, leaf = name.rpartition(".")
        empty = torch.empty(buffer.shape, dtype=buffer.dtype, device="cpu")
        if empty.is_floating_point():
            empty.fill_(math.nan)
        module.get_submodule(owner_name)._buffers[leaf] = empty
        computed.append((name, empty))
    for parameter in module.parameters():
        _marked(parameter)
    with torch.no_grad():
        model.initialize_weights()
    for name, tensor in computed:
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise UnsupportedModel(f"transformers left the buffer {name!r} without values.")


def _marked(tensor: _T) -> _T:
    # transformers' initialisation passes over tensors that carry this mark.
    tensor._is_hf_initialized = True  # type: ignore[attr-defined]
    return tensor
