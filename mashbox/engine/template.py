"""A model's Jinja chat template. Jinja is imported when one is first used: counting a text needs none."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any


class ChatTemplate:
    """One template; nothing is compiled before it is needed, so that a broken one fails only its use."""

    def __init__(self, source: str) -> None:
        self.source = source

    @cached_property
    def _compiled(self) -> Any:
        from mashbox.engine import sandbox

        return sandbox.compiled(self.source)

    @cached_property
    def literals(self) -> str:
        """All text that the template itself may write, its pieces parted by NUL; none if it is broken."""
        from jinja2 import TemplateSyntaxError, nodes

        from mashbox.engine import sandbox

        try:
            tree = sandbox.parsed(self.source)
        except TemplateSyntaxError:
            return ""
        texts = [node.data for node in tree.find_all(nodes.TemplateData)]
        texts += [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
        return "\0".join(texts)

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text; whatever a template raises (TemplateError, TypeError ...) comes through as it is."""
        from mashbox.engine import sandbox

        return sandbox.render(self._compiled, variables)
