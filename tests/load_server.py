"""A whole server whose model counts: ``python -m tests.load_server FOLDER``; it prints its address.

All is real but the forward pass: boundary, protocols, line, local engine, worker process. Four slots of 64
tokens; 256 requests may wait, of one client too.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from mashbox.engine.local import LocalEngine
from mashbox.engine.settings import EngineSettings
from mashbox.server.app import create_app
from mashbox.server.serve import serve
from mashbox.server.settings import ServerSettings
from tests.engine.test_local import FACTS, letters_model
from tests.engine.test_supervisor import command

SLOTS, WAITING = 4, 256


def main(folder: Path, listening: Callable[[str], None]) -> None:
    """Serve until SIGTERM."""
    engine = LocalEngine(letters_model(folder), FACTS, EngineSettings(ctx=64, slots=SLOTS), command())
    settings = ServerSettings(port=0, waiting_per_tenant=WAITING, waiting_in_all=WAITING)

    async def beside(url: str) -> None:
        await engine.wait_ready()
        listening(url)

    serve(create_app(engine, settings), settings, on_listening=beside)


if __name__ == "__main__":
    main(Path(sys.argv[1]), lambda url: print(url, flush=True))
