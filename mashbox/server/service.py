"""What all routes share: the engine, the waiting line, and who is being answered now."""

from collections.abc import Callable

from mashbox.engine.engine import Engine
from mashbox.errors import EngineLoading, ModelNotFound
from mashbox.server.line import WaitingLine
from mashbox.server.metrics import Metrics
from mashbox.server.settings import ServerSettings


class ShuttingDown(EngineLoading):
    """The server is about to end."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down.")


class Service:
    """One running server. Lives on the event loop; nothing here blocks or is used by other threads."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.line = WaitingLine(
            lambda: engine.card.slots,
            per_tenant=settings.waiting_per_tenant,
            total=settings.waiting_in_all,
        )
        self.metrics = Metrics(engine, self.line)
        self.draining = False
        self.start_error: Exception | None = None
        self._enders: set[Callable[[Exception], None]] = set()

    @property
    def ready(self) -> bool:
        return not self.draining and self.engine.status().state == "ok"

    def check_ready(self) -> None:
        """Raise EngineLoading unless requests are taken now."""
        if self.draining:
            raise ShuttingDown
        status = self.engine.status()
        if status.state == "ok":
            return
        if status.state == "loading":
            raise EngineLoading
        raise EngineLoading(f"The model is not running ({status.state}): {status.stage or 'see the log'}.")

    def check_model(self, asked: str | None) -> None:
        """Raise ModelNotFound when a request names another model. Leaving it out is accepted."""
        served = self.engine.card.id
        if asked and asked != served:
            raise ModelNotFound(asked, served)

    def enter(self, end: Callable[[Exception], None]) -> None:
        """Register a request being answered; ``end`` makes it finish with an error."""
        self._enders.add(end)

    def exit(self, end: Callable[[Exception], None]) -> None:
        self._enders.discard(end)

    def drain(self) -> None:
        """Take no new requests from now on."""
        self.draining = True

    def end_running(self) -> None:
        """End everything that is still being answered with an error."""
        for end in list(self._enders):
            end(ShuttingDown())
