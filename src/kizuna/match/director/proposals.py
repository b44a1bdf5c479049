"""What match functions have proposed. Does no I/O."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from kizuna.match.matches import EVALUATION_INPUT, Match
from kizuna.match.openmatch import messages_pb2


@dataclass(eq=False)
class Proposal:
    """A match as its function sent it, which is how whoever fetched it gets it."""

    message: messages_pb2.Match
    match: Match
    address: str
    """Where its function is served."""
    has_readable_score: bool
    is_withdrawn: bool = False
    """Its function has failed, or nobody waits for it any more: it does not stand, whoever keeps it."""

    @classmethod
    def of(cls, message: messages_pb2.Match, address: str) -> Proposal:
        try:
            return cls(message, Match.of(_copy(message)), address, has_readable_score=True)
        except DecodeError:
            return cls(message, Match.of(_without_score(message)), address, has_readable_score=False)

    def answer(self) -> messages_pb2.Match:
        """As it was proposed; if a backfill was opened for it, with that one's id."""
        backfill = self.match.backfill
        if backfill is not None and not self.message.backfill.id:
            self.message.backfill.CopyFrom(backfill.message)
        return self.message


def _copy(message: messages_pb2.Match) -> messages_pb2.Match:
    # What becomes of the match, as the next generation of its backfill, is not what was proposed.
    if not message.HasField("backfill"):
        return message
    copy = messages_pb2.Match()
    copy.CopyFrom(message)
    return copy


def _without_score(message: messages_pb2.Match) -> messages_pb2.Match:
    bare = messages_pb2.Match()
    bare.CopyFrom(message)
    del bare.extensions[EVALUATION_INPUT]
    return bare
