"""Every error that mashbox raises on purpose, and what the user should do about it.

::

    MashboxError
    ├── UsageError                   wrong flag, argument or setting           exit 2
    │   └── UnknownModel             no such model in the catalogue or on disk
    ├── PullError                    a model could not be fetched              exit 1
    │   ├── NoNetwork                the registry or hub did not answer
    │   ├── NoSpace                  the disk is too full
    │   ├── GatedRepo                the hub wants a token or an agreement
    │   ├── NotFound                 no such repository, file, package or URL
    │   └── WrongHash                the bytes are not the ones that were promised
    ├── ModelError                   a model on disk can't be served           exit 1
    │   ├── UnsupportedModel         architecture or quantisation not known
    │   ├── BadWeights               file damaged, gone, or changed while running
    │   └── DoesNotFit               weights and slots need more memory than there is
    ├── RequestError                 what a client sent can't be answered      HTTP 4xx
    │   ├── InvalidRequest           a field is missing, of a wrong type or out of range
    │   ├── PromptTooLong            more prompt tokens than the context holds
    │   └── ModelNotFound            a model id other than the served one
    ├── RemoteError                  a server that a command asks refused it   exit 1
    │   └── Unreachable              nothing answers there, or the answer broke off
    └── EngineError                  the server can't answer now               HTTP 429 or 5xx
        ├── EngineLoading            weights are being read, or the worker restarts
        ├── LineFull                 too many requests wait already
        └── WorkerFault              the device or the worker failed on this request

The message says what happened and names the thing; ``remedy`` says what to do about it.
"""

GET_ANEW = "Get the file anew: pull the model again, or copy a file of your own from where it came."
"""The remedy for a damaged file, whether the store or its user looks after it."""


class MashboxError(Exception):
    """Base of the tree: ``message`` says what happened, ``remedy`` (may be empty) what to do."""

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message} {remedy}" if remedy else message)


class UsageError(MashboxError):
    """The command was used wrongly."""

    exit_code = 2


class UnknownModel(UsageError):
    """No model of that name in the catalogue or on disk."""


class PullError(MashboxError):
    """A model could not be fetched."""


class NoNetwork(PullError):
    """The other side did not answer, or the connection broke for good."""


class NoSpace(PullError):
    """The disk has less room than the download needs."""


class GatedRepo(PullError):
    """The hub refuses the files without a token or an accepted licence."""


class NotFound(PullError):
    """The other side has no such repository, file, package or address."""


class WrongHash(PullError):
    """Downloaded bytes do not have the promised SHA-256 or size."""


class ModelError(MashboxError):
    """A model on disk can't be served."""


class UnsupportedModel(ModelError):
    """The architecture, quantisation or tokenizer is not one that mashbox knows."""


class BadWeights(ModelError):
    """A weights file is damaged, missing, or has changed while the server ran."""


class DoesNotFit(ModelError):
    """Weights, cache and working memory together exceed what the machine has."""


class RequestError(MashboxError):
    """A client's request can't be answered as sent.

    ``param`` names the field (``messages[2].content``), ``code`` is OpenAI's error code.
    """

    status = 400

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, remedy)
        self.param = param
        self.code = code


class InvalidRequest(RequestError):
    """A field is missing, of a wrong type, out of range, or not supported."""


class PromptTooLong(RequestError):
    """The prompt leaves no room for one new token. Nothing is ever cut to make it fit."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"The prompt has {tokens} tokens; the context holds {limit}, the answer included.",
            param="messages",
            code="context_length_exceeded",
            remedy="Shorten the conversation, or start the server with a larger --ctx.",
        )
        self.tokens = tokens
        self.limit = limit


class ModelNotFound(RequestError):
    """The request names a model that this server does not run."""

    status = 404

    def __init__(self, asked: str, served: str) -> None:
        super().__init__(
            f"The model {asked!r} is not served here; this server runs {served!r}.",
            param="model",
            code="model_not_found",
            remedy="Ask for that one, or leave the field out.",
        )


class RemoteError(MashboxError):
    """A server that a command is a client of refused, or failed to answer.

    ``status`` is its HTTP status (None: there was none), ``retry_after`` in seconds as it asked for.
    """

    def __init__(
        self,
        message: str,
        remedy: str = "",
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class Unreachable(RemoteError):
    """Nothing answers at the address, or the connection broke while it answered."""


class EngineError(MashboxError):
    """The server can't answer at the moment; ``retry_after`` is in whole seconds (None: don't)."""

    status = 500
    retry_after: int | None = None


class EngineLoading(EngineError):
    """The weights are being read, or the worker starts again after a fault."""

    status = 503

    def __init__(self, message: str = "The model is loading.", retry_after: int = 5) -> None:
        super().__init__(message, "Try again shortly.")
        self.retry_after = retry_after


class LineFull(EngineError):
    """The waiting line is full, for this tenant or for all (``everyone``)."""

    status = 429

    def __init__(self, message: str, retry_after: int, *, everyone: bool = False) -> None:
        super().__init__(message, f"Try again in {retry_after} s.")
        self.retry_after = retry_after
        self.everyone = everyone


class WorkerFault(EngineError):
    """The worker or its device failed while it worked on this request."""

    status = 500
