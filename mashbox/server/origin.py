"""Which names a server answers to, and which web pages may ask it.

A page of another origin can make a browser send requests to loopback; DNS rebinding even makes it look
like the page's own server. Both show in ``Host``, ``Origin`` and ``Sec-Fetch-Site``, which pages can't forge.
"""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def split_host(value: str) -> tuple[str, int | None] | None:
    """``name[:port]`` of a Host header: lower-case name without brackets, port. None when malformed."""
    try:
        parts = urlsplit(f"//{value}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not name or parts.username is not None or parts.path or parts.query or parts.fragment:
        return None
    return name.removesuffix("."), port


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


class HostNames:
    """The names a server answers to: loopback, its address, the machine's name and those allowed."""

    def __init__(self, bind: str, allowed: Iterable[str] = ()) -> None:
        machine = socket.gethostname().lower()
        names = {"localhost", bind.strip("[]").lower(), machine, machine.partition(".")[0]}
        for name in allowed:
            split = split_host(name)
            names.add(split[0] if split else name.lower())
        self._names = names - {""}

    def __contains__(self, host: str) -> bool:
        split = split_host(host)
        return split is not None and (split[0] in self._names or _is_address(split[0]))


def same_origin(origin: str, host: str) -> bool:
    """Whether an Origin header names the host and port of a Host header (default ports dropped)."""
    try:
        parts = urlsplit(origin)
        default = _DEFAULT_PORTS[parts.scheme.lower()]
    except (ValueError, KeyError):
        return False
    ours, theirs = split_host(host), split_host(parts.netloc)
    if ours is None or theirs is None:
        return False
    return (ours[0], ours[1] or default) == (theirs[0], theirs[1] or default)
