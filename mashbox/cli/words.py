"""The arguments of a command, read without pydantic, which typer would import for every one of them.

That import takes as long as all else that a small command does. Almost all arguments are texts and paths.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperArgument, TyperCommand, TyperOption


class Command(TyperCommand):
    """A command that leaves to typer only the values that need it: numbers that are given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        read_plainly(self.params)
        return super().parse_args(ctx, args)


def read_plainly(parameters: Iterable[Any]) -> None:
    """Let typer convert only what is no text, no path and given."""
    for parameter in parameters:
        if isinstance(parameter, TyperArgument | TyperOption):
            plain: Any = _Plain(parameter.type_descriptor.annotation)
            parameter._runtime_param = plain


class _Plain:
    """Stands where typer keeps what converts a parameter's value, with the same method."""

    def __init__(self, annotation: Any) -> None:
        self._kind = get_args(annotation)[0] if get_origin(annotation) is list else annotation

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if self._kind in (str, Path) and all(isinstance(word, str) for word in (value if many else [value])):
            return [self._kind(word) for word in value] if many else self._kind(value)
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
