"""What a topology tells about where things are."""

from __future__ import annotations

from dataclasses import dataclass

from kizuna.store.link import Link, Locate


@dataclass(frozen=True)
class Route:
    """Where to send a command next."""

    link: Link
    asking: bool = False
    """The slot is on its way to that node: it answers only if asked with ASKING, this once."""


@dataclass(frozen=True)
class Place:
    """One primary to listen at: notifications stay on the node that holds the key."""

    name: str
    """The node's address on a cluster, a constant elsewhere."""
    locate: Locate
    slot: int | None
    """A slot that this primary holds; None where one server holds everything."""
