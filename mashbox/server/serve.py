"""Runs the application under uvicorn: its socket, its signals, its orderly end."""

import asyncio
import contextlib
import math
import socket
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

import uvicorn
from litestar import Litestar

from mashbox.server.app import service_of
from mashbox.server.connection import connection_class
from mashbox.server.listen import check_exposure, open_socket
from mashbox.server.service import Service
from mashbox.server.settings import ServerSettings

LAST_WORDS_S = 5
"""What an ended request gets to write its error event before its task is cancelled."""

MOST_FILES = 8192
"""Open files that are asked of the system: every connection is one."""

OnListening = Callable[[str], Coroutine[Any, Any, None]]


def allow_files() -> None:
    """Raise this process's limit of open files, which a shell often sets to 1,024, as far as it may."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def url_of(sock: socket.socket) -> str:
    """The address to reach a listening socket at; one that listens everywhere is named by loopback."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server that drains on the first signal and ends what runs on the second."""

    def __init__(
        self, config: uvicorn.Config, service: Service, url: str, on_listening: OnListening | None = None
    ) -> None:
        super().__init__(config)
        self.url = url
        self.error: BaseException | None = None
        self._service = service
        self._on_listening = on_listening
        self._companion: asyncio.Task[None] | None = None
        self._signals = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal again after its shutdown; an orderly end is exit status 0.
        self._signals += 1
        self.should_exit = True
        if self._signals == 2 and self._loop is not None:
            self._loop.call_soon_threadsafe(self._service.end_running)
        self.force_exit = self._signals > 2

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        if self._on_listening is not None:
            self._companion = asyncio.create_task(self._on_listening(self.url))
            self._companion.add_done_callback(self._companion_done)

    def _companion_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.drain()
        if self._companion is not None:
            self._companion.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._companion
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._service.settings.drain_s, self._service.end_running)
        try:
            await super().shutdown(sockets=sockets)
        finally:
            timer.cancel()


def build_server(
    app: Litestar,
    settings: ServerSettings,
    *,
    sock: socket.socket,
    on_listening: OnListening | None = None,
) -> Server:
    """A server ready to ``run(sockets=[sock])``."""
    config = uvicorn.Config(
        app,
        http=connection_class(settings.stalled_reader_s, settings.read_timeout_s),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # Longer than clients keep idle connections, so that none is reused as it is being closed.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.drain_s) + LAST_WORDS_S,
    )
    return Server(config, service_of(app), url_of(sock), on_listening)


def serve(
    app: Litestar,
    settings: ServerSettings,
    *,
    keys: bool | None = None,
    on_listening: OnListening | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain and return.

    ``on_listening`` runs beside the server with its URL, from when the port takes connections; an error
    it raises (the model could not be loaded) ends the server and is raised here. ``keys`` tells whether
    keys are checked when they are not the settings' own. Raises UsageError: port taken, address
    not of this machine, reachable by others without a key.
    """
    check_exposure(settings, keys=keys)
    allow_files()
    with open_socket(settings) as sock:
        server = build_server(app, settings, sock=sock, on_listening=on_listening)
        try:
            server.run(sockets=[sock])
        except SystemExit:
            # uvicorn exits when the application could not start; the engine's own error says more
            start_error = service_of(app).start_error
            if start_error is None:
                raise
            raise start_error from None
    if server.error is not None:
        raise server.error
