"""A TCP forwarder, as ``ssh -L`` is one: another port, and a line that can break."""

import contextlib
import select
import socket
import threading


class Tunnel:
    """Forwards ``host:port`` to a port of 127.0.0.1 while it is up."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target = target
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._host = host
        self._connections: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> "Tunnel":
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Listen, at the same port as before."""
        listener = socket.socket(self._family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._host, self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def down(self) -> None:
        """Break every connection, and take no more."""
        if self._listener is not None:
            # Wakes the thread that waits in accept.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._connections += [client, server]
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()


def _pump(client: socket.socket, server: socket.socket) -> None:
    other = {client: server, server: client}
    with client, server, contextlib.suppress(OSError):
        while True:
            for source in select.select(list(other), [], [])[0]:
                data = source.recv(65536)
                if not data:
                    return
                other[source].sendall(data)
