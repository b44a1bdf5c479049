"""Keyspace notifications and pub/sub: one listening connection per primary, any number of readers."""

from __future__ import annotations

from kizuna.store.events.feeds import Change, Feed, LookAgain, Message, Waiters
from kizuna.store.events.reader import Events

__all__ = ["Change", "Events", "Feed", "LookAgain", "Message", "Waiters"]
