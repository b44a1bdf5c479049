"""An item: what it is made of, what is written of it, and what was asked to be changed. No I/O here."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from typing import Any, Literal

import msgspec
from msgspec import Struct

from kizuna.errors import CannotOpen, Undecodable
from kizuna.memory.json_text import decoded

Kind = Literal["item", "result", "state"]
"""What an item is to its program: something to work with, the result of a calculation, or the state of a system."""
KINDS: tuple[Kind, ...] = ("item", "result", "state")

GLOBAL = "global"
"""The context of items that were given none. It needs no beginning and has no end."""
HIGHEST_PRIORITY = 10
USUAL_PRIORITY = 5

Opener = Callable[[str, bytes], bytes]
"""Opens what was sealed for the item of this id."""

# As they are read, and in this order. The first eight are what others know and write as well.
FIELDS = (
    "id",
    "type",
    "content",
    "contextId",
    "priority",
    "createdAt",
    "expiresAt",
    "metadata",
    "version",
    "updatedAt",
    "ttlMs",
    "more",
    "generationNumber",
)
SEALED_BEGINS = b'{"_encrypted":true'
# The same, as others may write it.
_SEALED = re.compile(rb'\s*\{\s*"_encrypted"\s*:\s*true\b').match


class More(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What few items have, in one field."""

    kind: Kind = "item"
    depends_on: tuple[str, ...] = ()
    generation: str | None = None
    generation_number: int = 0
    """How often that had been raised when it was made. In a field of its own, for the script to fill in."""
    cost_s: float | None = None
    importance: float | None = None

    @property
    def is_usual(self) -> bool:
        return self is USUAL or self == USUAL


USUAL = More()

_UNREAD = object()


class Item:
    """What is remembered. Content and metadata are read, and opened if they were sealed, when they are asked for:
    Undecodable if an outsider wrote no JSON, CannotOpen if it was sealed for another item, or with none of our keys.

    Times are seconds since the epoch, by the server's clock.
    """

    __slots__ = (
        "_content",
        "_metadata",
        "_opener",
        "context",
        "created_at",
        "expires_at",
        "from_backup",
        "id",
        "more",
        "priority",
        "raw_content",
        "raw_metadata",
        "ttl_s",
        "type",
        "updated_at",
        "version",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - as everywhere
        type: str,  # noqa: A002
        context: str,
        priority: int,
        raw_content: bytes,
        raw_metadata: bytes,
        version: int,
        created_at: float,
        updated_at: float,
        expires_at: float,
        ttl_s: float,
        more: More,
        opener: Opener | None = None,
        from_backup: bool = False,
    ) -> None:
        self.id, self.type, self.context, self.priority = id, type, context, priority
        self.raw_content, self.raw_metadata = raw_content, raw_metadata
        self.version = version
        self.created_at, self.updated_at, self.expires_at, self.ttl_s = created_at, updated_at, expires_at, ttl_s
        self.more = more
        self.from_backup = from_backup
        """Whether this is the copy that is kept for times when the server cannot be reached."""
        self._opener = opener
        self._content: Any = _UNREAD
        self._metadata: Any = _UNREAD

    @property
    def content(self) -> Any:
        if self._content is _UNREAD:
            raw = self.raw_content
            if self.is_sealed:
                if self._opener is None:
                    raise CannotOpen(self.id, "there are no keys; set memory.seal_keys_file")
                self._content = _opened(self.id, self._opener(self.id, raw))
            else:
                self._content = decoded(raw)
        return self._content

    @property
    def metadata(self) -> dict[str, Any]:
        if self._metadata is _UNREAD:
            value = decoded(self.raw_metadata)
            self._metadata = value if isinstance(value, dict) else {}
        return self._metadata  # type: ignore[no-any-return]

    @property
    def is_sealed(self) -> bool:
        return is_sealed(self.raw_content)

    @property
    def kind(self) -> Kind:
        return self.more.kind

    @property
    def depends_on(self) -> tuple[str, ...]:
        return self.more.depends_on

    @property
    def generation(self) -> str | None:
        return self.more.generation

    def as_dict(self) -> dict[str, Any]:
        """For JSON: everything, with the content opened."""
        return {
            "id": self.id,
            "type": self.type,
            "context": self.context,
            "priority": self.priority,
            "content": self.content,
            "metadata": self.metadata,
            "version": self.version,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "expires_at": self.expires_at,
            "ttl_s": self.ttl_s,
            "sealed": self.is_sealed,
            "from_backup": self.from_backup,
            **{name: value for name, value in msgspec.structs.asdict(self.more).items() if value},
        }

    def as_far_as_readable(self) -> tuple[dict[str, Any], str]:
        """`as_dict` for lists, where one item must not hide the others: what cannot be opened or read is empty. And why
        it cannot, if there is any such."""
        readable, problems = copy(self), []
        for part in ("content", "metadata"):
            try:
                getattr(self, part)
            except (CannotOpen, Undecodable) as error:
                problems.append(str(error))
                setattr(readable, f"raw_{part}", b"null")
        return readable.as_dict() | {"sealed": self.is_sealed}, "; ".join(problems)

    def __repr__(self) -> str:
        return f"<Item {self.id} {self.type} in {self.context}, version {self.version}>"


def is_sealed(content: bytes) -> bool:
    return content.startswith(SEALED_BEGINS) or (b'"_encrypted"' in content[:64] and _SEALED(content) is not None)


def _opened(item: str, raw: bytes) -> Any:
    """What could not be read is not shown: it was secret."""
    try:
        return decoded(raw)
    except Undecodable:
        raise CannotOpen(item, "what was sealed in it is no JSON") from None


class NewItem(Struct, frozen=True, kw_only=True):
    """An item that is to be written, checked and as it goes to the server."""

    id: str
    type: str
    context: str
    priority: int
    content: bytes
    metadata: bytes
    ttl_ms: int
    """Not yet clamped: that is done where it is written."""
    more: More
    token: str
    """By this the write is known when it has to be repeated."""
    replaces: bool = False
    """Whether an item of this id is replaced; else that is refused."""
    is_fresh: bool = False
    """Whether the id was just made, so that nobody else can have it."""

    @property
    def is_plain(self) -> bool:
        """Whether it can be written in the quick way."""
        return self.is_fresh and self.more.is_usual


class ItemChange(Struct, frozen=True, kw_only=True):
    """What is to become of an item; None: as it is."""

    id: str
    token: str
    context: str | None = None
    """Where it is, if that is known: it spares a search over all shards."""
    expected_version: int | None = None
    content: bytes | None = None
    metadata: bytes | None = None
    type: str | None = None
    to_context: str | None = None
    priority: int | None = None
    ttl_ms: int | None = None
    unseals: bool = False
    """Whether a content that is sealed may be replaced by one that is not."""

    @property
    def is_plain(self) -> bool:
        """Whether it can be done in the quick way."""
        stays = self.type is None and self.to_context is None and self.priority is None and self.ttl_ms is None
        return stays and (self.content is not None or self.metadata is not None)
