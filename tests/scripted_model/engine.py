"""The engine of a scripted model, and what was asked of it."""

import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from mashbox.engine.events import Event, Finished
from mashbox.engine.local import LocalEngine
from mashbox.engine.request import Conversation, EncodedPrompt, Request
from mashbox.engine.settings import EngineSettings
from mashbox.facts import ModelFacts
from mashbox.store import LocalModel
from tests.scripted_model.script import Rule

CTX = 65_536


class Turn(msgspec.Struct):
    """A conversation that was answered to its end, and how it ended."""

    request: Request
    finished: Finished

    @property
    def conversation(self) -> Conversation:
        """What the chat template was given."""
        assert isinstance(self.request.prompt, Conversation)
        return self.request.prompt

    @property
    def roles(self) -> list[str]:
        """Who speaks in the conversation, in order."""
        return [message["role"] for message in self.conversation.messages]

    @property
    def text(self) -> str:
        """All that the messages say."""
        return "\n".join(message["content"] for message in self.conversation.messages)

    @property
    def tools(self) -> set[str]:
        """The names of the tools that the model was shown."""
        return {tool["function"]["name"] for tool in self.conversation.tools}

    @property
    def cached(self) -> float:
        """The share of the prompt that came from the cache."""
        return self.finished.usage.cached_tokens / self.finished.usage.prompt_tokens


class ScriptedModel(LocalEngine):
    """A local engine over a worker that answers by ``rules``; ``turns`` are the answers it gave."""

    def __init__(
        self, tokenizer: Path, rules: Sequence[Rule], folder: Path, name: str, ctx: int = CTX
    ) -> None:
        script = folder / "rules.json"
        script.write_bytes(msgspec.json.encode(rules))
        model = LocalModel(
            id=name,
            format="safetensors",
            weights=folder,
            files=[],
            tokenizer=tokenizer,
            spec=None,
            source="a script",
        )
        facts = ModelFacts(
            architecture="scripted",
            context_length=ctx,
            layers=1,
            hidden=1,
            heads=1,
            kv_heads=1,
            head_dim=1,
            value_head_dim=1,
            vocab=1,
            parameters=1,
            weight_file_bytes=1,
            bpw=8.0,
            quant="F32",
            kv_numbers=2,
        )
        worker = (sys.executable, "-m", "tests.scripted_model.worker", str(script))
        super().__init__(model, facts, EngineSettings(ctx=ctx, slots=4), worker)
        self.turns: list[Turn] = []

    async def generate(
        self, request: Request, prompt: EncodedPrompt, queue_ms: float = 0.0
    ) -> AsyncIterator[Event]:
        async for event in super().generate(request, prompt, queue_ms):
            if isinstance(event, Finished):
                self.turns.append(Turn(request, event))
            yield event
