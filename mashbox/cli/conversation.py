"""The conversation of a terminal chat: what was said so far, and its file."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from mashbox.errors import UsageError

THOUGHT = "reasoning_content"
"""Where a message holds what the model thought, as in the answers of the API."""

ROLES = ("system", "user", "assistant", "tool")


@dataclasses.dataclass
class Conversation:
    """``messages`` alternate user and assistant; ``system`` goes in front of them when it is not empty."""

    system: str = ""
    messages: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def request(self, question: str) -> list[dict[str, Any]]:
        """The messages to send for a new question; the conversation itself is not changed."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        # Thoughts are kept for the reader: templates drop old ones, and not every server takes them.
        said = [{name: message[name] for name in message if name != THOUGHT} for message in self.messages]
        return [*head, *said, {"role": "user", "content": question}]

    def add(self, question: str, answer: str, thought: str = "") -> None:
        """Keep a question, what was answered to it, and what was thought before."""
        kept: dict[str, Any] = {"role": "assistant", "content": answer}
        if thought:
            kept[THOUGHT] = thought
        self.messages += [{"role": "user", "content": question}, kept]

    @property
    def last_thought(self) -> str:
        """The thought before the newest answer, "" when there was none."""
        thought = self.messages[-1].get(THOUGHT) if self.messages else None
        return thought if isinstance(thought, str) else ""

    def take_back(self) -> str | None:
        """Remove the last question with its answer and return the question; None when there is none."""
        for index in reversed(range(len(self.messages))):
            if self.messages[index]["role"] == "user":
                content = self.messages[index]["content"]
                del self.messages[index:]
                return content if isinstance(content, str) else ""
        return None

    def save(self, path: Path, model: str | None) -> None:
        """Write it as JSON, replacing the file as a whole. Raises OSError."""
        document = {"model": model, "system": self.system, "messages": self.messages}
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        temporary.replace(path)


def load(path: Path) -> Conversation:
    """Read what :meth:`Conversation.save` wrote, or a plain list of messages.

    Leading system messages become the system prompt. Raises UsageError naming the file and the fault.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"{path} can't be read: {problem.strerror}.") from None
    except ValueError as problem:
        raise UsageError(f"{path} is not JSON: {problem}.") from None
    body: dict[str, Any] = document if isinstance(document, dict) else {"messages": document}
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise UsageError(f"{path} holds no messages.", "Save one with /save to see the shape.")
    for number, message in enumerate(messages):
        if not _is_message(message):
            raise UsageError(
                f"{path}: messages[{number}] is no message.",
                f"It needs a role ({', '.join(ROLES)}) and content.",
            )
    system: list[str] = []
    if isinstance(body.get("system"), str) and body["system"]:
        system.append(body["system"])
    while messages and messages[0]["role"] == "system" and isinstance(messages[0]["content"], str):
        system.append(messages.pop(0)["content"])
    return Conversation("\n\n".join(system), messages)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and value.get("role") in ROLES and "content" in value
