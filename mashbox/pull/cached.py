"""Files that another program's cache on this machine holds: linked, or copied where that is not possible."""

import os
import shutil
from pathlib import Path

from mashbox.errors import NoNetwork
from mashbox.pull.plan import Wanted
from mashbox.pull.progress import Progress
from mashbox.pull.verify import Digest, wrong


def take(wanted: Wanted, folder: Path, progress: Progress) -> str | None:
    """Put the cached copy in its place and return its SHA-256; None where there is no good one.

    Raises WrongHash or NoNetwork where there is no good one and the file can't be fetched either.
    """
    if wanted.cached is None:
        if not wanted.url:
            raise NoNetwork(f"{wanted.path} is not on this machine.")
        return None
    digest = Digest(wanted.promise)
    digest.read(wanted.cached, lambda done: progress.update(wanted.path, done, wanted.promise.bytes))
    fault = digest.fault()
    if fault is not None:
        if not wanted.url:
            raise wrong(str(wanted.cached), fault, deleted=False)
        return None
    target = folder / wanted.path
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = target.with_name(target.name + ".copy")
    copy.unlink(missing_ok=True)
    try:
        # One copy on the disk serves both; neither program ever writes into such a file.
        os.link(wanted.cached.resolve(), copy)
    except OSError:
        shutil.copyfile(wanted.cached, copy)
    copy.replace(target)
    return digest.sha256
