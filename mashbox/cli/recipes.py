"""What ``mashbox run`` prints when it is ready: how to reach the server and point clients at it.

The agents' lines are run as they are printed by the tests of ``tests/agents``.
"""

import dataclasses
import getpass
import json
import re
import shlex
import socket
import textwrap
from collections.abc import Iterator

from mashbox.catalog import Recommended, Sampling
from mashbox.store import LocalModel

KEY = "$MASHBOX_API_KEY"

CLAUDE_CODE_NEEDS = 32_768
CODEX_NEEDS = 16_384
PI_NEEDS = 8_192
"""Tokens of context below which an agent has no room to work: its own prompt takes 12, 9 and 1.5 thousand,
and Claude Code shortens a conversation when 13 thousand and its longest answer are left."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One way to use the server: ``text`` is what is copied, ``lead`` where it goes if not to a shell."""

    purpose: str
    text: str
    lead: str = ""
    prose: bool = False

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"  {self.purpose:12}{self.lead}{self.text}"

    def laid_out(self, width: int) -> list[str]:
        """Lines of at most ``width``, but for a single word that is longer.

        Those of a command go on behind a backslash, as a shell reads them.
        """
        if len(self.line) <= width:
            return [self.line]
        if self.prose:
            return textwrap.wrap(self.line, width, subsequent_indent=" " * 14, break_long_words=False)
        head = f"  {self.purpose:12}{self.lead}".rstrip()
        return [*([head] if head else []), *_filled(self.text, width - 4, " " if self.lead else " \\")]


def _filled(text: str, width: int, joint: str) -> list[str]:
    """The text's words in lines, indented, each but the last with ``joint`` at its end."""
    lines = [""]
    for word in WORD.findall(text):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer) + len(joint) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [f"    {line}{joint}".rstrip() for line in lines[:-1]] + [f"    {lines[-1]}"]


WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
"""A word of a shell or a piece of JSON: what is quoted stays together."""


def recipes(url: str, model: LocalModel, *, ctx: int, keyed: bool) -> Iterator[Recipe]:
    """How to use the server, one purpose each; nothing is told that does not work."""
    yield from clients(url, model.id, ctx=ctx, keyed=keyed)
    if model.spec is not None and model.spec.sampling is not None:
        yield Recipe("sampling", sampling(model.spec.sampling), prose=True)


def clients(url: str, model: str, *, ctx: int, keyed: bool) -> Iterator[Recipe]:
    """Terminal, tunnel, SDKs, and the agents that have room in ``ctx`` tokens."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    header = f' -H "Authorization: Bearer {KEY}"' if keyed else ""
    body = json.dumps({"messages": [{"role": "user", "content": "Name three planets."}]})
    yield Recipe("chat", f"mashbox chat --url {url}")
    yield Recipe("tunnel", f"ssh -L {port}:{host}:{port} {_user()}@{socket.gethostname()}")
    yield Recipe(
        "curl", f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{header} -d '{body}'"
    )
    yield Recipe("model", model, prose=True)
    yield Recipe("OpenAI", f"export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={_key(keyed)}")
    yield Recipe("Anthropic", f"export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={_key(keyed)}")
    if ctx >= CLAUDE_CODE_NEEDS:
        yield Recipe("Claude Code", claude_code(url, model, ctx=ctx, keyed=keyed))
    if ctx >= CODEX_NEEDS:
        yield Recipe("Codex", codex(url, model, ctx=ctx, keyed=keyed))
    if ctx >= PI_NEEDS:
        held = json.dumps(pi_models(url, model, ctx=ctx, keyed=keyed))
        yield Recipe("Pi", held, lead="~/.pi/agent/models.json: ")
        yield Recipe("", pi(model))
    if ctx < CLAUDE_CODE_NEEDS:
        agents = {"Claude Code": CLAUDE_CODE_NEEDS, "Codex": CODEX_NEEDS, "Pi": PI_NEEDS}
        few = ", ".join(f"{agent} {tokens:,}" for agent, tokens in agents.items() if ctx < tokens)
        yield Recipe("agents", f"need a longer --ctx than {ctx:,}: {few}", prose=True)


def sampling(recommended: Sampling) -> str:
    """What the model's makers recommend, for the settings of an agent: the server's own default is greedy."""
    parts = [
        f"{words(kind)}{while_}"
        for kind, while_ in ((recommended.plain, ""), (recommended.thinking, " while it thinks"))
        if kind is not None
    ]
    return f"its makers recommend {'; '.join(parts)}; a request that sets none is answered greedily"


def words(recommended: Recommended) -> str:
    """``temperature 0.7, top_p 0.8``"""
    return ", ".join(f"{name} {value:g}" for name, value in recommended.fields().items())


def claude_code(url: str, model: str, *, ctx: int, keyed: bool) -> str:
    """The shell line that starts Claude Code."""
    name = shlex.quote(model)
    words = [
        f"ANTHROPIC_BASE_URL={url}",
        f"ANTHROPIC_AUTH_TOKEN={_key(keyed)}",
        f"ANTHROPIC_MODEL={name}",
        f"ANTHROPIC_DEFAULT_HAIKU_MODEL={name}",
        f"CLAUDE_CODE_MAX_CONTEXT_TOKENS={ctx}",
        # It keeps this much free for its answer: its own choice is half of a context of 64 thousand.
        f"CLAUDE_CODE_MAX_OUTPUT_TOKENS={min(ctx // 8, 32_000)}",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
    ]
    return f"{' '.join(words)} claude"


def codex(url: str, model: str, *, ctx: int, keyed: bool) -> str:
    """The shell line that starts Codex."""
    provider = f'name="mashbox", base_url="{url}/v1", wire_api="responses"'
    if keyed:
        provider += ', env_key="MASHBOX_API_KEY"'
    settings = [
        "model_provider=mashbox",
        f"model_providers.mashbox={{{provider}}}",
        f"model_context_window={ctx}",
        "features.plugins=false",
    ]
    options = " ".join(f"-c {shlex.quote(setting)}" for setting in settings)
    return f"codex {options} -m {shlex.quote(model)}"


def pi_models(url: str, model: str, *, ctx: int, keyed: bool) -> dict[str, object]:
    """What Pi's ``models.json`` must hold."""
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": KEY if keyed else "none",
        "models": [
            {"id": model, "contextWindow": ctx, "maxTokens": ctx, "input": ["text"], "reasoning": False}
        ],
    }
    return {"providers": {"mashbox": provider}}


def pi(model: str) -> str:
    """The shell line that starts Pi."""
    return f"pi --provider mashbox --model {shlex.quote(model)}"


def _key(keyed: bool) -> str:
    """The key as a word of the shell."""
    return f'"{KEY}"' if keyed else "none"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "user"
