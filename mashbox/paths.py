"""Where mashbox keeps things: models in the cache folder, keys and settings in the config folder.

``MASHBOX_HOME`` moves all of them under one folder (tests and portable installs use it).
"""

import os
from pathlib import Path

import platformdirs


def _folder(kind: str, default: str) -> Path:
    home = os.environ.get("MASHBOX_HOME")
    return Path(home).expanduser() / kind if home else Path(default)


def cache_dir() -> Path:
    """Models and everything that can be fetched or made again."""
    return _folder("cache", platformdirs.user_cache_dir("mashbox", appauthor=False))


def models_dir() -> Path:
    """One folder a pulled model."""
    return cache_dir() / "models"


def config_dir() -> Path:
    """``config.toml`` and the key file."""
    return _folder("config", platformdirs.user_config_dir("mashbox", appauthor=False))


def key_file() -> Path:
    """Where ``mashbox keys`` keeps the keys unless told otherwise."""
    return config_dir() / "keys"


def state_dir() -> Path:
    """History of the terminal chat, certification records."""
    return _folder("state", platformdirs.user_state_dir("mashbox", appauthor=False))
