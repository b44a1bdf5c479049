"""A context: what items belong to. No I/O here."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from kizuna.errors import Undecodable
from kizuna.memory.json_text import decoded

AtEnd = Literal["delete", "leave"]
"""What becomes of the items of a context that ends: they end with it, or are left to the global one."""

# As they are read, and in this order. The first seven are what others know and write as well.
CONTEXT_FIELDS = ("id", "name", "type", "createdAt", "updatedAt", "expiresAt", "metadata", "version", "ttlMs", "atEnd")


class Context(Struct, frozen=True, kw_only=True, dict=True):
    """Times are seconds since the epoch, by the server's clock."""

    id: str
    name: str
    type: str
    raw_metadata: bytes
    version: int
    created_at: float
    updated_at: float
    expires_at: float
    ttl_s: float
    at_end: AtEnd
    is_active: bool
    """Whether it lives longer by being used."""
    from_backup: bool = False

    @cached_property
    def metadata(self) -> dict[str, Any]:
        value = decoded(self.raw_metadata)
        return value if isinstance(value, dict) else {}

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Metadata that somebody else wrote and nobody can read are empty, and `problem` says why: in a list
        one context must not hide the others."""
        try:
            metadata, problem = self.metadata, {}
        except Undecodable as error:
            metadata, problem = {}, {"problem": str(error)}
        return {
            "id": self.id,
            "name": self.name,
            "type": self.type,
            "active": self.is_active,
            "metadata": metadata,
            "version": self.version,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "expires_at": self.expires_at,
            "ttl_s": self.ttl_s,
            "at_end": self.at_end,
            "from_backup": self.from_backup,
            **problem,
        }


class NewContext(Struct, frozen=True, kw_only=True):
    """A context that is to be written, checked and as it goes to the server."""

    id: str
    name: str
    type: str
    metadata: bytes
    ttl_ms: int
    """Not yet clamped: that is done where it is written."""
    at_end: AtEnd
    is_active: bool
    token: str


class ContextChange(Struct, frozen=True, kw_only=True):
    """What is to become of a context; None: as it is."""

    id: str
    token: str
    expected_version: int | None = None
    name: str | None = None
    type: str | None = None
    metadata: bytes | None = None
    ttl_ms: int | None = None
    at_end: AtEnd | None = None
    is_active: bool | None = None


class ContextQuery(Struct, frozen=True, kw_only=True):
    """Contexts that have all of this; None: whatever it is. In the order of their ids."""

    type: str | None = None
    is_active: bool | None = None
    limit: int = 50
    cursor: str = ""
