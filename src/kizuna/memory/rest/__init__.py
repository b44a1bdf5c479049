"""Memory over HTTP, for programs in other languages: `kizuna memory serve`. Needs the extra `kizuna[rest]`."""

from kizuna.memory.rest.app import app_of
from kizuna.memory.rest.service import RestApi

__all__ = ["RestApi", "app_of"]
