"""A ticket and an assignment as programs see them: plain attributes over the messages that are stored and sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from kizuna.errors import Undecodable, WrongValue
from kizuna.match import values
from kizuna.match.openmatch import messages_pb2

if TYPE_CHECKING:
    from kizuna.match.values import Value

TTL_FIELD = "ttl"
"""In `persistent`, how long the ticket was to wait when it was made, in nanoseconds."""


class Searchable:
    """What pools look at; tickets have it, and backfills. Unpacked when it is first asked for: very many are never
    asked."""

    # No dictionary for each: there may be tens of thousands in one tick.
    __slots__ = ("_doubles", "_extensions", "_persistent", "_strings", "_tags", "created_ns", "id", "message")

    message: Any

    def __init__(self, message: Any) -> None:
        created = message.create_time
        self.message = message
        self.id: str = message.id
        self.created_ns: int = created.seconds * 1_000_000_000 + created.nanos
        """In nanoseconds since the epoch; 0 if whoever made it did not say."""
        self._tags: list[str] | None = None
        self._doubles: dict[str, float] | None = None
        self._strings: dict[str, str] | None = None
        self._extensions: dict[str, Value] | None = None
        self._persistent: dict[str, Value] | None = None

    @property
    def tags(self) -> list[str]:
        if self._tags is None:
            self._tags = list(self.message.search_fields.tags)
        return self._tags

    @property
    def doubles(self) -> dict[str, float]:
        if self._doubles is None:
            self._doubles = dict(self.message.search_fields.double_args)
        return self._doubles

    @property
    def strings(self) -> dict[str, str]:
        if self._strings is None:
            self._strings = dict(self.message.search_fields.string_args)
        return self._strings

    @property
    def extensions(self) -> dict[str, Value]:
        if self._extensions is None:
            self._extensions = values.unpack(self.message.extensions)
        return self._extensions

    @property
    def persistent(self) -> dict[str, Value]:
        if self._persistent is None:
            self._persistent = values.unpack(self.message.persistent_field)
        return self._persistent

    @property
    def created_at(self) -> float:
        """In seconds since the epoch; 0 if whoever made it did not say."""
        return self.created_ns / 1e9


class Ticket(Searchable):
    """A player or a party that waits. Not to be changed: `message` is shared by all who look at it."""

    __slots__ = ()

    message: messages_pb2.Ticket

    @classmethod
    def decode(cls, body: bytes) -> Ticket:
        """Undecodable for what is no ticket."""
        try:
            return cls(messages_pb2.Ticket.FromString(body))
        except DecodeError as error:
            raise Undecodable("ticket", str(error), body) from error

    @classmethod
    def if_readable(cls, body: bytes) -> Ticket | None:
        """None for what somebody has put there that is no ticket: it cannot be matched, and disturbs nobody."""
        try:
            return cls.decode(body)
        except Undecodable:
            return None

    def encode(self) -> bytes:
        body: bytes = self.message.SerializeToString()
        return body

    @property
    def assignment(self) -> Assignment | None:
        return Assignment.of(self.message.assignment) if self.message.HasField("assignment") else None

    def waited_s(self, now_s: float) -> float:
        return max(now_s - self.created_ns / 1e9, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """For people and JSON."""
        shown: dict[str, Any] = {
            "id": self.id,
            "created_at": self.created_at,
            "tags": self.tags,
            "doubles": values.shown(self.doubles),
            "strings": self.strings,
            "extensions": values.shown(self.extensions),
        }
        if (assignment := self.assignment) is not None:
            shown["assignment"] = assignment.as_dict()
        return shown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ticket) and other.message == self.message

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Ticket({self.id!r}, tags={self.tags}, doubles={self.doubles}, strings={self.strings})"


class Assignment:
    """Where to play: a connection, and what else the game needs to know. Not to be changed: `message` is what is sent,
    and whatever others put into it, in types that we do not have, goes on as it came."""

    def __init__(self, connection: str, extensions: Mapping[str, Value] | None = None) -> None:
        # None would be an empty one: whoever looked for a server and found none has none to assign.
        if not isinstance(connection, str):
            raise WrongValue("the connection of an assignment", repr(connection), "text")
        self.message = messages_pb2.Assignment(connection=connection)
        if extensions:
            values.pack_into(self.message.extensions, extensions)

    @classmethod
    def of(cls, message: messages_pb2.Assignment) -> Assignment:
        assignment = cls.__new__(cls)
        assignment.message = message
        return assignment

    @property
    def connection(self) -> str:
        return self.message.connection

    @cached_property
    def extensions(self) -> dict[str, Value]:
        return values.unpack(self.message.extensions)

    @classmethod
    def decode(cls, body: bytes) -> Assignment:
        """Undecodable for what is no assignment."""
        try:
            return cls.of(messages_pb2.Assignment.FromString(body))
        except DecodeError as error:
            raise Undecodable("assignment", str(error), body) from error

    def encode(self) -> bytes:
        """The same bytes for the same assignment, so that one that is told again is known."""
        return self.message.SerializeToString(deterministic=True)

    def as_dict(self) -> dict[str, Any]:
        return {"connection": self.connection, "extensions": values.shown(self.extensions)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Assignment) and other.encode() == self.encode()

    def __hash__(self) -> int:
        return hash(self.connection)

    def __repr__(self) -> str:
        return f"Assignment({self.connection!r}{f', {self.extensions}' if self.extensions else ''})"


def new_ticket(
    *,
    tags: Iterable[str] = (),
    doubles: Mapping[str, float] | None = None,
    strings: Mapping[str, str] | None = None,
    extensions: Mapping[str, Value] | None = None,
    persistent: Mapping[str, Value] | None = None,
) -> messages_pb2.Ticket:
    """The message of a ticket that has no id yet. WrongValue for what no ticket can hold."""
    message = messages_pb2.Ticket()
    fill(message, tags, doubles, strings, extensions, persistent)
    return message


def fill(
    message: Any,
    tags: Iterable[str],
    doubles: Mapping[str, float] | None,
    strings: Mapping[str, str] | None,
    extensions: Mapping[str, Value] | None,
    persistent: Mapping[str, Value] | None,
) -> None:
    """What a ticket or a backfill says about itself."""
    if isinstance(tags, str):
        raise WrongValue("tags", repr(tags), "a list of texts")
    try:
        message.search_fields.tags.extend(tags)
        message.search_fields.double_args.update(doubles or {})
        message.search_fields.string_args.update(strings or {})
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongValue("search fields", str(error), "texts as tags and strings, numbers as doubles") from error
    if extensions:
        values.pack_into(message.extensions, extensions)
    if persistent:
        values.pack_into(message.persistent_field, persistent)
