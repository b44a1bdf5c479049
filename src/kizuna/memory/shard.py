"""The keys of memory below one root, and what every script there is told."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TypedDict

from kizuna.memory import keys

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,128}").fullmatch


class Told(TypedDict):
    root: str
    feed_length: int


class Shard:
    """One root, and with it one slot of a cluster."""

    def __init__(self, root: str, feed_length: int) -> None:
        self.root = root
        self._item_of = root + keys.ITEM.beginning
        self.told: Told = {"root": root, "feed_length": feed_length}
        """The arguments that almost every script has."""

    @cached_property
    def expiry(self) -> str:
        return keys.ITEMS_EXPIRY.build(self.root)

    @cached_property
    def contexts_expiry(self) -> str:
        return keys.CONTEXTS_EXPIRY.build(self.root)

    @cached_property
    def contexts_active(self) -> str:
        return keys.CONTEXTS_ACTIVE.build(self.root)

    @cached_property
    def generations(self) -> str:
        return keys.GENERATIONS.build(self.root)

    @cached_property
    def feed(self) -> str:
        return keys.FEED.build(self.root)

    def item(self, id_: str) -> str:
        """IllegalName for an id that no key can have."""
        # The way of every item that is read or written: most ids need no longer look.
        plain = type(id_) is str and _PLAIN(id_)
        return self._item_of + id_ if plain else keys.ITEM.build(self.root, item=id_)

    def context(self, id_: str) -> str:
        return keys.CONTEXT.build(self.root, context=id_)
