"""A message that somebody wants to have stored, made into what is stored. Does no I/O.

The id, the time and the life of a ticket are ours to say; what else it says stays as it came.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf import wrappers_pb2
from google.protobuf.message import DecodeError, Message

from kizuna.errors import TooLarge, WrongValue
from kizuna.match.tickets import TTL_FIELD

if TYPE_CHECKING:
    from kizuna.match.openmatch import messages_pb2
    from kizuna.match.tickets import Assignment
    from kizuna.settings import MatchSettings

M = TypeVar("M", bound=Message)

_NS = 1_000_000_000
_LIFE_TYPE = f"type.googleapis.com/{wrappers_pb2.Int64Value.DESCRIPTOR.full_name}"


def draft_ticket(
    ticket: messages_pb2.Ticket, id_: str, now_ns: int, ttl_s: float | None, settings: MatchSettings
) -> tuple[bytes, int]:
    """Make it the ticket as it is stored; returns its bytes, and how many milliseconds it waits."""
    ttl_ns = ttl_of(ticket, ttl_s, settings)
    if ticket.HasField("assignment"):
        raise WrongValue("the assignment of a new ticket", "given", "none: it gets one when it is matched")
    ticket.id = id_
    ticket.create_time.seconds, ticket.create_time.nanos = divmod(now_ns, _NS)
    life = ticket.persistent_field[TTL_FIELD]
    life.type_url, life.value = _LIFE_TYPE, _life(ttl_ns)
    return encoded(ticket, "ticket", settings), math.ceil(ttl_ns / 1_000_000)


@lru_cache
def _life(ttl_ns: int) -> bytes:
    """Almost always the usual one."""
    return wrappers_pb2.Int64Value(value=ttl_ns).SerializeToString()


def ttl_of(ticket: messages_pb2.Ticket, ttl_s: float | None, settings: MatchSettings) -> int:
    """In nanoseconds: what the call says, else what the ticket says itself, else what is usual."""
    most_s = settings.ticket_most_s
    expected = f"0.001 to {most_s:g}s (match.ticket_most_s)"
    try:
        ns = _asked_for(ticket) if ttl_s is None else round(ttl_s * _NS)
    except (TypeError, ValueError, OverflowError):
        raise WrongValue("the life of a ticket", repr(ttl_s), expected) from None
    if ns is None:
        ns = round(settings.ticket_s * _NS)
    if not 1_000_000 <= ns <= most_s * _NS:
        raise WrongValue("the life of a ticket", f"{ns / _NS:g}s", expected)
    return ns


def _asked_for(ticket: messages_pb2.Ticket) -> int | None:
    if TTL_FIELD not in ticket.persistent_field:
        return None
    asked = wrappers_pb2.Int64Value()
    try:
        is_number = ticket.persistent_field[TTL_FIELD].Unpack(asked)
    except DecodeError:
        is_number = False
    if not is_number:
        raise WrongValue("persistent_field ttl", "something else", "an Int64Value, in nanoseconds")
    return asked.value


def copied(message: Any, kind: type[M]) -> M:
    """One of ours that says the same. It may come from stubs that somebody has generated for themselves: those have the
    same name, and other classes."""
    if isinstance(message, kind):
        copy = kind()
        copy.CopyFrom(message)
        return copy
    name = kind.DESCRIPTOR.full_name
    if not isinstance(message, Message) or message.DESCRIPTOR.full_name != name:
        raise WrongValue(f"what is to be an {name}", type(message).__name__, f"a message of the type {name}")
    return kind.FromString(message.SerializeToString())


def encoded(message: messages_pb2.Ticket | messages_pb2.Backfill, what: str, settings: MatchSettings) -> bytes:
    body: bytes = message.SerializeToString()
    if len(body) > settings.largest_bytes:
        raise TooLarge(f"a {what}", len(body), settings.largest_bytes, "match.largest_bytes")
    return body


def check_size(assignment: Assignment, settings: MatchSettings) -> None:
    size = assignment.message.ByteSize()
    if size > settings.largest_bytes:
        raise TooLarge("an assignment", size, settings.largest_bytes, "match.largest_bytes")
