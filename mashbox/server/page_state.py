"""``/v1/page``: what the chat page knows of the served model beyond the APIs' own objects."""

from typing import Any

import msgspec
from litestar import get
from litestar.datastructures import State

from mashbox import catalog
from mashbox.catalog import ModelSpec, Recommended
from mashbox.errors import MashboxError
from mashbox.server.service import Service


class PageState(msgspec.Struct, frozen=True, kw_only=True):
    """The ``PageState`` schema. ``title`` and ``thinking`` are null for a model without a catalogue entry;
    the samplings then have no fields."""

    title: str | None
    thinking: str | None
    plain_sampling: dict[str, float]
    thinking_sampling: dict[str, float]


def page_state(service: Service) -> PageState:
    """What is known of the served model."""
    spec = _entry(service.engine.card.id)
    known = spec.sampling if spec else None
    return PageState(
        title=spec.title if spec else None,
        thinking=spec.thinking if spec else None,
        plain_sampling=_fields(known.plain if known else None),
        thinking_sampling=_fields((known.thinking or known.plain) if known else None),
    )


def _entry(model: str) -> ModelSpec | None:
    try:
        return catalog.load().models.get(model)
    except MashboxError:
        # The user's file of entries was broken while the server ran: the page does without.
        return None


def _fields(recommended: Recommended | None) -> dict[str, float]:
    return recommended.fields() if recommended else {}


@get("/v1/page")
async def state_of_page(state: State) -> dict[str, Any]:
    """The model's title, its thinking and sampling; while it loads too."""
    service: Service = state.service
    answer: dict[str, Any] = msgspec.to_builtins(page_state(service))
    return answer
