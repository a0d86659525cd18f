"""A real worker over a real GGUF file of which it computes the first layer alone.

``python -m tests.engine.worker.shallow_worker``. What slots and the prompt cache hold is the whole
model's, layer for layer, so that they come and go in its sizes, in a fraction of the time.
"""

from dataclasses import replace
from pathlib import Path

from mashbox.engine.wire import Start
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.kernels.decoder import Engine
from mashbox.engine.worker.load.packed import load_packed
from mashbox.engine.worker.load.rotary import rotary_tables
from mashbox.engine.worker.main import main
from mashbox.engine.worker.runner import Built, Progress


def build(start: Start, progress: Progress) -> tuple[FastRunner, Built]:
    decoder, shape, architecture = load_packed(Path(start.model), progress)
    tables = rotary_tables(shape, start.ctx)
    runner = FastRunner(decoder, tables, slots=start.slots, ctx=start.ctx, threads=start.threads)
    for keys, values in runner._cache.layers:
        # As full slots are: their memory is there from the start, and no part of any growth.
        keys.fill(0.5)
        values.fill(0.5)
    first = replace(decoder, layers=decoder.layers[:1])
    runner._engine = Engine(first, runner._cache.layers[:1], tables, threads=start.threads)
    return runner, Built("fast", architecture)


if __name__ == "__main__":
    main(build)
