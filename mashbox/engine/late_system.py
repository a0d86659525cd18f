"""System messages behind the first turn, for templates that take one at the beginning only.

They stay where they came, as text of the turn beside them: moved to the head, each would void the cache of
all that was said before it.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

Message = dict[str, Any]

SYSTEM_ROLES = ("system", "developer")


def takes_late_system(render: Callable[[list[Message]], str]) -> bool:
    """Whether a template shows a system message in the middle, and there. ``render`` may raise anything."""
    probe = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "question"},
        {"role": "system", "content": "needle"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "more"},
    ]
    try:
        text = render(probe)
    except Exception:
        return False
    return (
        "question" in text
        and "answer" in text
        and "needle" in text.partition("question")[2].partition("answer")[0]
    )


def has_late_system(messages: list[Message]) -> bool:
    """Whether a system message stands behind the first message."""
    return any(message.get("role") in SYSTEM_ROLES for message in messages[1:])


def in_neighbours(messages: list[Message]) -> list[Message]:
    """The messages without late system messages: their text, in its place, is in the turn beside them.

    That is the user's turn before or behind; else the tool's result before (both are what a model reads as
    given to it); else a user's turn of its own. Contents are strings.
    """
    turns = messages[:1]
    runs = [(late, list(run)) for late, run in groupby(messages[1:], lambda m: m.get("role") in SYSTEM_ROLES)]
    for number, (late, run) in enumerate(runs):
        behind = runs[number + 1][1] if number + 1 < len(runs) else []
        if not late:
            turns.extend(run)
            continue
        text = "\n\n".join(message["content"] for message in run if message["content"])
        if not text:
            continue
        if turns[-1].get("role") == "user":
            turns[-1] = _with(turns[-1], turns[-1]["content"], text)
        elif behind and behind[0].get("role") == "user":
            behind[0] = _with(behind[0], text, behind[0]["content"])
        elif turns[-1].get("role") == "tool":
            turns[-1] = _with(turns[-1], turns[-1]["content"], text)
        else:
            turns.append({"role": "user", "content": text})
    return turns


def _with(message: Message, first: str, second: str) -> Message:
    return {**message, "content": "\n\n".join(text for text in (first, second) if text)}
