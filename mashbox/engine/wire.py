"""The few messages that cross between the server process and its worker, and their framing.

Each message is a tagged msgspec struct in MessagePack behind a four-byte little-endian length. Down the
worker's stdin: one ``Start``, then ``Submit | Cancel | Shutdown``. Up its stdout:
``Loading | Ready | Tokens | Failed | Stats``. Every Submit ends in exactly one terminal message: the
``Tokens`` row that carries ``finish``, or a ``Failed`` with its id.
"""

import struct
from typing import Any, Literal, Protocol

import msgspec

from mashbox.engine.request import Sampling

Finish = Literal["stop", "length", "cancelled"]


class Start(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """What the worker serves and how. ``model`` is a weights file or folder, see ``load.open_model``.

    ``activations`` are the bits that the fast engine rounds them to, 16 or 8.
    ``speculation`` auto: tokens are guessed where the engine's rows do not depend on their batch.
    ``tokenizer`` is the folder of its ``tokenizer.json``, without which no request can be guided.
    ``cache_auto``: ``cache_bytes`` were not asked for; they are a share of what the plan leaves free.
    ``ctx_auto`` and ``slots_auto``: so were the context and the slots, as those that fit; where another
    engine runs than they were planned for, they are chosen anew.
    ``agreed`` and ``refused`` are what the worker before this one found out of the fast engine: the name of
    the comparison, and why it does not run the model.
    """

    model: str
    format: Literal["gguf", "safetensors"]
    ctx: int
    slots: int
    ctx_auto: bool = False
    slots_auto: bool = False
    engine: Literal["auto", "exact", "fast"] = "auto"
    weights: str = "auto"
    activations: int = 16
    device: str = "cpu"
    threads: int = 0
    cache_bytes: int = 0
    cache_auto: bool = False
    share_cache: bool = False
    speculation: Literal["auto", "off"] = "auto"
    tokenizer: str = ""
    agreed: str = ""
    refused: str = ""


class Submit(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Read ``ids`` (at least one), then produce up to ``max_tokens`` tokens or until one of ``end_ids``.

    ``grammar``, where there is one, is what the new tokens are held to, see :mod:`mashbox.engine.grammar`.
    """

    id: int
    ids: list[int]
    max_tokens: int
    end_ids: list[int]
    sampling: Sampling
    session: str | None = None
    tenant: str = ""
    grammar: str | None = None


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """Drop the request at the next step; a request still there ends in a row with finish ``cancelled``."""

    id: int


class Shutdown(msgspec.Struct, tag=True, frozen=True):
    """End at once, rows and all."""


class Loading(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """``stage`` in words; ``done`` of ``total`` bytes."""

    stage: str
    done: int = 0
    total: int = 0


class Ready(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Loaded and warmed up. ``weight_bytes`` are those in memory; ``kv_bytes`` those of all ``slots`` of
    ``ctx`` tokens.

    ``engine_why`` tells why ``engine`` is not the fast one, where the choice was open. ``cache_bytes`` is the
    prompt cache's cap, ``agreed`` names what the fast engine was found to agree on; see :class:`Start`.
    """

    engine: str
    architecture: str
    ctx: int
    slots: int
    weight_bytes: int
    kv_bytes: int
    vocab_size: int
    routed_experts: dict[str, Any] | None = None
    engine_why: str = ""
    cache_bytes: int = 0
    agreed: str = ""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """New tokens of request ``id``: one, several where guesses came true, none where it was cancelled.

    ``cached`` comes on the first. ``drafted`` tokens were guessed in the step, ``accepted`` of them came.
    """

    id: int
    tokens: list[int]
    finish: Finish | None = None
    cached: int = 0
    drafted: int = 0
    accepted: int = 0


class Tokens(msgspec.Struct, tag=True, frozen=True):
    """Everything that one step produced, all rows in one message."""

    rows: list[Row]


class Failed(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """``id`` None: the worker itself can't go on (it could not load, its device failed)."""

    id: int | None
    kind: Literal["model", "memory", "device", "request"]
    message: str
    remedy: str = ""


class Stats(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The worker's own figures, sent after a step that changed one.

    ``host_cache_bytes`` are slots' states, ``snapshot_bytes`` state points; ``host_cache_evictions`` counts
    those of both that were put out for room, ``programs`` what was compiled or built since it was ready.
    """

    host_cache_bytes: int = 0
    host_cache_evictions: int = 0
    snapshot_bytes: int = 0
    programs: int = 0


Down = Start | Submit | Cancel | Shutdown
Up = Loading | Ready | Tokens | Failed | Stats

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(Down)
_up = msgspec.msgpack.Decoder(Up)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def pack(message: Down | Up) -> bytes:
    """One framed message."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def frame_length(head: bytes) -> int:
    """The body's length in bytes from its four-byte head."""
    return int(_LENGTH.unpack(head)[0])


def unpack_up(body: bytes) -> Up:
    return _up.decode(body)


def read_down(stream: _Readable) -> Down | None:
    """The next message from a blocking stream; None at its end."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = frame_length(head)
    body = stream.read(size)
    return _down.decode(body) if len(body) == size else None
