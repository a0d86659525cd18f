"""How one model is spoken to and understood: requests to prompts, tokens to events."""

import functools

import msgspec

from mashbox.engine.detokenize import Detokenizer
from mashbox.engine.events import FinishReason, Text, Thinking, ToolCall
from mashbox.engine.formats import OutputFormat, pick_format, with_fallback_calls
from mashbox.engine.grammar import forced_call
from mashbox.engine.parse import OutputParser
from mashbox.engine.prompt import encode
from mashbox.engine.request import Conversation, EncodedPrompt, Request
from mashbox.engine.stops import StopFinder
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.tools import needs_fallback, with_tools_in_system

Output = Text | Thinking | ToolCall


class Dialect:
    """A model's tokenizer, chat template and output format. Safe to use from several threads.

    ``tool_format`` is the catalogue's name of the format, if the model is in it. A model whose template knows
    no tools gets them in the system text.
    """

    def __init__(self, tokenizer: ModelTokenizer, tool_format: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._plain = pick_format(tool_format, tokenizer.response_template, tokenizer.chat_template)

    def warm_up(self) -> None:
        """Compile the formats, so that the first answer need not wait for it."""
        for format in (self._plain, self._calling):
            if format:
                _ = format.regions

    @functools.cached_property
    def _fallback(self) -> bool:
        return needs_fallback(self._tokenizer.chat_template, self._plain)

    @functools.cached_property
    def _calling(self) -> OutputFormat | None:
        return with_fallback_calls(self._plain) if self._fallback else self._plain

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""
        return self._tokenizer.end_ids

    def encode(self, request: Request, limit: int | None = None) -> EncodedPrompt:
        """The prompt's ids. Raises what ``prompt.encode`` and ``grammar.forced_call`` do."""
        prompt = request.prompt
        if isinstance(prompt, Conversation) and self._fallback:
            prompt = with_tools_in_system(prompt)
        encoded = encode(self._tokenizer, prompt, limit)
        grammar = self._grammar(request, encoded)
        return msgspec.structs.replace(encoded, grammar=grammar)

    def reader(self, request: Request, prompt: EncodedPrompt) -> "AnswerReader":
        """What reads the tokens of the answer to ``request``."""
        conversation = request.prompt if isinstance(request.prompt, Conversation) else None
        # A raw prompt is continued: nothing in it is known to be a conversation.
        tools = conversation.tools if conversation else []
        format = (self._calling if tools else self._plain) if conversation else None
        begins = conversation is not None and not prompt.begun
        return AnswerReader(
            Detokenizer(self._tokenizer, markers=format is not None, answer=begins),
            OutputParser(format, prompt.tail, tools, begun=prompt.begun),
            request.stop,
            frozenset() if request.ignore_end else self.end_ids,
        )

    def _grammar(self, request: Request, prompt: EncodedPrompt) -> str | None:
        conversation = request.prompt
        if request.forced is None or not isinstance(conversation, Conversation):
            return None
        markers = {text: index for index, text in self._tokenizer.markers.texts.items()}
        return forced_call(
            conversation.tools,
            request.forced.name,
            format=self._calling.name if self._calling else "",
            markers=markers,
            thought="open" if prompt.thinking_open else "may" if conversation.thinking else "no",
        )


class AnswerReader:
    """One answer's tokens to output; the same whatever the tokens come in.

    ``stop_sequence`` is the stop string that ended the answer. Stop strings count in the text only, not in
    thoughts or calls, and not across them. ``thinking_tokens`` counts the tokens of thoughts; one that
    completed nothing by itself belongs to what it became a part of.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        parser: OutputParser,
        stops: tuple[str, ...],
        end_ids: frozenset[int],
    ) -> None:
        self._detokenizer = detokenizer
        self._parser = parser
        self._stops = stops
        self._finder = StopFinder(stops)
        self._end_ids = end_ids
        self._called = False
        self._pending_tokens = 0
        self.thinking_tokens = 0

    @property
    def stop_sequence(self) -> str | None:
        return self._finder.matched

    def push(self, token: int) -> list[Output]:
        """What this token completes; nothing more once a stop string was found."""
        if token in self._end_ids or self._finder.matched is not None:
            return []
        text = self._detokenizer.push(token)
        output = self._stopped(self._parser.push(text)) if text else []
        self._pending_tokens += 1
        if output:
            self.thinking_tokens += self._pending_tokens if isinstance(output[0], Thinking) else 0
            self._pending_tokens = 0
        return output

    def finish(self) -> list[Output]:
        """What was held back, once the last token has come."""
        if self._finder.matched is not None:
            return []
        output = self._stopped(self._parser.finish())
        if held := self._finder.flush():
            output.append(Text(held))
        return output

    def reason(self, end: FinishReason) -> FinishReason:
        """Why the answer ended, when its tokens ended by ``end``."""
        return "tool_calls" if self._called and end == "stop" else end

    def _stopped(self, pieces: list[Output]) -> list[Output]:
        output: list[Output] = []
        for piece in pieces:
            if isinstance(piece, Text):
                if sendable := self._finder.push(piece.text):
                    output.append(Text(sendable))
                if self._finder.matched is not None:
                    break
                continue
            if held := self._finder.flush():
                output.append(Text(held))
            self._finder = StopFinder(self._stops)
            self._called = self._called or isinstance(piece, ToolCall)
            output.append(piece)
        return output


def joined(pieces: list[Output]) -> list[Output]:
    """The same output with neighbours of one kind in one piece."""
    output: list[Output] = []
    for piece in pieces:
        last = output[-1] if output else None
        if isinstance(piece, Text) and isinstance(last, Text):
            output[-1] = Text(last.text + piece.text)
        elif isinstance(piece, Thinking) and isinstance(last, Thinking):
            output[-1] = Thinking(last.text + piece.text)
        else:
            output.append(piece)
    return output
