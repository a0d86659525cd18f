"""GGUF files put together byte by byte, whole or damaged on purpose."""

import struct
from typing import Any

import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item: Any) -> bytes:
    """A metadata value behind its type's number."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item) if item >= 0 else struct.pack("<Ii", 5, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if not item:
        return struct.pack("<IIQ", 9, 4, 0)
    first = value(item[0])
    kind = first[:4]
    return (
        struct.pack("<I", 9) + kind + struct.pack("<Q", len(item)) + b"".join(value(one)[4:] for one in item)
    )


def tensor_entry(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = b"".join(struct.pack("<Q", size) for size in reversed(shape))
    return text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, offset)


def gguf_bytes(
    metadata: dict[str, Any],
    tensors: dict[str, tuple[tuple[int, ...], str, bytes]],
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A whole file; a tensor is its shape in torch's order, its type and its data."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + value(item) for key, item in metadata.items())
    data = b""
    for name, (shape, kind, raw) in tensors.items():
        data += b"\0" * (-len(data) % alignment)
        head += tensor_entry(name, shape, TYPES[kind], len(data))
        data += raw
    return head + b"\0" * (-len(head) % alignment) + data


def floats(*shape: int) -> tuple[tuple[int, ...], str, bytes]:
    """A float32 tensor of counting numbers."""
    return shape, "F32", np.arange(np.prod(shape), dtype="<f4").tobytes()
