"""What ``mashbox run`` prints when it is ready: how to reach the server and point clients at it."""

import getpass
import json
import socket
from collections.abc import Iterator

KEY = "$MASHBOX_API_KEY"


def lines(url: str, model: str, *, ctx: int, keyed: bool) -> Iterator[str]:
    """Ready-made lines, one purpose each; nothing is printed that does not work."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    key = KEY if keyed else "none"
    header = f' -H "Authorization: Bearer {KEY}"' if keyed else ""
    body = json.dumps({"messages": [{"role": "user", "content": "Name three planets."}]})
    yield _line("chat", f"mashbox chat --url {url}")
    yield _line("tunnel", f"ssh -L {port}:{host}:{port} {_user()}@{socket.gethostname()}")
    yield _line(
        "curl", f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{header} -d '{body}'"
    )
    yield _line("OpenAI", f'OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY="{key}"  (model {model})')
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "MASHBOX_API_KEY" if keyed else "none",
        "models": [
            {"id": model, "contextWindow": ctx, "maxTokens": ctx, "input": ["text"], "reasoning": False}
        ],
    }
    yield _line("Pi", f"~/.pi/agent/models.json: {json.dumps({'providers': {'mashbox': provider}})}")
    yield _line("", f"pi --provider mashbox --model {model}")


def _line(purpose: str, text: str) -> str:
    return f"  {purpose:8}{text}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "user"
