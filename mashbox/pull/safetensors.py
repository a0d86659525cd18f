"""A look at safetensors files that no hash vouches for: are they whole, and are all of them there?

The format: eight bytes with the header's length (little endian), the header as JSON, the tensors' bytes,
whose offsets the header gives relative to its own end.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mashbox.errors import GET_ANEW, BadWeights

_LONGEST_HEADER = 100_000_000


class _Tensor(msgspec.Struct):
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def check(folder: Path, names: Sequence[str]) -> None:
    """Raise BadWeights unless every safetensors file is as long as its header says and none is missing."""
    for name in names:
        if name.endswith(".safetensors"):
            _check_file(folder / name)
    index = folder / "model.safetensors.index.json"
    if index.name in names:
        try:
            shards = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
        except msgspec.DecodeError as error:
            raise BadWeights(f"{index} is damaged: {error}.", GET_ANEW) from error
        missing = sorted(shards - set(names))
        if missing:
            raise BadWeights(
                f"{folder} lacks {missing[0]}, which {index.name} names.", "Fetch the whole model."
            )


def _check_file(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else _LONGEST_HEADER
        if length > min(size - 8, _LONGEST_HEADER - 1):
            raise BadWeights(f"{path} is not a whole safetensors file.", GET_ANEW)
        header = file.read(length)
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        ends = [msgspec.json.decode(value, type=_Tensor).data_offsets[1] for value in raw.values()]
    except msgspec.DecodeError as error:
        raise BadWeights(f"{path} has a damaged header: {error}.", GET_ANEW) from error
    if max(ends, default=0) != size - 8 - length:
        raise BadWeights(f"{path} has not the length that its header tells.", GET_ANEW)
