"""Where a wheel lies on the package index that pip is configured for, so that its download can be resumed.

Only what is plain is done here: indexes reached over HTTP without credentials, which name the wheel's SHA-256
(https://packaging.python.org/en/latest/specifications/simple-repository-api/). Anything else is left to pip.
"""

import ast
import dataclasses
import re
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from mashbox.catalog import WheelPart
from mashbox.pull.plan import Wanted
from mashbox.pull.verify import Promise

DEFAULT_INDEX = "https://pypi.org/simple"
"""pip's own default."""

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

_LEFT_TO_PIP = ("no-index", "client-cert", "proxy", "trusted-host")

_TIMEOUT_S = 30


@dataclasses.dataclass(frozen=True)
class Indexes:
    """The indexes that pip asks, in its order, and the certificates that it trusts (None: the usual ones).

    There is none where only pip itself can ask them.
    """

    urls: list[str] = dataclasses.field(default_factory=list)
    cert: str | None = None


def configured(pip: Sequence[str]) -> Indexes:
    """What pip's configuration says of indexes."""
    try:
        said = subprocess.run(
            [*pip, "config", "list"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return Indexes()
    settings: dict[str, str] = {}
    for section, key, value in re.findall(r"^(\S+?)\.([\w-]+)=(.*)$", said, re.MULTILINE):
        if section in ("global", "download", ":env:"):
            settings[key] = _text(value)
    if any(key in settings for key in _LEFT_TO_PIP):
        return Indexes()
    urls = [settings.get("index-url", DEFAULT_INDEX), *settings.get("extra-index-url", "").split()]
    plain = [url.rstrip("/") for url in urls if url.startswith(("https://", "http://")) and "@" not in url]
    return Indexes(plain, settings.get("cert") or None)


def _text(value: str) -> str:
    """``pip config list`` prints Python literals."""
    try:
        return str(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value


def locate(http: httpx.Client, urls: Sequence[str], part: WheelPart) -> Wanted | None:
    """The part's wheel on the first index that has it; None where none is seen to."""
    for url in urls:
        page = f"{url}/{canonicalize_name(part.package)}/"
        try:
            response = http.get(page, headers={"accept": ACCEPT}, timeout=_TIMEOUT_S)
            if response.status_code != 200:
                continue
            files = _files(response)
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
            continue
        for name, address, sha256 in files:
            if sha256 and is_wheel_of(name, part):
                return Wanted(path=name, promise=Promise(sha256=sha256), url=address)
    return None


def _files(response: httpx.Response) -> list[tuple[str, str, str | None]]:
    """Name, address and SHA-256 of each file on an index's page of a package."""
    base = str(response.url)
    if "json" in response.headers.get("content-type", ""):
        listed: list[dict[str, Any]] = response.json()["files"]
        return [
            (file["filename"], urljoin(base, file["url"]), file.get("hashes", {}).get("sha256"))
            for file in listed
        ]
    links = _Links()
    links.feed(response.text)
    found = []
    for link in links.addresses:
        address, fragment = urldefrag(urljoin(base, link))
        digest = re.search(r"sha256=([0-9a-f]{64})", fragment)
        found.append((urlsplit(address).path.rpartition("/")[2], address, digest[1] if digest else None))
    return found


class _Links(HTMLParser):
    """Collects where a page's links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if tag == "a" and name == "href" and value]


def is_wheel_of(file: str, part: WheelPart) -> bool:
    """Whether a file's name is that of the part's wheel."""
    try:
        name, version, _, _ = parse_wheel_filename(file)
        return name == canonicalize_name(part.package) and version == Version(part.version)
    except (InvalidWheelFilename, InvalidVersion):
        return False
