"""What is told about one architecture."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from mashbox.engine.worker.load.gguf_config import Fields
from mashbox.engine.worker.load.gguf_names import Config, Rules
from mashbox.gguf_keys import Keys

_LAYER = re.compile(r"^blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Architecture:
    """``config`` gives transformers' model type and the fields of its configuration, ``rules`` the names.

    ``unused`` are tensors of the file (``#``: of any layer) that are no parameters: rotary tables that the
    configuration holds, or what only a multi-token prediction block needs.
    """

    config: Callable[[Keys], tuple[str, Fields]]
    rules: Callable[[Config], Rules]
    unused: tuple[str, ...] = ("rope_freqs.weight",)

    def leaves_out(self, tensor: str, layers: int) -> bool:
        """Whether a tensor of the file has no place in the module, of ``layers`` decoder layers."""
        match = _LAYER.match(tensor)
        if match and int(match[1]) >= layers:
            return True
        return _LAYER.sub("blk.#.", tensor) in self.unused
