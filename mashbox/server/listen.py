"""The listening socket, and who may reach it. Imports little: both are checked before anything is fetched."""

import errno
import socket

from mashbox.errors import UsageError
from mashbox.paths import key_file
from mashbox.server.settings import ServerSettings, is_loopback

BUFFER_BYTES = 16 * 1024
"""Asked of the kernel for a socket's send buffer (Linux doubles it), and of the transport."""

KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds, and a count, after which the system ends a connection whose other side is gone without a word
(tcp(7); the second is macOS' name of the first)."""


def check_exposure(settings: ServerSettings, *, keys: bool | None = None) -> None:
    """Raise UsageError when others could reach a server that asks for no key."""
    if is_loopback(settings.host) or (settings.keyed if keys is None else keys):
        return
    raise UsageError(
        f"--host {settings.host} can be reached from other machines, and no API key is set.",
        f"Make one with `mashbox keys add`, then add --api-key-file {key_file()}, or set MASHBOX_API_KEY.",
    )


def open_socket(settings: ServerSettings) -> socket.socket:
    """The listening socket, bound before anything is loaded. Raises UsageError when that fails."""
    host, port = settings.host.strip("[]"), settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"{settings.host} is not an address of this machine.", "Check --host.") from None
    family, kind, protocol, _, address = sorted(found, key=lambda info: info[0] != socket.AF_INET)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        sock.bind(address)
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise _bind_error(error, settings) from None
    sock.setblocking(False)
    return sock


def _bind_error(error: OSError, settings: ServerSettings) -> UsageError:
    where = f"Port {settings.port} on {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return UsageError(f"{where} is taken.", "Stop what uses it, or choose another with --port.")
    if error.errno == errno.EACCES:
        return UsageError(f"{where} needs rights that you don't have.", "Choose one above 1023 with --port.")
    return UsageError(f"{where} can't be opened: {error.strerror}.", "Check --host and --port.")
