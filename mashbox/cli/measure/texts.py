"""Prompts: words drawn from a seed, each beginning unlike any other so that no cache knows it."""

import dataclasses
import random
from collections.abc import Mapping, Sequence

_WORDS = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "home water room mother area money story fact month lot right study book eye job word business issue "
    "side kind head house service friend father power hour game line end member law car city community "
    "name president team minute idea body information back parent face others level office door health "
    "person art war history party result change morning reason research girl guy moment air teacher force "
    "education foot boy age policy music market sense nation plan college interest death experience effect "
    "use class control field development role effort rate heart drug show leader light voice wife police "
    "mind price report decision son view relationship town road arm difference value building action "
    "season society tax director position player record paper space ground form event official matter "
    "center couple site project activity star table need court oil situation cost industry figure street "
    "image phone data picture practice piece land product doctor wall patient worker news test movie north "
    "love support technology step baby computer type attention film tree source hair look window culture "
    "chance brother energy period course summer plant"
)
WORDS = tuple(_WORDS.split())

STORY = "Write a very long story with these words, at least three thousand words, and tell every detail."

Messages = Sequence[Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt by its words, from what a server counted: ``fixed`` + ``each`` * words."""

    fixed: float = 30.0
    each: float = 1.3

    @classmethod
    def between(cls, few: tuple[int, int], many: tuple[int, int]) -> "Lengths":
        """Through two (words, tokens)."""
        each = max(0.1, (many[1] - few[1]) / (many[0] - few[0]))
        return cls(max(0.0, few[1] - each * few[0]), each)

    def words(self, tokens: int) -> int:
        """How many words make a prompt of about ``tokens`` tokens, one at least."""
        return max(1, round((tokens - self.fixed) / self.each))

    def tokens(self, words: int) -> int:
        return round(self.fixed + self.each * words)


class Texts:
    """An endless supply of prompts; the same ``name`` gives the same ones again."""

    def __init__(self, name: str) -> None:
        self._random = random.Random(name)

    def words(self, count: int) -> str:
        return " ".join(self._random.choices(WORDS, k=count))

    def story(self, words: int) -> Messages:
        """A user's message of ``words`` words, and the request to write at length."""
        return [{"role": "user", "content": f"{self.words(words)}.\n\n{STORY}"}]

    def fork(self, words: int) -> tuple[Messages, Messages]:
        """Two prompts with the same beginning of ``words`` words and different ends."""
        head = self.words(words)
        first, second = ({"role": "user", "content": f"{head}.\n\nNow say: {self.words(12)}"} for _ in "ab")
        return [first], [second]

    def session(self, turns: int, words: int, growth: int) -> list[Messages]:
        """The prompts of an agent's session: a system prompt of ``words`` words, then ``growth`` more a turn.

        What the assistant says is written here, so that every server reads the same prompts.
        """
        system = (
            "You are a coding agent. You have the tools read_file, write_file, search and run_command. "
            f"Call one at a time and keep to these rules: {self.words(words)}."
        )
        messages = [{"role": "system", "content": system}]
        prompts: list[Messages] = []
        asked = f"Find out why the test fails. Its output: {self.words(growth)}."
        for turn in range(1, turns + 1):
            messages.append({"role": "user", "content": asked})
            prompts.append(list(messages))
            messages.append(
                {"role": "assistant", "content": f"I read file {turn}: {self.words(growth // 4)}."}
            )
            asked = f"Result of step {turn}: {self.words(growth)}. Go on."
        return prompts


def plain(messages: Messages) -> str:
    """The same as one text, for models without a chat template."""
    return "\n\n".join(message["content"] for message in messages)
