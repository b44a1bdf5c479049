"""Over which roots a capability spreads its keys on the server in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kizuna.errors import SettingsError
from kizuna.store.keys import Roots

if TYPE_CHECKING:
    from kizuna.store.client import Store


def roots_for(store: Store, section: str, root: str, shards: int) -> Roots:
    """SettingsError on a cluster without shards: there, keys that are changed together have to be in one slot."""
    if store.target.kind == "cluster" and shards == 1:
        raise SettingsError(
            f"{section}.shards = 1 does not work on a cluster, whose slots would tear apart what belongs together; "
            "set it to two times the number of primaries, say, and never change it while there is data"
        )
    return Roots(root, shards)
