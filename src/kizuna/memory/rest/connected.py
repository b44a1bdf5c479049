"""What the API needs of a connected system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kizuna.memory.memory import Memory
    from kizuna.settings import Settings
    from kizuna.store.client import Store


class Connected(Protocol):
    """A `Kizuna`, which stands above us."""

    settings: Settings
    store: Store

    @property
    def memory(self) -> Memory: ...
