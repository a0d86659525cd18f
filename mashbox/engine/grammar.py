"""Forced tool calls: the grammar that an answer is held to when ``tool_choice`` is required or names a tool.

The grammar is text in llguidance's Lark dialect (https://github.com/guidance-ai/llguidance, docs/syntax.md);
the worker compiles it and masks the logits with it. It allows exactly one call, in the words of the model's
own format, and then the end: no prose, and no white space that a small model could fill its limit with.
Arguments are JSON held to the tool's schema, their properties in the schema's order.

llguidance was chosen because it compiles in milliseconds, depends on nothing and takes the widest part of
JSON Schema; vLLM, SGLang and llama.cpp use it too.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llguidance import LLMatcher

from mashbox.engine.grammar_calls import CALLS, Grammar, Thought, Tool, write_thought
from mashbox.engine.tool_schema import arguments_schema
from mashbox.errors import InvalidRequest

FORCIBLE = frozenset(CALLS)
"""The formats that a call can be forced in, by their names in :mod:`mashbox.engine.formats`."""

MAX_GRAMMAR = 128 * 1024
"""Characters of a grammar. The worker compiles one between two steps, at about a millisecond a KiB."""


def forced_call(
    tools: Sequence[Mapping[str, Any]],
    name: str | None,
    *,
    format: str,
    markers: Mapping[str, int],
    thought: Thought = "no",
) -> str:
    """The grammar of one call of the tool ``name``, or of any of the tools (None), in a model's ``format``.

    ``tools`` are OpenAI function tools; ``markers`` the control tokens of the vocabulary, ids by text: a
    marker that is none of them is written as text. ``thought`` says whether a thought comes first: never, if
    the model likes (``may``), or certainly, since the prompt opened one (``open``).

    Raises InvalidRequest when the format can't be forced, the tool isn't there, or a schema holds what
    can't be enforced; its message names the tool and the keyword.
    """
    # A format of calls told in the system text is named after both, as in "thinking+hermes".
    write = CALLS.get(format.rpartition("+")[2])
    if write is None:
        raise InvalidRequest(
            f"This model writes its tool calls in a format ({format}) that can't be forced.",
            param="tool_choice",
            remedy='Use tool_choice "auto" or "none".',
        )
    grammar = Grammar(markers)
    lead = write_thought(grammar, format, thought)
    calls = []
    for index, function in _chosen(tools, name):
        try:
            calls.append(grammar.rule("call", " ".join(write(grammar, _tool(function)))))
        except ValueError as error:
            raise InvalidRequest(
                f"A call of the tool {function['name']!r} can't be forced: {error}.",
                param=f"tools[{index}].function",
                remedy='Change the tool, or use tool_choice "auto".',
            ) from error
    text = grammar.whole(f"{lead} ({' | '.join(calls)})")
    if len(text) > MAX_GRAMMAR:
        raise InvalidRequest(
            f"The tools' schemas are too large to force a call: {len(text):,} characters of {MAX_GRAMMAR:,}.",
            param="tools",
            remedy='Name one tool in tool_choice, or use "auto".',
        )
    return text


def _chosen(tools: Sequence[Mapping[str, Any]], name: str | None) -> list[tuple[int, Mapping[str, Any]]]:
    """The functions to choose from, with their places in ``tools``."""
    functions = [(index, tool["function"]) for index, tool in enumerate(tools)]
    if name is not None:
        functions = [(index, function) for index, function in functions if function["name"] == name][:1]
    if not functions:
        lack = "there are no tools" if name is None else f"there is no tool {name!r} in tools"
        raise InvalidRequest(f"tool_choice asks for a tool call, but {lack}.", param="tool_choice")
    return functions


def _tool(function: Mapping[str, Any]) -> Tool:
    schema = arguments_schema(function.get("parameters"))
    if problem := _problem(schema):
        raise ValueError(f"in its parameters, {problem}")
    return Tool(function["name"], schema)


def _problem(schema: dict[str, Any]) -> str:
    """What llguidance can't take in the schema; empty if it takes all."""
    message = LLMatcher.validate_grammar(f"start: %json {json.dumps(schema)}")
    message = message.partition("failed to compile JSON schema: ")[2] or message
    # A drawing of the grammar's lines follows, and arrows below what an error points at.
    lines = message.partition("\n   1 | ")[0].splitlines()
    return " ".join(line.strip() for line in lines if line.strip(" ^"))
