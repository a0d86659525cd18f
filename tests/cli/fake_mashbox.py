"""Stands in for ``mashbox run`` where a test needs a server process that starts at once.

``FAKE_FAILS`` makes it end like a run that could not load; what it was started with goes to stderr, and to
the file of ``FAKE_PACED``, which makes it answer like a :class:`~tests.cli.pacing.PacedServer`.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from mashbox.cli.run import end_with_stdin
from tests.cli import pacing
from tests.cli.scripted import ScriptedServer, answer, serving
from tests.patience import PATIENCE


def main() -> None:
    words = sys.argv[1:]
    print("started with", *words, file=sys.stderr, flush=True)
    if os.environ.get("FAKE_FAILS"):
        print("error: Needs 9 GB, has 4 GB. Lower --ctx.", file=sys.stderr)
        sys.exit(1)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    end_with_stdin()
    port = int(words[words.index("--port") + 1])
    if told := os.environ.get("FAKE_PACED"):
        Path(told).write_text(json.dumps({"words": words, "pid": os.getpid()}))
        with pacing.paced(port=port, write=1_000, stop_after=40, key=os.environ["MASHBOX_API_KEY"]):
            over.wait(PATIENCE)
        return
    pid, key = os.getpid(), os.environ["MASHBOX_API_KEY"]
    with serving(ScriptedServer(answer(f"pid {pid} key {key}")), port=port):
        over.wait(PATIENCE)


main()
