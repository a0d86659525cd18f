"""``mashbox`` whose ``run`` serves a scripted engine, ready at once; all else is the command's own.

``python -m tests.cli.scripted_run run ...``. A question with the word "slowly" is answered so; at one with
"aloud" the worker says something of its own.
"""

import contextlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from mashbox import facts, pull
from mashbox.cli import serving
from mashbox.cli.main import main
from mashbox.engine import process
from mashbox.engine.request import Conversation, Request
from mashbox.engine.wire import Start
from mashbox.store import LocalModel
from tests.server.scripted import Script, ScriptedEngine
from tests.test_capacity import facts as some_facts

MODEL = LocalModel(
    id="tiny", format="gguf", weights=Path("t.gguf"), files=[], tokenizer=Path(), spec=None, source=""
)


def worker(start: Start, heard: bool) -> Any:
    """In the place of a process."""
    return contextlib.nullcontext(SimpleNamespace(stderr=heard, began=time.monotonic()))


def engine(*_: Any, on_words: Callable[[str], None] | None, **__: Any) -> ScriptedEngine:
    def script(request: Request) -> Script:
        assert isinstance(request.prompt, Conversation)
        asked = request.prompt.messages[-1]["content"]
        if on_words and "aloud" in asked:
            on_words("the worker: [so] it is")
        return [0.05, "so "] * 60 if "slowly" in asked else ["Hello", " world"]

    return ScriptedEngine(script)


if __name__ == "__main__":
    with ExitStack() as patched:
        patched.enter_context(patch.object(pull, "ensure", lambda name, progress: MODEL))
        patched.enter_context(patch.object(facts, "read_facts", lambda weights, format: some_facts(4096)))
        patched.enter_context(patch.object(process, "WorkerProcess", worker))
        patched.enter_context(patch.object(serving, "LocalEngine", engine))
        main()
