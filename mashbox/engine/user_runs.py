"""Several user messages in a row, for templates that want the roles to alternate.

Agents send them (a preamble, then the question), and such templates raise on the second.
"""

from collections.abc import Callable
from typing import Any

Message = dict[str, Any]


def takes_user_runs(render: Callable[[list[Message]], str]) -> bool:
    """Whether a template shows two user messages in a row, in order. ``render`` may raise anything."""
    probe = [{"role": "user", "content": "first"}, {"role": "user", "content": "second"}]
    try:
        text = render(probe)
    except Exception:
        return False
    return "second" in text.partition("first")[2]


def joined_runs(messages: list[Message]) -> list[Message]:
    """The messages with each run of user messages as one, a blank line between. Contents are strings."""
    turns: list[Message] = []
    for message in messages:
        last = turns[-1] if turns else None
        if last and message.get("role") == last.get("role") == "user":
            content = "\n\n".join(text for text in (last["content"], message["content"]) if text)
            turns[-1] = {**last, "content": content}
        else:
            turns.append(message)
    return turns
