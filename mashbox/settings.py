"""What ``run`` and ``chat`` were told: flag before environment before config file before default.

Every setting ``name`` has the flag ``--name``, the variable ``MASHBOX_NAME`` and the key ``name`` in the
command's table, ``[run]`` or ``[chat]``, of ``config.toml`` in :func:`mashbox.paths.config_dir`. A bad value
is a UsageError that names where it stands and what is allowed there. An empty variable counts as unset.
"""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from mashbox import config_file as files
from mashbox.errors import UsageError
from mashbox.paths import config_dir


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one server. None means: decided from the catalogue, the model and the machine.

    ``cache_ram`` is in MiB, ``max_body_mib`` too; ``drain`` and both timeouts are in seconds.
    """

    model: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    ui: bool = False
    open: bool = False
    ctx: int | None = None
    slots: int | None = None
    cache_ram: int | None = None
    share_cache: bool = False
    api_key_file: Path | None = None
    allow_host: tuple[str, ...] = ()
    weights: Literal["auto", "f32", "bf16", "q8", "q4"] = "auto"
    activations: int = 16
    device: str = "auto"
    threads: int | None = None
    engine: Literal["auto", "exact", "fast"] = "auto"
    speculation: Literal["auto", "off"] = "auto"
    max_body_mib: int = 32
    drain: int = 30
    step_timeout: int = 60
    read_timeout: int = 30
    log_json: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """The settings of one terminal chat. None means: left to the server."""

    url: str | None = None
    system: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    think: bool | None = None


@dataclasses.dataclass(frozen=True)
class Rule:
    """How a setting is read from text or a TOML value, and how it is told to people.

    ``read`` raises ValueError on what ``allowed`` does not describe.
    """

    read: Callable[[Any], Any]
    allowed: str
    metavar: str
    help: str


def _whole(low: int, high: int, *, auto: bool = False) -> Callable[[Any], int | None]:
    def read(value: Any) -> int | None:
        if auto and value == "auto":
            return None
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(value)
        if isinstance(value, str) and not re.fullmatch(r"[0-9]+", value.strip(), re.ASCII):
            raise ValueError(value)
        number = int(value)
        if not low <= number <= high:
            raise ValueError(value)
        return number

    return read


def _one_of(*numbers: int) -> Callable[[Any], int]:
    whole = _whole(min(numbers), max(numbers))

    def read(value: Any) -> int:
        number = whole(value)
        if number is None or number not in numbers:
            raise ValueError(value)
        return number

    return read


def _decimal(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int | str):
        raise ValueError(value)
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(value)
    return number


def _text(pattern: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(value)
        return value

    return read


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _SWITCH:
        return _SWITCH[value.lower()]
    raise ValueError(value)


_SWITCH = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    try:
        return Path(value).expanduser()
    except RuntimeError as problem:  # "~somebody" whom the system doesn't know
        raise ValueError(value) from problem


def _names(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise ValueError(value)
    name = _text(r"[^\s/,]+")
    return tuple(name(item.strip() if isinstance(item, str) else item) for item in names)


def _number(low: int, high: int, unit: str = "") -> str:
    return f"a whole number{unit} from {low} to {high:,}"


_MODEL = "a catalogue id, org/repo, org/repo:file.gguf or a path"
_NAMES = "host names, several separated by commas"

RULES: Mapping[str, Rule] = {
    "model": Rule(
        _text(r".*\S.*"), _MODEL, "MODEL", "The model to serve; without it, the catalogue's starter."
    ),
    "host": Rule(
        _text(r"[^\s/]+"),
        "a host name or IP address",
        "HOST",
        "Address to listen on. One that others can reach needs a key (MASHBOX_API_KEY).",
    ),
    "port": Rule(_whole(0, 65535), _number(0, 65535), "PORT", "Port to listen on; 0 takes a free one."),
    "ui": Rule(_switch, "true or false", "", "Serve the chat page at /."),
    "open": Rule(
        _switch,
        "true or false",
        "",
        "Open the page in the browser when the server is ready; serves it, as --ui.",
    ),
    "ctx": Rule(
        _whole(16, 16_777_216, auto=True),
        _number(16, 16_777_216, " of tokens") + ", or auto",
        "TOKENS",
        "Context of each slot; auto takes the model's limit, or what fits the memory.",
    ),
    "slots": Rule(
        _whole(1, 256, auto=True),
        _number(1, 256) + ", or auto",
        "N",
        "Requests answered at the same time; auto takes 4, fewer where memory is short.",
    ),
    "cache_ram": Rule(
        _whole(0, 16_777_216, auto=True),
        _number(0, 16_777_216, " of MiB") + ", or auto",
        "MIB",
        "Host memory for prompts that were read before; 0 is off, auto a quarter of what is free.",
    ),
    "share_cache": Rule(
        _switch, "true or false", "", "Let the owners of different keys use each other's cached prompts."
    ),
    "api_key_file": Rule(_path, "a path", "FILE", "Key file; requests then need one of its keys."),
    "allow_host": Rule(_names, _NAMES, "NAME", "Another host name that the server answers to (repeatable)."),
    "weights": Rule(
        _text("auto|f32|bf16|q8|q4"),
        "auto, f32, bf16, q8 or q4",
        "TYPE",
        "Weights in memory: auto (as the file has them), q8 or q4 (safetensors rounded as they are loaded); "
        "of the exact engine f32 (its auto) or bf16.",
    ),
    "activations": Rule(
        _one_of(16, 8),
        "16 or 8",
        "BITS",
        "Bits that the fast engine rounds activations to: 16, or 8 for more speed and less accuracy.",
    ),
    "device": Rule(
        _text(r"auto|cpu|mps|(cuda|xpu)(:[0-9]+)?"),
        "auto, cpu, cuda, cuda:N, xpu, xpu:N or mps",
        "DEVICE",
        "Where the model runs: auto, cpu, cuda, cuda:N, xpu, mps.",
    ),
    "threads": Rule(
        _whole(1, 1024, auto=True),
        _number(1, 1024) + ", or auto",
        "N",
        "CPU threads; auto takes the machine's cores.",
    ),
    "engine": Rule(
        _text("auto|exact|fast"),
        "auto, exact or fast",
        "ENGINE",
        "fast (own kernels), exact (transformers' modules in float32), or auto: fast where it can.",
    ),
    "speculation": Rule(
        _text("auto|off"),
        "auto or off",
        "MODE",
        "auto guesses tokens from the text so far where that is faster; it changes no token. off never does.",
    ),
    "max_body_mib": Rule(_whole(1, 4096), _number(1, 4096, " of MiB"), "MIB", "Largest request body."),
    "drain": Rule(
        _whole(0, 3600),
        _number(0, 3600, " of seconds"),
        "SECONDS",
        "Time that running requests get at shutdown.",
    ),
    "step_timeout": Rule(
        _whole(1, 3600),
        _number(1, 3600, " of seconds"),
        "SECONDS",
        "A step longer than this restarts the worker.",
    ),
    "read_timeout": Rule(
        _whole(1, 3600),
        _number(1, 3600, " of seconds"),
        "SECONDS",
        "Time that a client may take over a request's headers, and between two pieces of its body.",
    ),
    "log_json": Rule(_switch, "true or false", "", "Log lines as JSON."),
}


CHAT_RULES: Mapping[str, Rule] = {
    "url": Rule(
        _text(r".*\S.*"),
        "an address like http://127.0.0.1:8000",
        "URL",
        "An OpenAI-compatible server; without it, one is found or started.",
    ),
    "system": Rule(_text(r"(?s).*"), "a text", "TEXT", "System prompt."),
    "temperature": Rule(_decimal, "a number from 0", "T", "0 always takes the likeliest token."),
    "max_tokens": Rule(_whole(1, 16_777_216), _number(1, 16_777_216), "N", "Longest answer, in tokens."),
    "think": Rule(_switch, "true or false", "", "Let the model think before it answers."),
}

TABLES: Mapping[str, Mapping[str, Rule]] = {"run": RULES, "chat": CHAT_RULES}
"""The tables of the config file."""


def flag(name: str) -> str:
    """The command line's spelling: ``max_body_mib`` is ``--max-body-mib``."""
    return "MODEL" if name == "model" else "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The environment's spelling: ``max_body_mib`` is ``MASHBOX_MAX_BODY_MIB``."""
    return "MASHBOX_" + name.upper()


def config_file() -> Path:
    """Where the config file is looked for; it need not exist."""
    return config_dir() / "config.toml"


def load(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from ``flags`` (None: not given), the environment (default: the process's) and the file."""
    return Settings(**cast(Any, _values("run", flags, environment)))


def load_chat(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> ChatSettings:
    """As :func:`load`, for the terminal chat."""
    return ChatSettings(**cast(Any, _values("chat", flags, environment)))


def _values(table: str, flags: Mapping[str, Any], environment: Mapping[str, str] | None) -> dict[str, Any]:
    given = os.environ if environment is None else environment
    rules = TABLES[table]
    chosen = files.read(config_file(), TABLES).get(table, {})
    for name in rules:
        if given.get(variable(name)):
            chosen[name] = (given[variable(name)], variable(name))
        if flags.get(name) not in (None, [], ()):
            chosen[name] = (flags[name], flag(name))
    return {name: _read(rules[name], value, source) for name, (value, source) in chosen.items()}


def _read(rule: Rule, value: Any, source: str) -> Any:
    try:
        return rule.read(value)
    except ValueError:
        raise UsageError(f"{source}: {value!r} is not allowed.", f"Allowed: {rule.allowed}.") from None
