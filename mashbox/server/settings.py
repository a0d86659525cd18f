"""What the HTTP server is told when it starts."""

import ipaddress
from pathlib import Path

import msgspec


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, whom it answers and how long it waits.

    ``allow_hosts`` are further names that a ``Host`` header may carry. Without ``api_keys`` and ``key_file``
    no key is checked. ``waiting_per_tenant`` and ``waiting_in_all`` bound the waiting line. Seconds:
    ``drain_s`` is what running requests get at shutdown, ``keep_alive_s`` the longest silence of a
    stream, ``stalled_reader_s`` how long a client may take none of the bytes that wait for it,
    ``read_timeout_s`` how long it may take over a request's headers, and between two pieces of its body.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allow_hosts: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    key_file: Path | None = None
    ui: bool = False
    max_body_mib: int = 32
    waiting_per_tenant: int = 32
    waiting_in_all: int = 256
    drain_s: float = 30.0
    keep_alive_s: float = 8.0
    stalled_reader_s: float = 30.0
    read_timeout_s: float = 30.0

    @property
    def keyed(self) -> bool:
        """Whether requests need a key."""
        return bool(self.api_keys) or self.key_file is not None

    @property
    def max_body_bytes(self) -> int:
        return self.max_body_mib << 20


def is_loopback(host: str) -> bool:
    """Whether a bind address can be reached from this machine alone."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
