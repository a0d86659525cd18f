"""Shell completion of what only mashbox knows."""


def models(incomplete: str) -> list[str]:
    """Ids of the catalogue and of what is here; nothing, rather than an error, where they can't be read."""
    from mashbox import catalog, store
    from mashbox.errors import MashboxError

    try:
        ids = dict.fromkeys([*catalog.load().models, *(model.id for model in store.installed())])
    except (MashboxError, OSError):
        return []
    return [name for name in ids if name.startswith(incomplete)]
