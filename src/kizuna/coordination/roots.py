"""Where the keys of coordination begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kizuna.errors import SettingsError
from kizuna.store.keys import Roots

if TYPE_CHECKING:
    from kizuna.store.client import Store


def roots_of(store: Store) -> Roots:
    """The roots that the settings say. SettingsError on a cluster without shards: there, keys that are changed
    together have to be in one slot."""
    settings = store.settings
    if store.target.kind == "cluster" and settings.coordination.shards == 1:
        raise SettingsError(
            "coordination.shards = 1 does not work on a cluster, whose slots would tear apart what belongs together; "
            "set it to two times the number of primaries, say, and never change it while there is data"
        )
    return Roots(settings.roots.coordination, settings.coordination.shards)
