"""What is looked for, and what was found. No I/O here."""

from __future__ import annotations

from msgspec import Struct

from kizuna.memory.context import Context
from kizuna.memory.item import Item

MOST_PER_PAGE = 1_000


class Query(Struct, frozen=True, kw_only=True):
    """Items that have all of this; None: whatever it is. In the order in which they were created, and of those
    created in one millisecond, of their ids."""

    type: str | None = None
    context: str | None = None
    priority: tuple[int, int] | None = None
    """From and to, both included."""
    ends_after: float | None = None
    ends_before: float | None = None
    """Seconds since the epoch, by the server's clock."""
    text: str | None = None
    """Somewhere in the content, in small letters or large."""
    newest_first: bool = False
    limit: int = 50
    cursor: str = ""
    """From the page before; empty for the first."""

    @property
    def is_plain(self) -> bool:
        """Whether one index says which items these are."""
        by_one = (self.context is None) != (self.type is None)
        return by_one and self.priority is None and self.ends_after is None and self.ends_before is None


class Page(Struct, frozen=True, kw_only=True):
    items: list[Item]
    cursor: str = ""
    """For the next page; empty if this was the last."""
    from_backup: bool = False


class ContextPage(Struct, frozen=True, kw_only=True):
    contexts: list[Context]
    cursor: str = ""
    from_backup: bool = False
