"""How long a client may take over its body."""

import asyncio

from litestar.types import HTTPDisconnectEvent, HTTPRequestEvent, Receive, WebSocketReceiveMessage

from mashbox.server.failure import Refused


def patient(receive: Receive, limit_s: float) -> Receive:
    """``receive`` until the body is whole, with at most ``limit_s`` seconds between two pieces of it.

    Raises Refused (408) when the next piece doesn't come in time. A client that leaves in the middle is
    refused too, which it never reads: nothing went wrong here that a log should tell of.
    """
    whole = False

    async def received() -> HTTPRequestEvent | HTTPDisconnectEvent | WebSocketReceiveMessage:
        nonlocal whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout(limit_s):
                message = await receive()
        except TimeoutError:
            raise Refused(
                408,
                f"The rest of the body did not come within {limit_s:g} s.",
                remedy="Send it without pauses, or start the server with a longer --read-timeout.",
                headers=(("connection", "close"),),
            ) from None
        if message["type"] == "http.disconnect":
            raise Refused(400, "The client left before its body was whole.")
        whole = message["type"] != "http.request" or not message["more_body"]
        return message

    return received
