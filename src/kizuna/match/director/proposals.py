"""What match functions have proposed, and what an evaluator left of it. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from kizuna.errors import EvaluatorFailed, FunctionFailed
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


def check_distinct(proposals: Iterable[Proposal]) -> None:
    """FunctionFailed if two functions have called different matches by one id."""
    first: dict[str, Proposal] = {}
    for proposal in proposals:
        other = first.setdefault(proposal.match.id, proposal)
        if other is not proposal:
            addresses = " and ".join(dict.fromkeys((other.address, proposal.address)))
            raise FunctionFailed(addresses, f'multiple match functions used same match_id: "{proposal.match.id}"')


def chosen(proposals: Sequence[Proposal], ids: Iterable[str], evaluator: str) -> list[Proposal]:
    """Those that stand, in the order of the evaluator. EvaluatorFailed if it named one twice, or one that is not."""
    by_id = {proposal.match.id: proposal for proposal in proposals}
    kept: dict[str, Proposal] = {}
    for match_id in ids:
        if match_id not in by_id:
            reason = f'evaluator returned match_id "{match_id}" which does not correspond to its any match in its input'
            raise EvaluatorFailed(evaluator, reason)
        if match_id in kept:
            raise EvaluatorFailed(evaluator, f'evaluator returned same match_id twice: "{match_id}"')
        kept[match_id] = by_id[match_id]
    return list(kept.values())


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
