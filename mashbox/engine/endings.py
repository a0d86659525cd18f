"""How a process ended, in words for whoever asked something of it."""

import signal


def how_it_ended(code: int) -> str:
    """A verb and what is known: ``code`` is an exit status, or minus the number of a signal."""
    if code >= 0:
        return f"ended (exit status {code})"
    if -code == signal.SIGKILL:
        return "was killed (SIGKILL), most often because memory ran out"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"broke off ({name})"
