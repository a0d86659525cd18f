"""The other side of :mod:`mashbox.engine.worker.agreement`: one comparison, in a process of its own.

One forward pass of transformers' model, in which every layer is a probe: it gets the hidden state that the
kernels gave to their layer, and its result is held to theirs. A probe has its layer's weights in float32 only
while it runs, so there is never more than one layer of them; of the embeddings and the head only some rows.
"""

import contextlib
import ctypes
import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from mashbox.engine.wire import Start
from mashbox.engine.worker.agreement import Finding
from mashbox.engine.worker.load.model import assign, build_empty, compute_buffers
from mashbox.engine.worker.load.single import Single, open_single
from mashbox.engine.worker.rope import fix_frequencies

_ROWS = 256
"""Rows of the head that are compared."""

_ALL_LAYERS = 1_000_000_000
"""Up to so many parameters every layer is compared, beyond a few of each kind."""

_FEW = 2

_WORST = 1e9
"""The error of what is no number: JSON has none such."""

_M_MMAP_THRESHOLD = -3
"""``mallopt``'s number for the size from which a block is memory of its own (malloc.h)."""


def compare(start: Start, ids: list[int], states: Tensor, logits: Tensor) -> Finding:
    """The worst difference; ``states`` [layers + 1, ids, hidden] and ``logits`` [vocab] are the kernels'."""
    source = open_single(Path(start.model), start.format, start.weights)
    module: Any = build_empty(source.config, torch.float32)
    parameters = sum(tensor.numel() for tensor in module.state_dict().values())
    compute_buffers(module)
    fix_frequencies(module, start.ctx)
    bench = _Bench(module, source, states)
    embed, head = module.get_input_embeddings(), module.get_output_embeddings()
    embed.weight = nn.Parameter(source.rows("model.embed_tokens.weight", ids), requires_grad=False)
    embed.padding_idx = None
    picked = np.linspace(0, logits.numel() - 1, min(_ROWS, logits.numel())).astype(np.int64)
    name = "lm_head.weight" if source.has("lm_head.weight") else "model.embed_tokens.weight"
    head.weight = nn.Parameter(source.rows(name, picked.tolist()), requires_grad=False)
    bench.fill("model.norm.")
    layers = module.model.layers
    chosen = _chosen(list(layers), parameters)
    module.model.layers = nn.ModuleList(
        _Probe(layer, number, bench, number in chosen) for number, layer in enumerate(layers)
    )
    with torch.no_grad():
        out = module(input_ids=torch.arange(len(ids)).unsqueeze(0), use_cache=False).logits[0, -1].float()
    found = logits[torch.from_numpy(picked)]
    bench.note("the head", _rms(out - found) / _rms(out - out.mean()))
    worst, where = max(
        (min(error, _WORST) if error == error else _WORST, where) for error, where in bench.notes
    )
    return Finding(worst=worst, where=where, layers=len(chosen))


class _Bench:
    """What the probes share."""

    def __init__(self, module: nn.Module, source: Single, states: Tensor) -> None:
        self.states = states
        self.notes: list[tuple[float, str]] = []
        self._module = module
        self._source = source

    def note(self, where: str, error: Tensor) -> None:
        self.notes.append((float(error), where))

    def fill(self, prefix: str) -> None:
        """Give the parameters below ``prefix`` their values."""
        for name in [name for name in self._module.state_dict() if name.startswith(prefix)]:
            assign(self._module, name, self._source.tensor(name, self._shape(name)), torch.float32)

    def weights(self, layer: nn.Module, number: int) -> Iterator[tuple[str, Tensor]]:
        for name, empty in layer.state_dict().items():
            yield name, self._source.tensor(f"model.layers.{number}.{name}", empty.shape)

    def _shape(self, name: str) -> torch.Size:
        shape: torch.Size = self._module.state_dict()[name].shape
        return shape


class _Probe(nn.Module):
    """Stands for a layer: compares it, and hands on what the kernels computed."""

    def __init__(self, layer: nn.Module, number: int, bench: _Bench, compared: bool) -> None:
        super().__init__()
        self._layer = [layer]  # hidden from torch: its weights come and go
        self._number = number
        self._bench = bench
        self._compared = compared
        if hasattr(layer, "attention_type"):
            self.attention_type = layer.attention_type

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        before: Tensor
        after: Tensor
        before, after = self._bench.states[self._number : self._number + 2]
        if self._number == 0:
            self._bench.note("its embedding", _rms(hidden_states[0] - before) / _rms(before))
        if self._compared:
            [layer] = self._layer
            for name, weight in self._bench.weights(layer, self._number):
                assign_plain(layer, name, weight)
            out = layer(before.unsqueeze(0), *args, **kwargs)
            out = (out[0] if isinstance(out, tuple) else out)[0]
            layer.to("meta")
            self._bench.note(f"its layer {self._number}", _rms(out - after) / _rms(out - before))
        return after.unsqueeze(0)


def assign_plain(layer: nn.Module, name: str, weight: Tensor) -> None:
    """Put a parameter or buffer of a layer in its place."""
    owner_name, _, leaf = name.rpartition(".")
    owner = layer.get_submodule(owner_name)
    if leaf in owner._parameters:
        owner._parameters[leaf] = nn.Parameter(weight.float(), requires_grad=False)
    else:
        owner._buffers[leaf] = weight.float()


def _chosen(layers: list[Any], parameters: int) -> set[int]:
    """All layers of a small model; of a large one the last and the first few of each kind."""
    if parameters <= _ALL_LAYERS:
        return set(range(len(layers)))
    kinds: dict[object, list[int]] = {}
    for number, layer in enumerate(layers):
        attention = getattr(layer, "self_attn", layer)
        kind = tuple(getattr(attention, name, None) for name in ("sliding_window", "is_sliding", "use_rope"))
        kinds.setdefault(kind, []).append(number)
    return {len(layers) - 1, *(number for numbers in kinds.values() for number in numbers[:_FEW])}


def _rms(x: Tensor) -> Tensor:
    return x.double().square().mean().sqrt()


def _end_with(parent: int) -> None:
    """End this process when ``parent`` has: nobody waits for the finding then."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _first_to_go() -> None:
    """Where memory runs out after all, Linux ends this process and not one that serves."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _give_back_at_once() -> None:
    """Let the C library give every tensor's memory back when it is freed.

    glibc before 2.38 does not find room for an aligned block in a hole that one of the same size left, so
    without this the process grew by every layer that it had let go of.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 17)


def main() -> None:
    """A line with a ``Start`` as JSON on stdin, the traced numbers (npz) behind it; the finding on stdout.

    The one argument is the number of the process that asks.
    """
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    _first_to_go()
    _give_back_at_once()
    with os.fdopen(os.dup(1), "wb") as sink:
        # Whatever a library prints must not get between.
        os.dup2(2, 1)
        start = msgspec.json.decode(sys.stdin.buffer.readline(), type=Start)
        with np.load(io.BytesIO(sys.stdin.buffer.read())) as traced:
            ids = traced["ids"].tolist()
            states, logits = (torch.from_numpy(traced[name]) for name in ("states", "logits"))
        sink.write(msgspec.json.encode(compare(start, ids, states, logits)))


if __name__ == "__main__":
    main()
