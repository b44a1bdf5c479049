"""kizuna: processes, programs and agents that talk, work, match, remember and coordinate on one Redis or Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kizuna._version import __version__

if TYPE_CHECKING:
    from kizuna.app import Kizuna, connect
    from kizuna.errors import KizunaError
    from kizuna.loop import run
    from kizuna.settings import Settings, load_settings

__all__ = ["Kizuna", "KizunaError", "Settings", "__version__", "connect", "load_settings", "run"]

_HOMES = {
    "Kizuna": "kizuna.app",
    "KizunaError": "kizuna.errors",
    "Settings": "kizuna.settings",
    "connect": "kizuna.app",
    "load_settings": "kizuna.settings",
    "run": "kizuna.loop",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that the command and the keeper start without the rest."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kizuna' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
