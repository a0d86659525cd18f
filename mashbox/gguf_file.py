"""Reads GGUF files, fast and without torch: metadata, the table of tensors, and views of their bytes.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
A file is its magic, a version, two counts, the metadata pairs, the table of tensors, padding, and the
tensors' data. A model may be split over files named ``…-00001-of-00003.gguf``; the first holds the
metadata, each has its own table of tensors.
"""

import math
import mmap
import re
import struct
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType
from numpy.typing import NDArray

from mashbox.errors import GET_ANEW, BadWeights, UnsupportedModel

MAGIC = b"GGUF"
_PART = re.compile(r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf$")

_MAX_DIMENSIONS = 8
_MAX_PAIRS = 1 << 16
_MAX_TENSORS = 1 << 20
_MAX_NESTING = 4

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
# Value types of the format by number; 8 is a string and 9 an array.
_SCALARS = {
    number: (struct.Struct(f"<{code}"), np.dtype(f"<{name}"))
    for number, (code, name) in {
        0: ("B", "u1"),
        1: ("b", "i1"),
        2: ("H", "u2"),
        3: ("h", "i2"),
        4: ("I", "u4"),
        5: ("i", "i4"),
        6: ("f", "f4"),
        7: ("?", "?"),
        10: ("Q", "u8"),
        11: ("q", "i8"),
        12: ("d", "f8"),
    }.items()
}
_TYPED = {
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "F64": "<f8",
    "I8": "i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
}


class TensorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the table. ``shape`` is in torch's order (the fastest dimension last).

    ``type`` is ggml's name of the data type (``F32``, ``Q4_K``); ``part`` the index of the file that
    holds the data, ``start`` its first byte there.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    nbytes: int
    n_elements: int
    part: int
    start: int


class GGUFFile:
    """A GGUF model, memory-mapped; a split one is found whole from any of its parts.

    Raises BadWeights for a file that is damaged, cut short, or no GGUF file; UnsupportedModel for a
    version or a tensor type that is not known.
    """

    def __init__(self, path: Path) -> None:
        self.paths = parts(Path(path))
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._maps: list[mmap.mmap] = []
        for index, part in enumerate(self.paths):
            self._add(_Part(part, index))
        self._check_split()

    def _add(self, part: "_Part") -> None:
        if not self._maps:
            self.metadata = part.metadata
        for info in part.tensors:
            if info.name in self.tensors:
                raise BadWeights(f"{part.path}: tensor {info.name!r} appears twice.", GET_ANEW)
            self.tensors[info.name] = info
        self._maps.append(part.map)

    def _check_split(self) -> None:
        count = self.metadata.get("split.count", 1) or 1
        if count != len(self.paths):
            raise BadWeights(
                f"{self.paths[0]}: says that it is one of {count} parts, found {len(self.paths)}.",
                "Keep all parts in one folder under their original names.",
            )
        promised = self.metadata.get("split.tensors.count", len(self.tensors))
        if promised != len(self.tensors):
            raise BadWeights(
                f"{self.paths[0]}: the parts hold {len(self.tensors)} tensors instead of {promised}.",
                GET_ANEW,
            )

    def data(self, name: str) -> NDArray[Any]:
        """A read-only view of a tensor's data in the file.

        Plain types have the tensor's shape and dtype (BF16 as uint16); of a quantised one the last
        dimension is the row's bytes, uint8.
        """
        info = self.tensors[name]
        raw = np.frombuffer(self._maps[info.part], np.uint8, info.nbytes, info.start)
        if info.type in _TYPED:
            return raw.view(_TYPED[info.type]).reshape(info.shape)
        rows = math.prod(info.shape[:-1])
        return raw.reshape(*info.shape[:-1], info.nbytes // max(rows, 1))

    @property
    def architecture(self) -> str:
        """``general.architecture``, such as ``llama``."""
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str) or not name:
            raise BadWeights(f"{self.paths[0]}: the metadata name no architecture.", GET_ANEW)
        return name

    @property
    def file_bytes(self) -> int:
        """Size of all parts."""
        return sum(len(part) for part in self._maps)

    @property
    def n_elements(self) -> int:
        """Numbers in all tensors together: the model's parameters."""
        return sum(info.n_elements for info in self.tensors.values())

    @property
    def bits_per_weight(self) -> float:
        """Bits of tensor data for each parameter, over the whole model."""
        return 8 * sum(info.nbytes for info in self.tensors.values()) / max(self.n_elements, 1)

    @property
    def quant(self) -> str:
        """The name the quantisation goes by (``Q4_K_M``), else the type of most parameters."""
        number = self.metadata.get("general.file_type")
        if isinstance(number, int):
            try:
                return str(LlamaFileType(number & ~LlamaFileType.GUESSED.value).name).split("_", 1)[1]
            except ValueError:
                pass  # newer than the enum: name what the tensors say
        totals: dict[str, int] = {}
        for info in self.tensors.values():
            totals[info.type] = totals.get(info.type, 0) + info.n_elements
        return max(totals, key=lambda name: totals[name], default="none")


def is_first_part(path: Path) -> bool:
    """Whether a file name is a model of its own or the first part of a split one."""
    match = _PART.match(path.name)
    return match is None or int(match["no"]) == 1


def parts(path: Path) -> list[Path]:
    """The files of a model, in order, from any of them. Raises BadWeights if one is missing."""
    match = _PART.match(path.name)
    if not match:
        return [path]
    count = int(match["count"])
    paths = [
        path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)
    ]
    missing = [part.name for part in paths if not part.is_file()]
    if missing or not paths:
        raise BadWeights(f"{path}: parts of the split model are missing: {', '.join(missing)}.", GET_ANEW)
    return paths


class _Part:
    """One file: its map, metadata and table of tensors."""

    def __init__(self, path: Path, index: int) -> None:
        self.path = path
        self.map = _map(path)
        self.size = len(self.map)
        self._at = 0
        _check_head(path, self.map)
        self._at = 8
        try:
            self._read(index)
        except (struct.error, IndexError):
            self._bad("the header ends before all of it was read: the file is cut short")

    def _bad(self, what: str) -> NoReturn:
        raise BadWeights(f"{self.path}: {what}.", GET_ANEW)

    def _read(self, index: int) -> None:
        tensor_count, pair_count = self._scalar(_U64), self._scalar(_U64)
        if tensor_count > _MAX_TENSORS or pair_count > _MAX_PAIRS:
            self._bad(f"damaged header: {tensor_count} tensors and {pair_count} metadata pairs")
        self.metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self._string()
            if key in self.metadata:
                self._bad(f"metadata key {key!r} appears twice")
            self.metadata[key] = self._value(self._scalar(_U32))
        raw = [self._tensor_entry() for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
            self._bad(f"damaged header: an alignment of {alignment!r}")
        base = -(-self._at // alignment) * alignment
        self.tensors = [self._placed(entry, base, alignment, index) for entry in raw]

    def _scalar(self, kind: struct.Struct) -> Any:
        value = kind.unpack_from(self.map, self._at)[0]
        self._at += kind.size
        return value

    def _string(self) -> str:
        length = self._scalar(_U64)
        end = self._at + length
        if end > self.size:
            self._bad(f"a text of {length} bytes at byte {self._at} runs beyond the end of the file")
        text = self.map[self._at : end].decode("utf-8", "replace")
        self._at = end
        return text

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind][0])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY or depth >= _MAX_NESTING:
            self._bad(f"damaged header: metadata of type {kind} at byte {self._at}")
        return self._array(depth)

    def _array(self, depth: int) -> list[Any]:
        kind, count = self._scalar(_U32), self._scalar(_U64)
        if count > self.size - self._at:
            self._bad(f"damaged header: an array of {count} values at byte {self._at}")
        if kind in _SCALARS:
            return self._numbers(_SCALARS[kind][1], count)
        if kind == _STRING:
            return self._strings(count)
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _numbers(self, dtype: np.dtype[Any], count: int) -> list[Any]:
        if count * dtype.itemsize > self.size - self._at:
            self._bad(f"an array of {count} numbers at byte {self._at} runs beyond the end of the file")
        values: list[Any] = np.frombuffer(self.map, dtype, count, self._at).tolist()
        self._at += count * dtype.itemsize
        return values

    def _strings(self, count: int) -> list[str]:
        # A vocabulary has up to a quarter of a million of them: no calls of our own inside the loop.
        buffer, at, size, length_of = self.map, self._at, self.size, _U64.unpack_from
        texts: list[str] = []
        add = texts.append
        for _ in range(count):
            start = at + 8
            at = start + length_of(buffer, at)[0]
            if at > size:
                self._bad(f"a text at byte {start} runs beyond the end of the file")
            add(buffer[start:at].decode("utf-8", "replace"))
        self._at = at
        return texts

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dimensions = self._scalar(_U32)
        if dimensions > _MAX_DIMENSIONS:
            self._bad(f"damaged header: tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self._scalar(_U64) for _ in range(dimensions))
        return name, shape[::-1], self._scalar(_U32), self._scalar(_U64)

    def _placed(
        self, entry: tuple[str, tuple[int, ...], int, int], base: int, alignment: int, index: int
    ) -> TensorInfo:
        name, shape, number, offset = entry
        try:
            kind = GGMLQuantizationType(number)
        except ValueError:
            raise UnsupportedModel(
                f"{self.path}: tensor {name!r} has the unknown data type {number}.",
                "Use a file with another quantisation, such as Q4_K_M or Q8_0.",
            ) from None
        block, block_bytes = GGML_QUANT_SIZES[kind]
        n_elements = math.prod(shape)
        if (shape[-1] if shape else 1) % block:
            self._bad(
                f"tensor {name!r} has rows of {shape[-1]} numbers, no multiple of {kind.name}'s {block}"
            )
        nbytes = n_elements // block * block_bytes
        start = base + offset
        if offset % alignment:
            self._bad(f"tensor {name!r} starts at {offset}, no multiple of the alignment {alignment}")
        if start + nbytes > self.size:
            self._bad(
                f"tensor {name!r} ends at byte {start + nbytes}, the file has {self.size}: it is cut short"
            )
        return TensorInfo(
            name=name,
            shape=shape,
            type=kind.name,
            nbytes=nbytes,
            n_elements=n_elements,
            part=index,
            start=start,
        )


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if path.stat().st_size < 24:
                raise BadWeights(f"{path}: too short for a GGUF file.", GET_ANEW)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BadWeights(f"{path}: {error.strerror or error}.", "Check the path.") from error


def _check_head(path: Path, head: mmap.mmap) -> None:
    if head[:4] != MAGIC:
        raise BadWeights(f"{path}: {_what_it_is(head[:64])}, not a GGUF model.", GET_ANEW)
    version = _U32.unpack_from(head, 4)[0]
    if version in (2, 3):
        return
    if int.from_bytes(head[4:8], "big") in (2, 3):
        raise UnsupportedModel(f"{path}: a big-endian GGUF file.", "Use the little-endian one.")
    raise UnsupportedModel(
        f"{path}: GGUF version {version}; 2 and 3 can be read.",
        "Convert the model again with a current tool.",
    )


def _what_it_is(head: bytes) -> str:
    if head[8:9] == b"{":
        return "a safetensors file"
    if head.lstrip()[:1] == b"<":
        return "a web page"
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive"
    return f"starts with {head[:4]!r}"
