"""The dialogue of the terminal chat: questions, answers, and the commands that start with a slash."""

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mashbox import catalog
from mashbox.catalog import ModelSpec
from mashbox.cli import console, conversation
from mashbox.cli.client import Call, Client, End, Model, Piece
from mashbox.cli.conversation import Conversation
from mashbox.cli.markdown import AnswerView, clean
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
    spec: ModelSpec | None = None

    def choose(self, model: Model | None) -> None:
        """Talk to this model; what the catalogue recommends for it is sent where mashbox serves it."""
        self.model = model.id if model else None
        self.spec = catalog.load().models.get(model.id) if model and model.is_ours else None

    def sampling(self) -> dict[str, float]:
        """What is sent of the sampling: what the user chose before what the model's makers recommend."""
        spec = self.spec
        thinks = bool(self.think) if spec is None or spec.thinking != "always" else True
        known = spec.sampling if spec is not None else None
        recommended = (known.thinking or known.plain if thinks else known.plain) if known else None
        own = {} if self.temperature is None else {"temperature": self.temperature}
        return {**(recommended.fields() if recommended else {}), **own}

    def body(self) -> dict[str, Any]:
        """The request's fields."""
        template = None if self.think is None else {"enable_thinking": self.think}
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "chat_template_kwargs": template,
            **self.sampling(),
        }

    def title(self) -> str:
        """``qwen3-4b · temperature 0.7 · top_p 0.8``"""
        sent = [f"{name} {value:g}" for name, value in self.sampling().items()]
        return " · ".join([self.model or "the server’s own model", *sent])


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
        self._thought = ""
        self._unfolded = False
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
        said = Said()
        self._unanswered = question
        messages = self._conversation.request(question)
        try:
            self._last = show_answer(
                self._client, messages, self._options, self._screen, said, fold=not self._unfolded
            )
            self._note(summary(self._last))
        except KeyboardInterrupt:
            self._note("Stopped.")
        except MashboxError as problem:
            console.error(str(problem))
            self._note("The conversation is kept; /retry asks again.")
        self._screen.print()
        self._thought = "".join(said.thought)
        if said.text:
            self._conversation.add(question, "".join(said.text), self._thought.strip())
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
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        for command in dict.fromkeys(COMMANDS.values()):
            table.add_row(Text(command.usage), Text(command.help))
        self._screen.print(table, style="dim")
        self._note("Enter sends. Alt-Enter, Ctrl-J or a backslash at the end of a line starts a new line.")
        self._note("Ctrl-C stops an answer, Ctrl-T shows the last thought, Ctrl-D leaves.")

    def _exit(self, _: str) -> None:
        self._over = True

    def _clear(self, _: str) -> None:
        self._conversation.messages.clear()
        self._unanswered = self._last = None
        self._thought = ""
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
        if word in ("show", "hide"):
            self._unfold(word == "show")
            return
        if word not in ("", "on", "off"):
            raise UsageError(f"/think takes on, off, show or hide, not {word!r}.")
        self._options.think = not self._options.think if not word else word == "on"
        self._note(f"Thinking is {'on' if self._options.think else 'off'}.")

    def _unfold(self, shown: bool) -> None:
        self._unfolded = shown
        if not shown:
            self._note("Thoughts are folded when they end.")
        elif self._thought.strip():
            self.show_thought()
        else:
            self._note("Thoughts stay on the screen.")

    def show_thought(self) -> None:
        """Print the thought before the newest answer."""
        thought = clean(self._thought).strip()
        self._note(thought or "There was no thought before the last answer.")

    def completions(self, command: str) -> list[str]:
        """Words that may follow a command, for the completion of what is typed."""
        if command == "think":
            return ["on", "off", "show", "hide"]
        if command == "model":
            with contextlib.suppress(MashboxError):
                return [model.id for model in self._client.models()]
        return []

    def _model(self, name: str) -> None:
        models = {model.id: model for model in self._client.models()}
        if name and models and name not in models:
            raise UsageError(f"The server has no model {name!r}.", f"It serves {', '.join(models)}.")
        if name:
            self._options.choose(models.get(name) or Model(name))
        self._note(f"Model: {self._options.title()} (the server has {', '.join(models)})")

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
        self._thought = loaded.last_thought
        self._note(f"Loaded {len(loaded.messages)} messages.")

    def _note(self, text: str) -> None:
        if text:
            told = console.wrapped(text, self._screen)
            self._screen.print(told, style="dim", markup=False, highlight=False, soft_wrap=True)


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
        Command("/think [on|off|show|hide]", "think before an answer; unfold or fold thoughts", Talk._think),
        Command("/retry", "ask the last question again", Talk._retry),
        Command("/edit", "change the last question", Talk._edit),
        Command("/model [ID]", "show or choose the model", Talk._model),
        Command("/tokens", "how long the conversation is", Talk._tokens),
        Command("/save [FILE]", "write the conversation as JSON", Talk._save),
        Command("/load FILE", "read a conversation", Talk._load),
    )
}
COMMANDS["quit"] = COMMANDS["exit"]


@dataclasses.dataclass
class Said:
    """What has come of an answer, piece by piece."""

    text: list[str] = dataclasses.field(default_factory=list)
    thought: list[str] = dataclasses.field(default_factory=list)


def show_answer(
    client: Client,
    messages: list[dict[str, Any]],
    options: Options,
    screen: "Console",
    said: Said,
    *,
    fold: bool = False,
) -> End:
    """Stream one answer to a terminal; its pieces are added to ``said``. Raises RemoteError."""
    end = End(reason="stop")
    answer = contextlib.closing(client.chat(messages, **options.body()))
    with answer as events, AnswerView(screen, waiting="waiting for the first word", fold=fold) as view:
        for event in events:
            match event:
                case Piece("thinking", text):
                    said.thought.append(text)
                    view.think(text)
                case Piece(_, text):
                    said.text.append(text)
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
