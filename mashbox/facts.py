"""What a model on disk is, read in a moment and without torch: sizes, shapes, what its state will need."""

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from mashbox.errors import GET_ANEW, BadWeights
from mashbox.gguf_file import GGUFFile
from mashbox.gguf_keys import Keys
from mashbox.packing import FAST_ARCHITECTURES, FAST_TYPES, QUANTISED, packed_bytes, padded_head

_OF_HEADS = re.compile(r"(attn_(q|k|v|qkv|q_norm|k_norm)|(q|k|v|qkv)_proj|(q|k)_norm)\.(weight|bias)$")
"""What has a row or number for each number of queries, keys or values, by its names in both formats."""

STATEFUL = frozenset({"linear_attention", "conv", "mamba", "recurrent"})
"""transformers' names of layers that keep a state of fixed size instead of keys and values."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one model.

    ``kv_heads``, ``head_dim`` and ``value_head_dim`` are those of the largest layer. ``kv_numbers`` are the
    numbers that one token keeps in the caches of all layers together, ``state_numbers`` those that one
    slot keeps in states of fixed size (convolutions, recurrences). ``sliding_window`` is in tokens, 0 for
    none. ``parameters`` counts what is in memory; ``bpw`` are bits per weight of the file. ``packed`` are the
    bytes of the weights as the fast engine holds them, by what ``--weights`` may say; empty if it can't run
    the model. ``head_room`` are the places that it gives a head (0: ``head_dim``).
    ``folder``: it is one of safetensors, not a GGUF file.
    """

    architecture: str
    context_length: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    vocab: int
    parameters: int
    weight_file_bytes: int
    bpw: float
    quant: str
    kv_numbers: int
    state_numbers: int = 0
    sliding_window: int = 0
    packed: dict[str, int] = {}
    head_room: int = 0
    folder: bool = False

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes that a token's keys and values take in one slot."""
        return self.kv_numbers * dtype_bytes

    @property
    def fast_head_dim(self) -> int:
        """Places of a head in the fast engine."""
        return self.head_room or self.head_dim

    @property
    def fast_kv_bytes_per_token(self) -> int:
        """Bytes that they take in a slot of the fast engine, in half precision, in its places."""
        return 2 * self.kv_numbers * self.fast_head_dim // max(self.head_dim, 1)

    def state_bytes_per_slot(self, dtype_bytes: int = 4) -> int:
        """Bytes of a slot's states of fixed size; recurrences are kept in float32."""
        return self.state_numbers * dtype_bytes


def read_facts(weights: Path, format: Literal["gguf", "safetensors"]) -> ModelFacts:
    """The facts of a GGUF file or a folder of safetensors with its ``config.json``.

    Reads headers only. Raises BadWeights for files that are missing, damaged or cut short.
    """
    return gguf_facts(GGUFFile(weights)) if format == "gguf" else _folder_facts(weights)


def gguf_facts(file: GGUFFile) -> ModelFacts:
    """The facts that a GGUF file's metadata and table of tensors tell."""
    keys = Keys(file)
    heads, hidden, layers = keys.whole("attention.head_count"), keys.whole("embedding_length"), keys.layers
    head_dim = keys.whole("attention.key_length", hidden // max(heads, 1))
    value_dim = keys.whole("attention.value_length", head_dim)
    kv_heads = keys.wholes("attention.head_count_kv", layers, heads)
    if "attention.key_length_mla" in keys:
        head_dim = keys.whole("attention.key_length_mla")
        value_dim = keys.whole("attention.value_length_mla")
        kv_heads = [heads] * layers
    attending = keys.attending_layers()
    # The last layers of some models read the keys and values of earlier ones.
    holding = attending[: len(attending) - keys.whole("attention.shared_kv_layers", 0)]
    room = padded_head(head_dim, keys.whole("rope.dimension_count", head_dim))
    return ModelFacts(
        architecture=file.architecture,
        context_length=keys.whole("context_length"),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=max(kv_heads, default=0),
        head_dim=head_dim,
        value_head_dim=value_dim,
        vocab=keys.vocab,
        parameters=file.n_elements,
        weight_file_bytes=file.file_bytes,
        bpw=file.bits_per_weight,
        quant=file.quant,
        kv_numbers=sum(_cached(keys, layer, kv_heads[layer], head_dim + value_dim) for layer in holding),
        state_numbers=(layers - len(attending)) * _gguf_state(keys, hidden),
        sliding_window=keys.whole("attention.sliding_window", 0),
        packed=_gguf_packed(file, keys, room / max(head_dim, 1)),
        head_room=room,
    )


def _gguf_packed(file: GGUFFile, keys: Keys, room: float) -> dict[str, int]:
    """See ``ModelFacts.packed``: a file's weights are packed as they are.

    ``room`` are the places in the fast engine for each number of a head.
    """
    if file.architecture not in FAST_ARCHITECTURES or keys.whole("expert_count", 0):
        return {}
    matrices = [
        (info.type, _places(name, info.shape[0], room), info.shape[1])
        for name, info in file.tensors.items()
        if len(info.shape) == 2
    ]
    numbers = sum(
        _places(name, info.n_elements, room) for name, info in file.tensors.items() if len(info.shape) != 2
    )
    nbytes = packed_bytes(matrices, numbers)
    return {} if nbytes is None else {"auto": nbytes}


def _places(name: str, count: int, room: float) -> int:
    """A tensor's ``count`` of rows or numbers once packed, where those of heads have their places."""
    return round(count * room) if _OF_HEADS.search(name) else count


def _cached(keys: Keys, layer: int, kv_heads: int, head_numbers: int) -> int:
    """Numbers that a token keeps in one layer's cache; ``head_numbers`` are those of one head."""
    if "attention.kv_lora_rank" in keys:
        # Latent attention: transformers' modules cache the latent and the rotated part, once for all heads.
        return keys.whole("attention.kv_lora_rank") + keys.whole("rope.dimension_count")
    sliding = keys.raw("attention.sliding_window_pattern")
    if "attention.key_length_swa" in keys and isinstance(sliding, list) and any(sliding[layer : layer + 1]):
        head_numbers = keys.whole("attention.key_length_swa") + keys.whole("attention.value_length_swa")
    return kv_heads * head_numbers


def _gguf_state(keys: Keys, hidden: int) -> int:
    """Numbers of state in one layer without attention."""
    if "shortconv.l_cache" in keys:
        return hidden * keys.whole("shortconv.l_cache")
    if "ssm.state_size" not in keys:
        return 0
    inner, state = keys.whole("ssm.inner_size"), keys.whole("ssm.state_size")
    channels = inner + 2 * state * keys.whole("ssm.group_count", 1)
    return channels * keys.whole("ssm.conv_kernel") + inner * state


def _folder_facts(folder: Path) -> ModelFacts:
    config = _json(folder / "config.json")
    text = config.get("text_config", config)
    try:
        return _config_facts(text, config, folder)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise BadWeights(f"{folder / 'config.json'}: no usable {error}.", GET_ANEW) from error


def _config_facts(text: dict[str, Any], config: dict[str, Any], folder: Path) -> ModelFacts:
    files = safetensors_files(folder)
    parameters, nbytes, dtype = _count(files)
    heads, layers = text["num_attention_heads"], text["num_hidden_layers"]
    kv_heads = text.get("num_key_value_heads") or heads
    head_dim = text.get("head_dim") or text["hidden_size"] // heads
    value_dim = head_dim
    if text.get("kv_lora_rank"):
        kv_heads, head_dim = heads, text["qk_nope_head_dim"] + text["qk_rope_head_dim"]
        value_dim = text["v_head_dim"]
    room = padded_head(head_dim, int(head_dim * _turned_share(text)))
    kinds = text.get("layer_types") or ["full_attention"] * layers
    attending = [layer for layer, kind in enumerate(kinds) if kind not in STATEFUL]
    holding = attending[: len(attending) - (text.get("num_kv_shared_layers") or 0)]
    return ModelFacts(
        architecture=text.get("model_type") or config["model_type"],
        context_length=text["max_position_embeddings"],
        layers=layers,
        hidden=text["hidden_size"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=value_dim,
        vocab=text["vocab_size"],
        parameters=parameters,
        weight_file_bytes=sum(file.stat().st_size for file in files),
        bpw=8 * nbytes / parameters,
        quant=dtype,
        kv_numbers=sum(_config_cached(text, layer, kinds[layer], kv_heads, head_dim) for layer in holding),
        state_numbers=(len(kinds) - len(attending)) * _config_state(text),
        sliding_window=(text.get("sliding_window") or 0) if "sliding_attention" in kinds else 0,
        packed=_folder_packed(files, text.get("model_type"), room / head_dim),
        head_room=room,
        folder=True,
    )


def _turned_share(text: dict[str, Any]) -> float:
    """The share of a head's numbers that are turned, if all layers have the same."""
    rope = text.get("rope_parameters") or {}
    first = next((value for value in rope.values() if isinstance(value, dict)), rope)
    return float(first.get("partial_rotary_factor") or text.get("partial_rotary_factor") or 1.0)


def _folder_packed(files: list[Path], model_type: str | None, room: float) -> dict[str, int]:
    """See :func:`_gguf_packed`: weights are packed as they are, or rounded while they are loaded."""
    if model_type not in FAST_TYPES:
        return {}
    entries = [entry for file in files for entry in _header(file)]
    matrices = [
        (entry["dtype"], _places(entry["name"], entry["shape"][0], room), entry["shape"][1])
        for entry in entries
        if len(entry["shape"]) == 2
    ]
    numbers = sum(
        _places(entry["name"], math.prod(entry["shape"]), room)
        for entry in entries
        if len(entry["shape"]) != 2
    )
    found = {"auto": packed_bytes(matrices, numbers)}
    for weights, kind in QUANTISED.items():
        found[weights] = packed_bytes(((kind, *shape) for _, *shape in matrices), numbers)
    return {weights: nbytes for weights, nbytes in found.items() if nbytes is not None}


def _config_cached(text: dict[str, Any], layer: int, kind: str, kv_heads: int, head_dim: int) -> int:
    """Numbers that a token keeps in one layer's cache, see :func:`_cached`."""
    if text.get("kv_lora_rank"):
        return int(text["kv_lora_rank"] + text["qk_rope_head_dim"])
    own = dict((text.get("per_layer_config") or {}).get(str(layer), {}))
    if kind == "full_attention":
        own.setdefault("head_dim", text.get("global_head_dim"))
        own.setdefault("num_key_value_heads", text.get("num_global_key_value_heads"))
    heads, size = own.get("num_key_value_heads") or kv_heads, own.get("head_dim") or head_dim
    return int(2 * heads * size)


def _config_state(text: dict[str, Any]) -> int:
    """Numbers of state in one layer without attention."""
    if "conv_L_cache" in text:
        return int(text["hidden_size"] * text["conv_L_cache"])
    if "linear_num_value_heads" in text:
        keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
        values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
        conv = (2 * keys + values) * text["linear_conv_kernel_dim"]
        return int(conv + values * text["linear_key_head_dim"])
    if "mamba_d_state" in text:
        inner = text["mamba_n_heads"] * text["mamba_d_head"]
        channels = inner + 2 * text["mamba_n_groups"] * text["mamba_d_state"]
        return int(channels * text["mamba_d_conv"] + inner * text["mamba_d_state"])
    return 0


def safetensors_files(folder: Path) -> list[Path]:
    """The weights of a folder: all shards of its index, or its one file. Raises BadWeights if any lacks."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        single = folder / "model.safetensors"
        if not single.is_file():
            raise BadWeights(f"{folder}: no model.safetensors and no index of shards.", GET_ANEW)
        return [single]
    shards = _json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise BadWeights(f"{index}: no map of weights.", GET_ANEW)
    files = [folder / name for name in sorted(set(shards.values()))]
    missing = [file.name for file in files if file.parent != folder or not file.is_file()]
    if missing:
        raise BadWeights(f"{folder}: shards are missing: {', '.join(missing)}.", GET_ANEW)
    return files


def _count(files: list[Path]) -> tuple[int, int, str]:
    """Parameters, their bytes, and the data type that most of them have."""
    parameters = nbytes = 0
    kinds: dict[str, int] = {}
    for file in files:
        for entry in _header(file):
            count = math.prod(entry["shape"])
            parameters += count
            nbytes += entry["data_offsets"][1] - entry["data_offsets"][0]
            kinds[entry["dtype"]] = kinds.get(entry["dtype"], 0) + count
    if not parameters:
        raise BadWeights(f"{files[0]}: no tensors.", GET_ANEW)
    return parameters, nbytes, max(kinds, key=lambda kind: kinds[kind])


def _header(file: Path) -> Iterator[dict[str, Any]]:
    """The table of a safetensors file (https://github.com/huggingface/safetensors#format)."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > size - 8:
            raise BadWeights(f"{file}: not a safetensors file, or cut short.", GET_ANEW)
        try:
            table = json.loads(stream.read(length))
            entries = [entry | {"name": name} for name, entry in table.items() if name != "__metadata__"]
            end = max((entry["data_offsets"][1] for entry in entries), default=0)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise BadWeights(f"{file}: its header can't be read.", GET_ANEW) from error
    if 8 + length + end > size:
        raise BadWeights(
            f"{file}: {8 + length + end} bytes long by its header, the file has {size}.", GET_ANEW
        )
    yield from entries


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise BadWeights(f"{path}: {error.strerror or error}.", GET_ANEW) from error
    except ValueError as error:
        raise BadWeights(f"{path}: no valid JSON ({error}).", GET_ANEW) from error
    if not isinstance(value, dict):
        raise BadWeights(f"{path}: not an object.", GET_ANEW)
    return value
