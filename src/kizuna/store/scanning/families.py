"""Which keys of a family there are, below all of its roots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kizuna.store.scanning.scan import Scan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kizuna.store.client import Store
    from kizuna.store.keys import Key, Roots


async def names_of_all(store: Store, roots: Roots, family: Key) -> AsyncIterator[dict[str, str]]:
    """The names in each key of the family. One that comes or goes meanwhile may be missing, and one may come twice."""
    async for batch in batches_of_names(store, roots, family):
        for names in batch:
            yield names


async def batches_of_names(store: Store, roots: Roots, family: Key) -> AsyncIterator[list[dict[str, str]]]:
    """The same in batches of a thousand or so, as the server finds them; never an empty one."""
    async for keys in Scan(store, [glob_of(family, roots)], type=family.type):
        batch = [names for key in keys if (names := names_in(family, roots, key)) is not None]
        if batch:
            yield batch


def glob_of(family: Key, roots: Roots) -> str:
    """One glob for the keys of a family below all roots. It may match others besides: `names_in` tells."""
    if roots.shards == 1:
        return family.glob(roots.root)
    behind = family.glob("r").removeprefix(f"{family.before_root}r")
    return f"{family.before_root}{{{roots.root}:*}}{behind}"


def names_in(family: Key, roots: Roots, key: str | bytes) -> dict[str, str] | None:
    """What `family.parse` says below whichever root is the right one."""
    if roots.shards == 1:
        return family.parse(roots.root, key)
    text = key.decode(errors="replace") if isinstance(key, bytes) else key
    root = text.removeprefix(family.before_root)
    root = root[: root.find("}") + 1]
    return family.parse(root, text) if root in roots.all else None
