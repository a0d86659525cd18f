"""The chat page that ``--ui`` serves: the files of the bundle, held in memory from the start.

``mashbox/ui/build.py`` writes the bundle and the list of its files; only what stands in the list is served.
All of it is the same for everybody and holds no secret, so no key is asked for it.
"""

import hashlib
import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State

from mashbox.server.failure import Refused
from mashbox.server.status import Health, health_response

BUNDLE = Path(__file__).parent.parent / "ui" / "dist"
LIST = "bundle.json"
MISSING = "missing.txt"
INDEX = "index.html"

CODINGS = {"br": ".br", "gzip": ".gz"}
"""Content codings, the better one first, and what the build adds to the name of a file in it."""

MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}

SECURITY = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self'",
            "font-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            # Text becomes HTML or a script's address through the page's one policy (trusted.ts) only.
            "require-trusted-types-for 'script'",
            "trusted-types mashbox",
        )
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Sent with everything of the page. Scripts and styles come from files of the server alone, whatever a
model's answer contains."""

FOR_EVER = "public, max-age=31536000, immutable"
"""For files whose names carry a hash of their content."""


class NoBundle(Exception):
    """There is no bundle to serve; the message says why."""


class PageFile(msgspec.Struct, frozen=True):
    """One file: ``bodies`` and ``etags`` by content coding, ``identity`` always among them."""

    media_type: str
    bodies: dict[str, bytes]
    etags: dict[str, str]


class _List(msgspec.Struct):
    """What the build says of its result."""

    files: list[str]


class Page:
    """The files by their path (``index.html``, ``assets/…``)."""

    def __init__(self, files: Mapping[str, PageFile]) -> None:
        self._files = files

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def answer(self, path: str, headers: Mapping[str, str]) -> Response[bytes]:
        """The file in the best coding that the request takes, or 304 when the client has it. KeyError for
        a path that is not in the bundle."""
        file = self._files[path]
        coding = choose_coding(headers.get("accept-encoding", ""), file.bodies)
        etag = file.etags[coding]
        kept = {
            **SECURITY,
            "cache-control": "no-cache" if path == INDEX else FOR_EVER,
            "etag": etag,
            "vary": "accept-encoding",
        }
        if _has(headers.get("if-none-match", ""), etag):
            return Response(b"", status_code=304, headers=kept, media_type=file.media_type)
        if coding != "identity":
            kept["content-encoding"] = coding
        return Response(file.bodies[coding], headers=kept, media_type=file.media_type)


def load(folder: Path = BUNDLE) -> Page:
    """Read a bundle into memory. Raises NoBundle when there is none, or not all of it."""
    try:
        listed = msgspec.json.decode((folder / LIST).read_bytes(), type=_List)
        files = {path: _read(folder, path) for path in listed.files}
    except FileNotFoundError:
        raise NoBundle(_reason(folder)) from None
    except (OSError, ValueError, KeyError) as error:
        raise NoBundle(f"The bundle is damaged: {error}") from error
    if INDEX not in files:
        raise NoBundle(f"The bundle is damaged: it has no {INDEX}")
    return Page(files)


def _read(folder: Path, path: str) -> PageFile:
    source = folder / path
    if not source.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} is not in its folder")
    bodies = {"identity": source.read_bytes()}
    for coding, suffix in CODINGS.items():
        packed = folder / f"{path}{suffix}"
        if packed.is_file():
            bodies[coding] = packed.read_bytes()
    etags = {coding: f'"{hashlib.sha256(body).hexdigest()[:32]}"' for coding, body in bodies.items()}
    return PageFile(MEDIA_TYPES[source.suffix], bodies, etags)


def _reason(folder: Path) -> str:
    try:
        return (folder / MISSING).read_text().strip()
    except OSError:
        return "It was left out when mashbox was installed."


def choose_coding(accepted: str, available: Mapping[str, Any]) -> str:
    """The best available coding that an Accept-Encoding header takes (RFC 9110, 12.5.3)."""
    wanted: dict[str, bool] = {}
    for part in accepted.lower().split(","):
        name, _, parameter = part.strip().partition(";")
        quality = parameter.strip().removeprefix("q=")
        wanted[name.strip()] = not quality or quality.strip("0.") != ""
    for coding in CODINGS:
        if coding in available and wanted.get(coding, wanted.get("*", False)):
            return coding
    return "identity"


def _has(if_none_match: str, etag: str) -> bool:
    held = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in (etag, "*") for tag in held)


_NOT_BUILT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>mashbox: no chat page</title>
<h1>The chat page is not built</h1>
<p>The server works; only its page is missing. {reason}</p>
<p>To build it, run <code>make ui</code> in the folder of the sources, or install mashbox again with pip,
where npm's registry can be reached. Then start <code>mashbox run --ui</code> again.</p>
<p>In a terminal <code>mashbox chat</code> does without the page.</p>
"""


def not_built(reason: str) -> Response[bytes]:
    """The page in the place of one that is not built."""
    body = _NOT_BUILT.format(reason=html.escape(reason)).encode()
    headers = {**SECURITY, "cache-control": "no-store"}
    return Response(body, headers=headers, media_type=MEDIA_TYPES[".html"])


@get("/")
async def root(request: Request[Any, Any, Any], state: State) -> Response[bytes] | Response[Health]:
    """The page, from the start, with ``--ui``; otherwise the same as ``/health``."""
    page: Page | NoBundle | None = state.page
    if page is None:
        return health_response(state.service)
    return not_built(str(page)) if isinstance(page, NoBundle) else page.answer(INDEX, request.headers)


@get("/assets/{name:path}")
async def asset(request: Request[Any, Any, Any], state: State) -> Response[bytes]:
    """A file of the page. The path is looked up in the bundle's list, never on the disk."""
    path = f"assets{request.path_params['name']}"
    page: Page | NoBundle | None = state.page
    if not isinstance(page, Page) or path not in page:
        raise Refused(404, f"There is no /{path} here.", code="not_found")
    return page.answer(path, request.headers)
