"""What is said between units, told so that it can be followed: who asks whom, who answers, and after what time.

A path says whose request it is and of whom it is asked; that a reply belongs to it, and who took it, is known to who
has seen the request and the claim before. Does no I/O, and is told what time it is.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, NamedTuple

from kizuna.units.paths import ADDRESS_END, CLAIM, PRESENCE, SHORT_LIVED, Path, claim_id

Kind = Literal["request", "reply", "error", "kept", "claim", "presence"]

# How many requests are remembered, to be paired with what is written about them.
_REMEMBERED = 100_000
_ANSWERS: dict[str, Kind] = {"res": "reply", "err": "error"}


class Fact(NamedTuple):
    """One message, and what is known around it."""

    kind: Kind
    path: Path
    id: str
    """Of the request, what makes it unique; of state, its id; of a presence, the process."""
    caller: str | None = None
    """Whose request it is; None if it is about none, or that is not known."""
    server: str | None = None
    """Of whom it is asked; or, once it was taken, who did."""
    after_s: float | None = None
    """Since the request was seen, for what is written about it; None if that was not seen."""
    is_exact: bool = True
    """Both were announced when they were written; else the time is how long it took us to find them."""


class _Asked(NamedTuple):
    id: str
    caller: str
    server: str | None
    at_s: float | None
    was_found: bool


class Pairing:
    """Remembers requests, the latest of them."""

    def __init__(self, *, remembered: int = _REMEMBERED) -> None:
        self._most = remembered
        self._asked: OrderedDict[tuple[str, str], _Asked] = OrderedDict()
        """By caller and id."""
        self._by_claim: dict[str, tuple[str, str]] = {}

    def remember(self, path: Path) -> None:
        """A request that was there before we came: nobody knows for how long."""
        self._request(path, None, found=True)

    def feed(self, path: Path, at_s: float, *, found: bool = False) -> Fact:
        """What a message at this path means. `found`: by looking, so it may have been there for a while."""
        if path.status == "req":
            return self._request(path, at_s, found)
        if path.status in _ANSWERS:
            return self._answer(path, at_s, found)
        if path.id.startswith(CLAIM):
            return self._claim(path, at_s, found)
        if path.id.startswith(PRESENCE):
            return Fact("presence", path, path.id.removeprefix(PRESENCE))
        return Fact("kept", path, path.id)

    # -- inside -----------------------------------------------------------------------------------------

    def _request(self, path: Path, at_s: float | None, found: bool) -> Fact:
        server, id_ = _address(path.id)
        self._remember(path, _Asked(id_, path.unit, server, at_s, found))
        return Fact("request", path, id_, path.unit, server)

    def _answer(self, path: Path, at_s: float, found: bool) -> Fact:
        asked = self._asked.get((path.unit, path.id))
        if asked is None:
            server, id_ = _address(path.id)
            return Fact(_ANSWERS[path.status], path, id_, path.unit, server)
        return _about(_ANSWERS[path.status], path, asked, at_s, found)

    def _claim(self, path: Path, at_s: float, found: bool) -> Fact:
        request = self._by_claim.get(path.id)
        if request is None:
            return Fact("claim", path, path.id.removeprefix(CLAIM), None, path.unit)
        # Not by its address: a request without one is taken as well, and one with any by whoever serves its pattern.
        asked = self._asked[request] = self._asked[request]._replace(server=path.unit)
        return _about("claim", path, asked, at_s, found)

    def _remember(self, path: Path, asked: _Asked) -> None:
        request = (path.unit, path.id)
        self._asked.pop(request, None)
        self._asked[request] = asked
        self._by_claim[claim_id(*request)] = request
        if len(self._asked) > self._most:
            oldest, _ = self._asked.popitem(last=False)
            del self._by_claim[claim_id(*oldest)]


def _about(kind: Kind, path: Path, asked: _Asked, at_s: float, found: bool) -> Fact:
    is_exact = not (found or asked.was_found)
    after_s = None if asked.at_s is None else at_s - asked.at_s
    return Fact(kind, path, asked.id, asked.caller, asked.server, after_s, is_exact)


def _address(id_: str) -> tuple[str | None, str]:
    """Of whom it is asked, and what makes the id unique."""
    server, dot, rest = id_.partition(ADDRESS_END)
    return (server, _unique(rest)) if dot and server and rest else (None, _unique(id_))


def _unique(rest: str) -> str:
    # That a request is short-lived is for who serves it, and nothing to be read again in every line.
    return rest.removeprefix(SHORT_LIVED) or rest


class Selection(NamedTuple):
    """Which facts are wanted; what is empty or None asks for nothing."""

    units: frozenset[str] = frozenset()
    """That have to do with one of these: ask, answer, take, keep, or are asked."""
    statuses: frozenset[str] = frozenset()
    id: str = ""
    """The beginning of the id, with or without its address."""
    text: bytes = b""
    """Somewhere in the value."""
    everything: bool = False
    """Claims and presences, too."""

    def takes(self, fact: Fact, value: bytes) -> bool:
        return (
            (self.everything or fact.kind not in ("claim", "presence"))
            and (not self.statuses or fact.path.status in self.statuses)
            and (not self.units or not self.units.isdisjoint((fact.path.unit, fact.caller, fact.server)))
            and (fact.id.startswith(self.id) or fact.path.id.startswith(self.id))
            and self.text in value
        )
