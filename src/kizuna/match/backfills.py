"""A backfill as programs see it: free places in a match that is being played."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from kizuna.errors import Undecodable
from kizuna.match import values
from kizuna.match.openmatch import internal_pb2, messages_pb2
from kizuna.match.tickets import Searchable


class Backfill(Searchable):
    """Not to be changed. `generation` counts changes: a match that was made for an older one is dropped."""

    message: messages_pb2.Backfill

    __slots__ = ()

    @property
    def generation(self) -> int:
        return self.message.generation

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "generation": self.generation,
            "created_at": self.created_at,
            "tags": self.tags,
            "doubles": values.shown(self.doubles),
            "strings": self.strings,
        }

    def __repr__(self) -> str:
        return f"Backfill({self.id!r}, generation={self.generation})"


class StoredBackfill:
    """What is stored of it: the backfill, and the tickets that wait for the game server to take them in."""

    def __init__(self, message: internal_pb2.BackfillInternal, body: bytes) -> None:
        self.message, self.body = message, body

    @classmethod
    def decode(cls, body: bytes) -> StoredBackfill:
        """Undecodable for what is no backfill."""
        try:
            return cls(internal_pb2.BackfillInternal.FromString(body), body)
        except DecodeError as error:
            raise Undecodable("backfill", str(error), body) from error

    @property
    def backfill(self) -> Backfill:
        return Backfill(self.message.backfill)

    @property
    def ticket_ids(self) -> list[str]:
        return list(self.message.ticket_ids)
