"""A real worker process over the counting runner: ``python -m tests.engine.counting_worker [fault]``.

``fault`` is what the process does: ``model`` refuses the weights, ``die`` kills itself at a prompt that
holds the token 49, ``compile`` compiles a program there, ``stillborn`` kills itself while it loads,
``words`` ends there with words on stderr, ``short:FILE`` finds too little memory in its second life and
tells what an earlier one found, ``fewer`` has one slot of 32 tokens, ``memory`` and ``bytes`` ask
for more memory there than the process may have (torch, Python), ``device`` throws there what torch does where
a device fails, ``nan`` has NaN for logits there, and ``nan once`` in its first answer alone. Tokens below 94
are what it speaks: printable ASCII in the vocabulary of ``letters``.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from mashbox.engine.wire import Start
from mashbox.engine.worker.main import main
from mashbox.engine.worker.runner import Built, Progress
from mashbox.errors import BadWeights, DoesNotFit
from tests.engine.worker.counting import CountingRunner

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
DEADLY = 49
VOCABULARY, SPEAKABLE = 300, 94
ROOM = 256 << 20
"""Bytes that a process of the faults ``memory`` and ``bytes`` may still take once it is built."""


class FaultyRunner(CountingRunner):
    nans = 0

    def prefill(self, slot: int, ids: Sequence[int], *, logits: bool) -> torch.Tensor | None:
        if FAULT == "die" and DEADLY in ids:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "words" and DEADLY in ids:
            print(
                "a bar 10%\ra bar 100%\nTraceback:\n\n  deep in\xe4\nno end", end="." * 9000, file=sys.stderr
            )
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "compile" and DEADLY in ids:
            torch.compile(lambda x: x + 1, backend="eager")(torch.zeros(1))
        if FAULT == "memory" and DEADLY in ids:
            torch.empty(2 * ROOM, dtype=torch.uint8)
        if FAULT == "device" and DEADLY in ids:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        if FAULT == "bytes" and DEADLY in ids:
            bytearray(2 * ROOM)
        return super().prefill(slot, ids, logits=logits)

    def logits(self, sequence: list[int]) -> torch.Tensor:
        row = super().logits(sequence)
        if sequence[0] == DEADLY and (FAULT == "nan" or (FAULT == "nan once" and not self.nans)):
            self.nans += 1
            row[3] = torch.nan
        return row

    def decode(self, slots: Sequence[int], ids: Sequence[int]) -> torch.Tensor:
        time.sleep(0.005)
        return super().decode(slots, ids)


def build(start: Start, progress: Progress) -> tuple[CountingRunner, Built]:
    print("a library that prints must not hurt the messages")
    progress("reading the weights", 50, 100)
    if FAULT == "stillborn":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "model":
        raise BadWeights("model.gguf is damaged.", "Pull it again.")
    if FAULT.startswith("short:"):
        lives = Path(FAULT.removeprefix("short:"))
        lives.write_text(lives.read_text() + "x")
        if lives.read_text() == "xx":
            raise DoesNotFit("There is no room now.")
    runner = FaultyRunner(slots=start.slots, ctx=start.ctx, vocab_size=VOCABULARY, speakable=SPEAKABLE)
    if FAULT == "fewer":
        runner = FaultyRunner(slots=1, ctx=32, vocab_size=VOCABULARY, speakable=SPEAKABLE)
        return runner, Built("exact", "counting", why="its layer 1 differs")
    if FAULT in ("memory", "bytes"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        room = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    if FAULT.startswith("short:"):
        told = f"{start.refused}, {start.agreed}, {start.cache_bytes}"
        return runner, Built("exact", told, why="unfit", agreed="name", cache_bytes=77)
    return runner, Built("exact", "counting")


if __name__ == "__main__":
    main(build)
