"""The line where the user of the terminal chat types: several lines, history, completion of commands."""

from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.application.current import get_app, get_app_session
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from mashbox.cli.leaving import Leaving
from mashbox.cli.talk import COMMANDS, Ask, Talk
from mashbox.paths import state_dir


class _Slash(Completer):
    """Completes a command's name at the start of the message, then what may follow it."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith("/") or "\n" in typed:
            return
        name, space, rest = typed[1:].partition(" ")
        if not space:
            for known, command in COMMANDS.items():
                if known.startswith(name):
                    yield Completion(
                        "/" + known, -len(typed), display=command.usage, display_meta=command.help
                    )
        elif name in ("load", "save"):
            yield from self._paths.get_completions(Document(rest), complete_event)
        elif name in COMMANDS:
            words = [word for word in self._talk.completions(name) if word.startswith(rest)]
            yield from (Completion(word, -len(rest)) for word in words)


def _keys(talk: Talk) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-t")
    def thought(event: KeyPressEvent) -> None:
        run_in_terminal(talk.show_thought)

    @keys.add("c-c")
    def clear_or_leave(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


def reader(talk: Talk, leaving: Leaving) -> Ask:
    """Reads messages from the terminal; what was typed is remembered in the state folder."""
    path = state_dir() / "chat_history"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(path)),
        completer=_Slash(talk),
        complete_while_typing=True,
        reserve_space_for_menu=4,
        key_bindings=_keys(talk),
        multiline=True,
        prompt_continuation="  ",
    )

    def end_if_asked() -> None:
        if leaving.asked:
            _close(get_app())

    def ask(prefill: str) -> str:
        with leaving.deferred(_end):
            return session.prompt(
                HTML("<ansigreen><b>&gt; </b></ansigreen>"), default=prefill, pre_run=end_if_asked
            )

    return ask


def _end() -> None:
    """Have the line that is being typed end as on Ctrl-D; before its loop runs, it asks ``asked`` itself."""
    app = get_app_session().app
    if app is not None and app.loop is not None:
        app.loop.call_soon_threadsafe(_close, app)


def _close(app: Application[str]) -> None:
    if app.future is not None and not app.future.done():
        app.exit(exception=EOFError)
