"""kizuna: processes, programs and agents that talk, work, match, remember and coordinate on one Redis or Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kizuna._version import __version__

if TYPE_CHECKING:
    from kizuna.app import Kizuna, connect
    from kizuna.coordination.handlers import Failed
    from kizuna.coordination.namespace import keys
    from kizuna.coordination.queues import Push
    from kizuna.coordination.worker import GiveUp, RetryIn, Worker
    from kizuna.errors import KizunaError
    from kizuna.loop import run
    from kizuna.service import run_until_signalled, running
    from kizuna.settings import Settings, load_settings

__all__ = [
    "Failed",
    "GiveUp",
    "Kizuna",
    "KizunaError",
    "Push",
    "RetryIn",
    "Settings",
    "Worker",
    "__version__",
    "connect",
    "keys",
    "load_settings",
    "run",
    "run_until_signalled",
    "running",
]

_HOMES = {
    "Failed": "kizuna.coordination.handlers",
    "GiveUp": "kizuna.coordination.worker",
    "Kizuna": "kizuna.app",
    "KizunaError": "kizuna.errors",
    "Push": "kizuna.coordination.queues",
    "RetryIn": "kizuna.coordination.worker",
    "Settings": "kizuna.settings",
    "Worker": "kizuna.coordination.worker",
    "connect": "kizuna.app",
    "keys": "kizuna.coordination.namespace",
    "load_settings": "kizuna.settings",
    "run": "kizuna.loop",
    "run_until_signalled": "kizuna.service",
    "running": "kizuna.service",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used, so that the command and the keeper start without the rest."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kizuna' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
