"""What is checked before anything else runs: host, origin, key, path, method, content type and size.

Every response, of the routes or of the boundary itself, leaves with an ``x-request-id``.
"""

import re
import time
import uuid
from collections.abc import Iterable, Mapping

from litestar import Litestar
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from mashbox.server import sse
from mashbox.server.failure import Failure, Refused, failure_of, family_of
from mashbox.server.keys import Keys
from mashbox.server.origin import HostNames, same_origin
from mashbox.server.patience import patient
from mashbox.server.record import Record
from mashbox.server.service import Service

Headers = Mapping[str, list[str]]

_GUARDED = re.compile(r"^/+(v1(/|$)|metrics/*$|openapi\.json/*$)")
"""What a key is needed for. ``/``, ``/health``, the page's files and any HEAD are free."""


class Routes:
    """The methods of every known path, from the application's own routes."""

    def __init__(self, app: Litestar) -> None:
        self._exact: dict[str, set[str]] = {}
        self._under: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}
        for route in app.routes:
            methods = set(getattr(route, "methods", ())) - {"OPTIONS"}
            fixed, parameter, rest = route.path.partition("{")
            self._names[fixed] = f"{fixed}{{{rest.partition(':')[0]}}}" if parameter else fixed
            (self._under if parameter else self._exact).setdefault(fixed, set()).update(methods)

    def methods(self, path: str) -> set[str]:
        """Empty for an unknown path. A trailing slash makes no difference, a doubled one does."""
        fixed = self._fixed(path)
        return set() if fixed is None else self._exact.get(fixed) or self._under[fixed]

    def name(self, path: str) -> str:
        """The route of a path, with its parameter's name for the value; ``-`` for an unknown path."""
        fixed = self._fixed(path)
        return "-" if fixed is None else self._names[fixed]

    def _fixed(self, path: str) -> str | None:
        whole = path.removesuffix("/") or "/"
        if whole in self._exact and not path.startswith("//"):
            return whole
        under = (fixed for fixed in self._under if path.startswith(fixed) and len(path) > len(fixed))
        return next(under, None)


def headers_of(scope: Scope) -> Headers:
    """Lower-case names to all values of that name."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def _presented(headers: Headers) -> Iterable[str]:
    for value in headers.get("authorization", ()):
        scheme, _, key = value.strip().partition(" ")
        if scheme.lower() == "bearer":
            yield key.strip()
    for value in headers.get("x-api-key", ()):
        yield value.strip()


class Boundary:
    """An ASGI application around the routes. ``keys`` None: none is checked, all clients are one tenant."""

    def __init__(
        self, app: ASGIApp, service: Service, routes: Routes, hosts: HostNames, keys: Keys | None
    ) -> None:
        self._app = app
        self._service = service
        self._routes = routes
        self._hosts = hosts
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.WEBSOCKET:
            await send({"type": "websocket.close", "code": 1000, "reason": "no websockets here"})
            return
        began = time.monotonic()
        request_id = f"req_{uuid.uuid4().hex}"
        record = Record(request_id=request_id, method=scope["method"], route=self._routes.name(scope["path"]))
        scope.setdefault("state", {}).update(request_id=request_id, record=record)
        try:
            send = _stamped(send, record, anthropic=family_of(scope["path"]) == "anthropic")
            await self._admit(scope, receive, send, record)
        finally:
            record.write(began)

    async def _admit(self, scope: HTTPScope, receive: Receive, send: Send, record: Record) -> None:
        headers = headers_of(scope)
        try:
            self._check_host(headers)
            self._check_origin(scope, headers)
            if scope["method"] == "HEAD":
                await _answer(send, 200 if self._service.ready else 503, b"")
                return
            self._check_method(scope["path"], scope["method"], options_only=True)
            tenant = scope["state"]["tenant"] = self._tenant(scope["path"], headers)
            record.tenant = tenant or None
            self._check_method(scope["path"], scope["method"])
            if scope["method"] == "POST":
                _check_type(headers)
                _check_length(headers, self._service.settings.max_body_bytes)
                receive = patient(receive, self._service.settings.read_timeout_s)
        except Refused as refused:
            family = family_of(scope["path"])
            failure = failure_of(refused, family)
            record.failed(refused)
            body = sse.json_bytes(failure.body(family, record.request_id))
            await _answer(send, failure.status, body, failure)
            return
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.get("host", [])
        if len(hosts) != 1:
            raise Refused(400, "A request needs exactly one Host header.")
        if hosts[0] not in self._hosts:
            raise Refused(
                403,
                "This server does not answer to the host name of this request.",
                remedy="Start it with --allow-host NAME if the name is yours.",
            )

    def _check_origin(self, scope: HTTPScope, headers: Headers) -> None:
        foreign = "Requests from web pages of another origin are refused."
        if any(not same_origin(origin, headers["host"][0]) for origin in headers.get("origin", ())):
            raise Refused(403, foreign)
        if not {"cross-site", "same-site"} & set(headers.get("sec-fetch-site", ())):
            return
        navigation = headers.get("sec-fetch-mode") == ["navigate"]
        navigation = navigation and headers.get("sec-fetch-dest") == ["document"]
        if not (navigation and scope["method"] == "GET" and scope["path"] == "/"):
            raise Refused(403, foreign)

    def _tenant(self, path: str, headers: Headers) -> str:
        if self._keys is None or not _GUARDED.match(path):
            return ""
        tenants = [self._keys.verify(key) for key in _presented(headers)]
        for tenant in tenants:
            if tenant is not None:
                return tenant
        raise Refused(
            401,
            "The API key is wrong." if tenants else "An API key is needed.",
            remedy="Send it as Authorization: Bearer KEY, or as x-api-key.",
            code="invalid_api_key",
            headers=(("www-authenticate", "Bearer"),),
        )

    def _check_method(self, path: str, method: str, *, options_only: bool = False) -> None:
        if options_only and method != "OPTIONS":
            return
        allowed = self._routes.methods(path)
        if not allowed and method != "OPTIONS":
            raise Refused(404, f"There is no {path} here.", code="not_found")
        if method not in allowed:
            allow = ", ".join(sorted({"HEAD", *allowed}))
            raise Refused(405, f"{path} does not take {method}, only {allow}.", headers=(("allow", allow),))


def _check_type(headers: Headers) -> None:
    sent = headers.get("content-type", [""])[-1]
    if sent.partition(";")[0].strip().lower() != "application/json":
        raise Refused(
            415,
            f"The content type must be application/json, not {sent!r}."
            if sent
            else "The request has no content type.",
            remedy="Send Content-Type: application/json.",
        )
    for coding in headers.get("content-encoding", ()):
        if coding.strip().lower() not in ("", "identity"):
            raise Refused(
                415,
                f"Bodies with Content-Encoding {coding!r} are not read.",
                remedy="Send the body as it is.",
                headers=(("accept-encoding", "identity"),),
            )


def _check_length(headers: Headers, limit: int) -> None:
    for value in headers.get("content-length", ()):
        if value.isdecimal() and int(value) > limit:
            raise too_large(limit)


def too_large(limit: int) -> Refused:
    """The refusal of a body over ``limit`` bytes. The rest is not read, so the connection ends with it."""
    return Refused(
        413,
        f"The body is larger than {limit >> 20} MiB.",
        remedy="Send less, or start the server with a larger --max-body-mib.",
        headers=(("connection", "close"),),
    )


def _stamped(send: Send, record: Record, *, anthropic: bool) -> Send:
    request_id = record.request_id.encode()
    stamp = [(b"x-request-id", request_id)]
    if anthropic:
        stamp.append((b"request-id", request_id))

    async def stamped(message: Message) -> None:
        if message["type"] == "http.response.start":
            record.status = message["status"]
            message["headers"] = [*message["headers"], *stamp]
        await send(message)

    return stamped


async def _answer(send: Send, status: int, body: bytes, failure: Failure | None = None) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    if failure is not None:
        headers.append((b"content-type", b"application/json"))
        headers += [(name.encode(), value.encode()) for name, value in failure.headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
