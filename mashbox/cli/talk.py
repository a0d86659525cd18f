"""The dialogue of the terminal chat: questions, answers, and the commands that start with a slash."""

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mashbox.cli import console, conversation
from mashbox.cli.client import Call, Client, End, Model, Piece
from mashbox.cli.conversation import Conversation
from mashbox.cli.markdown import AnswerView
from mashbox.errors import MashboxError, RemoteError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

Ask = Callable[[str], str]
"""Reads one message from the user, starting from the given text. Raises EOFError and KeyboardInterrupt."""


@dataclasses.dataclass
class Options:
    """What is sent with each question; None leaves it to the server."""

    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    think: bool | None = None

    def body(self) -> dict[str, Any]:
        """The request's fields."""
        template = None if self.think is None else {"enable_thinking": self.think}
        return {
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "chat_template_kwargs": template,
        }


def pick_model(client: Client, wanted: str | None) -> Model | None:
    """The model to talk to: the wanted one, else the server's first; None if it lists none.

    Raises RemoteError, also when the server lists others only.
    """
    models = client.models()
    if wanted is None or not models:
        return models[0] if models else None
    for model in models:
        if model.id == wanted:
            return model
    served = ", ".join(model.id for model in models[:5])
    raise RemoteError(
        f"The server at {client.url} has {served}, not {wanted}.", "Leave --model out, or stop it."
    )


class Talk:
    """One dialogue. ``screen`` is where answers go; errors go to stderr, one line each."""

    def __init__(self, client: Client, talk: Conversation, options: Options, screen: "Console") -> None:
        self._client = client
        self._conversation = talk
        self._options = options
        self._screen = screen
        self._last: End | None = None
        self._unanswered: str | None = None
        self._prefill = ""
        self._over = False

    def run(self, ask: Ask) -> None:
        """Ask and answer until the user leaves."""
        while not self._over:
            try:
                self._turn(ask)
            except EOFError:
                return
            except KeyboardInterrupt:
                self._note("Leave with Ctrl-D or /exit.")

    def _turn(self, ask: Ask) -> None:
        text = ask(self._prefill).strip()
        self._prefill = ""
        if text.startswith("/"):
            self._command(text)
        elif text:
            self._answer(text)

    def _answer(self, question: str) -> None:
        """Ask the model; a question that got no word of an answer is kept for /retry."""
        said: list[str] = []
        self._unanswered = question
        try:
            self._last = show_answer(
                self._client, self._conversation.request(question), self._options, self._screen, said
            )
            self._note(summary(self._last))
        except KeyboardInterrupt:
            self._note("Stopped.")
        except MashboxError as problem:
            console.error(str(problem))
            self._note("The conversation is kept; /retry asks again.")
        self._screen.print()
        if said:
            self._conversation.add(question, "".join(said))
            self._unanswered = None

    def _command(self, text: str) -> None:
        name, _, rest = text[1:].partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            console.error(f"There is no command /{name}. /help lists them.")
            return
        try:
            command.action(self, rest.strip())
        except (MashboxError, OSError) as problem:
            console.error(str(problem))

    def _help(self, _: str) -> None:
        width = max(len(command.usage) for command in COMMANDS.values())
        for command in dict.fromkeys(COMMANDS.values()):
            self._note(f"{command.usage:{width}}  {command.help}")
        self._note("Enter sends. Alt-Enter, Ctrl-J or a backslash at the end of a line starts a new line.")
        self._note("Ctrl-C stops an answer, Ctrl-D leaves.")

    def _exit(self, _: str) -> None:
        self._over = True

    def _clear(self, _: str) -> None:
        self._conversation.messages.clear()
        self._unanswered = self._last = None
        self._note("The conversation is empty; the system prompt stays.")

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = "" if text == "-" else text
        self._note(f"System prompt: {self._conversation.system or 'none'}")

    def _retry(self, _: str) -> None:
        question = self._unanswered or self._conversation.take_back()
        if question is None:
            raise UsageError("There is nothing to ask again.")
        self._answer(question)

    def _edit(self, _: str) -> None:
        question = self._unanswered or self._conversation.take_back()
        if question is None:
            raise UsageError("There is nothing to change.")
        self._unanswered, self._prefill = None, question

    def _think(self, word: str) -> None:
        if word not in ("", "on", "off"):
            raise UsageError(f"/think takes on or off, not {word!r}.")
        self._options.think = not self._options.think if not word else word == "on"
        self._note(f"Thinking is {'on' if self._options.think else 'off'}.")

    def _model(self, name: str) -> None:
        models = [model.id for model in self._client.models()]
        if name and models and name not in models:
            raise UsageError(f"The server has no model {name!r}.", f"It serves {', '.join(models)}.")
        if name:
            self._options.model = name
        self._note(f"Model: {self._options.model or 'the server’s own'} (the server has {', '.join(models)})")

    def _tokens(self, _: str) -> None:
        if self._last is None or self._last.prompt_tokens is None:
            self._note("No answer with token counts yet.")
            return
        last = self._last
        prompt, answer = last.prompt_tokens or 0, last.completion_tokens or 0
        cached = f" ({last.cached_tokens:,} from the prompt cache)" if last.cached_tokens else ""
        context = next((m.context for m in self._client.models() if m.context), None)
        limit = f" of {context:,}" if context else ""
        self._note(
            f"Prompt {prompt:,}{cached}, answer {answer:,}, together {prompt + answer:,}{limit} tokens."
        )

    def _save(self, words: str) -> None:
        path = _path(words) if words else Path(time.strftime("chat-%Y%m%d-%H%M%S.json"))
        self._conversation.save(path, self._options.model)
        self._note(f"Saved {len(self._conversation.messages)} messages in {path}.")

    def _load(self, words: str) -> None:
        if not words:
            raise UsageError("/load needs a file.")
        loaded = conversation.load(_path(words))
        self._conversation.system, self._conversation.messages = loaded.system, loaded.messages
        self._unanswered = self._last = None
        self._note(f"Loaded {len(loaded.messages)} messages.")

    def _note(self, text: str) -> None:
        if text:
            self._screen.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class Command:
    """A slash command: how it is written, what it does in words, and what does it."""

    usage: str
    help: str
    action: Callable[[Talk, str], None]


COMMANDS: dict[str, Command] = {
    command.usage.split()[0][1:]: command
    for command in (
        Command("/help", "this list", Talk._help),
        Command("/exit", "leave (also Ctrl-D)", Talk._exit),
        Command("/clear", "forget the conversation", Talk._clear),
        Command("/system [TEXT]", "set the system prompt, or show it; - removes it", Talk._system),
        Command("/think [on|off]", "let the model think before it answers", Talk._think),
        Command("/retry", "ask the last question again", Talk._retry),
        Command("/edit", "change the last question", Talk._edit),
        Command("/model [ID]", "show or choose the model", Talk._model),
        Command("/tokens", "how long the conversation is", Talk._tokens),
        Command("/save [FILE]", "write the conversation as JSON", Talk._save),
        Command("/load FILE", "read a conversation", Talk._load),
    )
}
COMMANDS["quit"] = COMMANDS["exit"]


def show_answer(
    client: Client, messages: list[dict[str, Any]], options: Options, screen: "Console", said: list[str]
) -> End:
    """Stream one answer to a terminal; its text is added to ``said`` piece by piece. Raises RemoteError."""
    end = End(reason="stop")
    answer = contextlib.closing(client.chat(messages, **options.body()))
    with answer as events, AnswerView(screen, waiting="waiting for the first word") as view:
        for event in events:
            match event:
                case Piece("thinking", text):
                    view.think(text)
                case Piece(_, text):
                    said.append(text)
                    view.write(text)
                case Call(name, arguments):
                    view.note(f"The model calls {name}({arguments}); nothing runs it here.")
                case End():
                    end = event
    return end


def summary(end: End) -> str:
    """``12 tokens · 34.5 tokens/s · first after 0.32 s``, with what cut the answer short."""
    parts = []
    if end.completion_tokens is not None:
        parts.append(f"{end.completion_tokens:,} token{'' if end.completion_tokens == 1 else 's'}")
    if end.decode_rate:
        parts.append(f"{end.decode_rate:.1f} tokens/s")
    if end.first_seconds is not None:
        parts.append(f"first after {end.first_seconds:.2f} s")
    if end.reason == "length":
        parts.append("cut off by the token limit")
    return " · ".join(parts)


def _path(words: str) -> Path:
    """A path as typed, quotes allowed."""
    try:
        parts = shlex.split(words)
    except ValueError:
        parts = []
    return Path(parts[0] if len(parts) == 1 else words).expanduser()
