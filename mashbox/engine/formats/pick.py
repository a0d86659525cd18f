"""Which format a model writes in: its tokenizer's own, the catalogue's, or a guess from its chat template."""

from typing import Any

from mashbox.engine.formats.base import OutputFormat
from mashbox.engine.formats.families import FORMATS, HERMES, HERMES_CALLS, THINKING
from mashbox.errors import UsageError

# The catalogue names some formats by how calls look, here they are named by the family that began them.
_CATALOGUE = {"llama-json": "llama3", "glm-xml": "glm", "pythonic": "lfm2", "smollm2": "hermes"}

# The first whose markers are all in the chat template. GLM and Qwen's XML share their outer marker with
# Hermes, so they stand before it.
_SIGNS = (
    ("harmony", ("<|channel|>", "<|message|>")),
    ("qwen-xml", ("<tool_call>", "<function=", "<parameter=")),
    ("glm", ("<arg_key>", "<arg_value>")),
    ("gemma4", ("<|tool_call>", "<tool_call|>")),
    ("deepseek", ("<｜tool▁call▁begin｜>",)),
    ("mistral", ("[TOOL_CALLS]",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("lfm2", ("<|tool_list_start|>",)),
    ("hermes", ("<tool_call>",)),
    ("granite3", ("<|tool_call|>",)),
    ("llama3", ("<|start_header_id|>", "tools")),
    ("thinking", ("<think>",)),
    ("thinking", ("</think>",)),
)


def pick_format(
    name: str | None = None, own: dict[str, Any] | None = None, chat_template: str | None = None
) -> OutputFormat | None:
    """The format of a model's answers, None when they are plain text.

    ``own`` is ``response_template`` of ``tokenizer_config.json``, ``name`` the catalogue's ``tools``,
    ``chat_template`` the template's source; the first that says something decides. A template of its own
    that transformers does not take is passed over. Raises UsageError for a name that is not a format.
    """
    if own is not None:
        try:
            return _checked(OutputFormat("own", own, first=_own_first(own)))
        except (ValueError, TypeError, AttributeError, KeyError):
            pass
    if name is not None:
        format = FORMATS.get(_CATALOGUE.get(name, name))
        if format is None:
            known = sorted(FORMATS.keys() | _CATALOGUE.keys())
            raise UsageError(f"There is no tool format {name!r} in mashbox.", f"It knows {', '.join(known)}.")
        return format
    for guess, signs in _SIGNS:
        if chat_template and all(sign in chat_template for sign in signs):
            return FORMATS[guess]
    return None


def with_fallback_calls(own: OutputFormat | None) -> OutputFormat:
    """The format of a model that is told of tools in the system text: its own thoughts, Hermes' calls."""
    if own is None or own is THINKING:
        return HERMES
    fields = {
        name: field for name, field in own.template["fields"].items() if not name.startswith("tool_calls")
    }
    template = {**own.template, "fields": {**fields, **HERMES_CALLS}}
    return OutputFormat(f"{own.name}+hermes", template, first=own.first)


def _checked(own: OutputFormat) -> OutputFormat:
    """The format, compiled. Raises ValueError when its template is not a valid one."""
    _ = own.regions
    return own


def _own_first(own: dict[str, Any]) -> frozenset[str]:
    """Thoughts that open with a tag in prose's reach. A channel's opening is no prose wherever it stands."""
    fields = own["fields"]
    thoughts = {"thinking", "reasoning", "reasoning_content"} & fields.keys()
    return frozenset(name for name in thoughts if "channel|" not in str(fields[name]))
