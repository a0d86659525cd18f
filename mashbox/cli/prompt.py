"""The line where the user of the terminal chat types: several lines, history, completion of commands."""

from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from mashbox.cli.talk import COMMANDS, Ask
from mashbox.paths import state_dir


class _Slash(Completer):
    """Completes the command's name, only at the start of the message."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith("/") or " " in typed or "\n" in typed:
            return
        for name, command in COMMANDS.items():
            if name.startswith(typed[1:]):
                yield Completion("/" + name, -len(typed), display=command.usage, display_meta=command.help)


def _keys() -> KeyBindings:
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

    @keys.add("c-c")
    def clear_or_leave(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


def reader() -> Ask:
    """Reads messages from the terminal; what was typed is remembered in the state folder."""
    path = state_dir() / "chat_history"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(path)),
        completer=_Slash(),
        complete_while_typing=True,
        reserve_space_for_menu=4,
        key_bindings=_keys(),
        multiline=True,
        prompt_continuation="  ",
    )
    return lambda prefill: session.prompt(HTML("<ansigreen><b>&gt; </b></ansigreen>"), default=prefill)
