"""A model's file at a plain address."""

from urllib.parse import urlsplit

import httpx

from mashbox.catalog import UrlSource
from mashbox.errors import NotFound, PullError
from mashbox.pull.plan import Plan, Wanted
from mashbox.pull.verify import Promise


def plan(source: UrlSource) -> Plan:
    """The one file of an address."""
    file = source.file
    promise = Promise(bytes=file.bytes, sha256=file.sha256)
    wanted = Wanted(path=file.path, promise=promise, url=source.url)
    return Plan(format="gguf", files=[wanted], source=f"url {plain(source.url)}")


def explain(response: httpx.Response) -> PullError:
    """A refusal by the server of an address."""
    url, status = plain(str(response.request.url)), response.status_code
    if status in (404, 410):
        return NotFound(f"There is nothing at {url} (HTTP {status}).", "Check the address.")
    return PullError(f"{url} was refused with HTTP {status}.", "Check the address and who may read it.")


def plain(url: str) -> str:
    """The address without what may be secret: user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
