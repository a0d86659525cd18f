"""What ``mashbox run`` prints when it is ready: how to reach the server and point clients at it.

The agents' lines are run as they are printed by the tests of ``tests/agents``.
"""

import getpass
import json
import shlex
import socket
from collections.abc import Iterator

KEY = "$MASHBOX_API_KEY"

CLAUDE_CODE_NEEDS = 32_768
CODEX_NEEDS = 16_384
PI_NEEDS = 8_192
"""Tokens of context below which an agent has no room to work: its own prompt takes 12, 9 and 1.5 thousand,
and Claude Code shortens a conversation when 13 thousand and its longest answer are left."""


def lines(url: str, model: str, *, ctx: int, keyed: bool) -> Iterator[str]:
    """Ready-made lines, one purpose each; nothing is printed that does not work."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    header = f' -H "Authorization: Bearer {KEY}"' if keyed else ""
    body = json.dumps({"messages": [{"role": "user", "content": "Name three planets."}]})
    yield _line("chat", f"mashbox chat --url {url}")
    yield _line("tunnel", f"ssh -L {port}:{host}:{port} {_user()}@{socket.gethostname()}")
    yield _line(
        "curl", f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{header} -d '{body}'"
    )
    yield _line("OpenAI", f"OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={_key(keyed)}  (model {model})")
    if ctx >= CLAUDE_CODE_NEEDS:
        yield _line("Claude Code", claude_code(url, model, ctx=ctx, keyed=keyed))
    if ctx >= CODEX_NEEDS:
        yield _line("Codex", codex(url, model, ctx=ctx, keyed=keyed))
    if ctx >= PI_NEEDS:
        yield _line(
            "Pi", f"~/.pi/agent/models.json: {json.dumps(pi_models(url, model, ctx=ctx, keyed=keyed))}"
        )
        yield _line("", pi(model))
    if ctx < CLAUDE_CODE_NEEDS:
        few = f"Claude Code {CLAUDE_CODE_NEEDS:,}, Codex {CODEX_NEEDS:,}, Pi {PI_NEEDS:,}"
        yield _line("agents", f"need a longer --ctx than {ctx:,}: {few}")


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


def _line(purpose: str, text: str) -> str:
    return f"  {purpose:12}{text}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "user"
