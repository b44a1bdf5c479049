"""Where the keys of coordination begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kizuna.store.sharding import roots_for

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots


def roots_of(store: Store) -> Roots:
    """The roots that the settings say. SettingsError on a cluster without shards."""
    settings = store.settings
    return roots_for(store, "coordination", settings.roots.coordination, settings.coordination.shards)
