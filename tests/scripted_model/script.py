"""What a model that answers from a script reads in its prompt, and what it then says.

It knows nothing but the prompt's tokens, in the format of Qwen3's chat template: a tool that the prompt does
not show is not called, and a result that is not in it can't be told.
"""

import json
import re
from collections.abc import Sequence

import msgspec

from mashbox.engine.tokenizer import ModelTokenizer

_RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
_CALL = re.compile(r"<tool_call>\n(.*)\n</tool_call>", re.DOTALL)

SILENT = "\n<think>\n\n</think>\n\n"
"""What the template puts behind the assistant's name when thinking is off."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """``say`` is the answer to a question that ``asked`` is found in, once ``results`` tools have answered.

    In it ``{result}`` stands for what the last of them said, ``{name}`` for the group of that name in
    ``asked``, a regular expression. ``think`` is thought first, where the prompt lets the model think.
    """

    asked: str
    say: str
    results: int = 0
    think: str = "I know what to do."


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt: the names of the tools it shows, its last question, and what tools said after that."""

    tools: frozenset[str]
    question: str
    results: tuple[str, ...]
    thinks: bool


def call(name: str, **arguments: object) -> str:
    """A call of a tool in the words of Qwen3."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def read(tokenizer: ModelTokenizer, ids: Sequence[int]) -> Seen:
    """What the prompt holds. Turns are found by their marker's token: typed markers begin none."""
    (begin,) = [index for index, text in tokenizer.markers.texts.items() if text == "<|im_start|>"]
    turns: list[bytearray] = [bytearray()]
    for token in ids:
        if token == begin:
            turns.append(bytearray())
        else:
            turns[-1] += tokenizer.token_bytes(token)
    texts = [turn.decode() for turn in turns[1:]]
    question, results = "", []
    for text in texts:
        if text.startswith("user\n<tool_response>"):
            results += _RESULT.findall(text)
        elif text.startswith("user\n"):
            question, results = text.removeprefix("user\n"), []
    # The last such line: a client's own prompt, which comes before, may talk of tools too.
    _, found, shown = texts[0].rpartition("\n<tools>\n")
    lines = shown.partition("\n</tools>")[0].split("\n") if found else []
    tools = [json.loads(line)["function"]["name"] for line in lines]
    return Seen(
        tools=frozenset(tools),
        question=question,
        results=tuple(results),
        thinks=not texts[-1].endswith(SILENT),
    )


def answer(rules: Sequence[Rule], seen: Seen) -> str:
    """The answer's text, thoughts included; what is wrong with the prompt, if no rule can be followed."""
    for rule in rules:
        asked = re.search(rule.asked, seen.question)
        if asked and rule.results == len(seen.results):
            text = _said(rule, seen, asked.groupdict())
            return f"<think>\n{rule.think}\n</think>\n\n{text}" if seen.thinks else text
    return f"Nothing is known about this, after {len(seen.results)} results: {seen.question}"


def _said(rule: Rule, seen: Seen, named: dict[str, str]) -> str:
    called = _CALL.search(rule.say)
    if called and (name := json.loads(called[1])["name"]) not in seen.tools:
        return f"There is no tool {name}, only {', '.join(sorted(seen.tools)) or 'none'}."
    text = rule.say
    for name, value in {**named, "result": seen.results[-1] if seen.results else ""}.items():
        text = text.replace(f"{{{name}}}", value)
    return text
