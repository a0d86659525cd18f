"""How each family of models writes thoughts and tool calls: data, and what the data is compiled to."""

from mashbox.engine.formats.base import OutputFormat, Region
from mashbox.engine.formats.pick import pick_format, with_fallback_calls

__all__ = ["OutputFormat", "Region", "pick_format", "with_fallback_calls"]
