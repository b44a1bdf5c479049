"""What is stored behind one prefix, and every step on it. One prefix is one slot of a cluster, and one world: only
tickets of one shard meet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kizuna.errors import StoreError
from kizuna.match import keys
from kizuna.match.guards import make_guard
from kizuna.match.scripts import script
from kizuna.match.xids import is_xid, make_xid
from kizuna.store.repeating import until_known
from kizuna.store.replies import paired

if TYPE_CHECKING:
    from kizuna.match.guards import Step
    from kizuna.match.matches import Group
    from kizuna.match.servers import Servers
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

_create_tickets = script("create_tickets")
_take_tickets = script("take_tickets")
_release_tickets = script("release_tickets")
_give_back_held = script("give_back_held")
_assign_groups = script("assign_groups")
_assign_tickets = script("assign_tickets")
_delete_ticket = script("delete_ticket")
_deindex_tickets = script("deindex_tickets")

# What one call of a script works on: some milliseconds of the server's time.
MOST_IDS = 1_000
MOST_ASSIGNED = 250
BATCHES = 2
"""How many batches of tickets a backend may hold: it takes the next while it finishes one."""
# A set above it is read bit by bit: the server answers nobody else while it lists one.
_LISTED_AT_ONCE = 20_000
_READ_AT_ONCE = 500
# Who has a ticket since later than that has it by no clock, as `lua/parts/pending.lua` has it.
_AHEAD_AT_MOST_S = 3_600


@dataclass(frozen=True)
class Taken:
    ids: list[str]
    now_s: float
    """The server's time."""
    busy: int
    """How many somebody else is matching."""


class Shard:
    def __init__(self, servers: Servers, prefix: str, roots: Roots) -> None:
        self.prefix, self._roots = prefix, roots
        self._servers, self._store = servers, servers.main
        self.settings = servers.settings
        self.guard = make_guard(servers.main, prefix, servers.settings)
        self.all_tickets = keys.ALL_TICKETS.build(prefix)
        self.proposed = keys.PROPOSED_TICKETS.build(prefix)
        self.outbox = keys.OUTBOX.build(prefix)
        self.backends = keys.BACKENDS.build(prefix)
        self.ended = keys.ENDED.build(prefix)
        self.assignment_beginning = prefix + keys.ASSIGNMENT.beginning
        self._told: dict[str, Any] = {"tickets": self.all_tickets, "root": prefix}
        self._told_to_assign: dict[str, Any] = {
            **self._told,
            "assigned_s": self.settings.assigned_s,
            "elsewhere": int(servers.has_other_assignments),
        }

    # -- keys ---------------------------------------------------------------------------------------------

    def body(self, id_: str) -> str:
        """IllegalName for an id that no key can have."""
        # No name of a key is one: most ids need no longer look.
        return self.prefix + id_ if is_xid(id_) else keys.BODY.build(self.prefix, id=id_)

    def assignment(self, id_: str) -> str:
        return keys.ASSIGNMENT.build(self.prefix, ticket=id_)

    def held(self, backend: str, batch: int) -> str:
        return keys.HELD.build(self.prefix, backend=backend, batch=str(batch))

    def new_id(self) -> str:
        """An id that leads to this shard."""
        id_ = make_xid()
        while self._roots.shards > 1 and self._roots.of(id_) != self.prefix:
            id_ = make_xid()
        return id_

    # -- tickets ------------------------------------------------------------------------------------------

    async def create(self, id_: str, message: bytes, ttl_ms: int) -> None:
        row: dict[str, Any] = {"body": self.prefix + id_, "id": id_, "message": message, "ttl_ms": ttl_ms}
        await until_known(lambda: _create_tickets.row(self._store, tickets=self.all_tickets, **row))

    async def read(self, id_: str) -> bytes | None:
        """From the replica, if there is one and it has it."""
        key = self.body(id_)
        replica = await self._servers.replica()
        if replica is not None:
            try:
                if (body := await replica.get(key)) is not None:
                    return body
            except StoreError as error:
                self._servers.leave_replica_alone(error)
        return await self._store.get(key)

    async def read_all(self, ids: Sequence[str]) -> list[bytes | None]:
        replica = await self._servers.replica()
        if replica is None:
            return await self._read_at(self._store, ids)
        try:
            bodies = await self._read_at(replica, ids)
        except StoreError as error:
            self._servers.leave_replica_alone(error)
            bodies = [None] * len(ids)
        missing = [number for number, body in enumerate(bodies) if body is None]
        found = await self._read_at(self._store, [ids[number] for number in missing])
        for number, body in zip(missing, found, strict=True):
            bodies[number] = body
        return bodies

    async def _read_at(self, store: Store, ids: Sequence[str]) -> list[bytes | None]:
        prefix = self.prefix
        calls = [store.call("MGET", *(prefix + id_ for id_ in some)) for some in chunks(ids, _READ_AT_ONCE)]
        return [body for bodies in await asyncio.gather(*calls) for body in bodies]

    async def read_assignment(self, id_: str) -> bytes | None:
        return await (await self._servers.assignments()).get(self.assignment(id_))

    async def delete(self, id_: str) -> bool:
        """Whether it was there."""
        self.body(id_)
        _, was_there = await self.step(lambda token: _delete_ticket(self._store, **self._told, token=token, id=id_))
        if self._servers.has_other_assignments:
            await (await self._servers.assignments()).call("DEL", self.assignment(id_))
        return bool(was_there)

    async def deindex(self, ids: Sequence[str], *, only_ended: bool = False) -> int:
        """How many were there to be taken out."""
        removed = 0
        for some in chunks(ids, MOST_IDS):
            told = {**self._told, "ids": " ".join(some), "only_ended": int(only_ended)}
            _, number = await self.step(lambda token, told=told: _deindex_tickets(self._store, token=token, **told))  # type: ignore[misc]
            removed += number
        return removed

    async def count(self) -> int:
        return int(await self._store.call("SCARD", self.all_tickets))

    # -- who waits ----------------------------------------------------------------------------------------

    async def indexed(self, *, about: int | None = None) -> list[str]:
        """The ids of all tickets that wait or are being matched, in no order; who knows about how many they are spares
        a question."""
        if (await self.count() if about is None else about) <= _LISTED_AT_ONCE:
            return [id_.decode(errors="replace") for id_ in await self._store.call("SMEMBERS", self.all_tickets)]
        found: dict[bytes, None] = {}
        cursor = b"0"
        while True:
            cursor, some = await self._store.call("SSCAN", self.all_tickets, cursor, "COUNT", _LISTED_AT_ONCE // 4)
            found.update(dict.fromkeys(some))
            if int(cursor) == 0:
                return [id_.decode(errors="replace") for id_ in found]

    async def some(self, most: int) -> list[str]:
        """Ids of tickets that wait or are being matched, at random."""
        return [id_.decode(errors="replace") for id_ in await self._store.call("SRANDMEMBER", self.all_tickets, most)]

    async def without_ticket(self, ids: Sequence[str]) -> list[str]:
        """Those of them that have no ticket."""
        replies = await self._store.call_all([("EXISTS", self.prefix + id_) for id_ in ids])
        return [id_ for id_, is_there in zip(ids, replies, strict=True) if is_there == 0]

    async def pending(self, *, for_s: float = -_AHEAD_AT_MOST_S) -> dict[str, float]:
        """The tickets that somebody is matching, and since when; or those of them that he has had for that long."""
        oldest, latest = await self._pending_bounds(for_s)
        found = await self._store.call("ZRANGE", self.proposed, oldest, latest, "BYSCORE", "WITHSCORES")
        return {id_.decode(errors="replace"): since for id_, since in found}

    async def pending_since(self, id_: str) -> float | None:
        """Since when somebody is matching this one; None: nobody is."""
        since: float | None = await self._store.call("ZSCORE", self.proposed, id_)
        oldest, latest = await self._pending_bounds()
        return since if since is not None and oldest <= since <= latest else None

    async def _pending_bounds(self, for_s: float = -_AHEAD_AT_MOST_S) -> tuple[int, int]:
        now_s = await self._store.time_s()
        return int(now_s) - self.settings.pending_s, int(now_s - for_s)

    async def waiting(self) -> list[str]:
        """The ids of those that nobody is matching."""
        # First who is being matched, and then who waits: in the other order, one that is assigned in between would
        # still seem to wait.
        pending = await self.pending()
        return [id_ for id_ in await self.indexed() if id_ not in pending]

    # -- taking and letting go ----------------------------------------------------------------------------

    async def take(self, ids: Sequence[str], backend: str, *, begins: bool, batch: int = 0) -> Taken:
        """Those that wait and that nobody is matching. What a backend holds is remembered, should it die: the first of
        a batch begins that anew."""
        told = {
            **self._told,
            "held": self.held(backend, batch),
            "ids": " ".join(ids),
            "pending_s": self.settings.pending_s,
            "held_s": self.settings.pending_s * 2,
            "begins": int(begins),
        }
        reply = await self.guard.take(lambda token: _take_tickets(self._store, token=token, **told))
        _, time_us, busy, taken = reply
        return Taken(taken.decode().split(), int(time_us) / 1e6, busy)

    async def release(self, ids: Sequence[str]) -> None:
        await asyncio.gather(*(self._release(some) for some in chunks(ids, MOST_IDS)))

    async def release_all(self) -> None:
        await self._release((), everyone=True)

    async def _release(self, ids: Sequence[str], *, everyone: bool = False) -> None:
        told: dict[str, Any] = {
            "proposed": self.proposed,
            "root": self.prefix,
            "ids": " ".join(ids),
            "everyone": int(everyone),
        }
        await self.step(lambda token: _release_tickets(self._store, token=token, **told))

    async def give_back(self, backend: str) -> int:
        """Release what a backend had taken when it was last heard of. How many that were."""
        return sum([await self._give_back(self.held(backend, batch)) for batch in range(BATCHES)])

    async def _give_back(self, held: str) -> int:
        told: dict[str, Any] = {"held": held, "root": self.prefix}
        given_back, left = 0, 1
        while left:
            _, some, left = await self.step(lambda token: _give_back_held(self._store, token=token, **told))
            given_back += some
        return given_back

    def forget_held(self, backend: str, batch: int) -> None:
        """All of it is assigned or released. Not waited for: at worst it is given back once more."""
        self._store.call("UNLINK", self.held(backend, batch)).add_done_callback(_saw)

    # -- assigning ----------------------------------------------------------------------------------------

    async def assign(self, groups: Sequence[Group], *, unchecked: bool = False) -> list[list[str]]:
        """All tickets of a group, or none: for each group those that were in the way, so nothing if it was assigned."""
        calls = []
        for some in _of_few_tickets(groups):
            calls.append(asyncio.ensure_future(self._assign_some(some, unchecked)))
            # It goes out at the end of this turn: the server works on it while we prepare the next.
            await asyncio.sleep(0)
        return [refused for some in await asyncio.gather(*calls) for refused in some]

    async def _assign_some(self, groups: Sequence[Group], unchecked: bool) -> list[list[str]]:
        rows: list[dict[str, Any]] = [
            {"ids": " ".join(group.ticket_ids), "assignment": group.assignment.encode()} for group in groups
        ]
        told: dict[str, Any] = {**self._told_to_assign, "unchecked": int(unchecked)}
        results = await self.step(lambda token: _assign_groups.rows(self._store, rows, token=token, **told))
        refused = [[] if result == b"assigned" else result[1].decode().split() for result in results]
        if self._servers.has_other_assignments:
            stand = (row for row, why_not in zip(rows, refused, strict=True) if not why_not)
            await self.deliver([(id_, row["assignment"]) for row in stand for id_ in row["ids"].split()])
        return refused

    async def assign_each(self, pairs: Sequence[tuple[str, bytes]]) -> list[str]:
        """Each ticket by itself: "assigned", "same", "other" or "missing"."""
        words: list[str] = []
        for some in chunks(pairs, MOST_ASSIGNED):
            rows = [{"id": id_, "assignment": body} for id_, body in some]
            results = await self.step(
                lambda token, rows=rows: _assign_tickets.rows(  # type: ignore[misc]
                    self._store, rows, token=token, **self._told_to_assign
                )
            )
            said = [word.decode() for word in results]
            words += await self._deliver_each(some, said) if self._servers.has_other_assignments else said
        return words

    async def _deliver_each(self, pairs: Sequence[tuple[str, bytes]], words: list[str]) -> list[str]:
        to_deliver = [pair for pair, word in zip(pairs, words, strict=True) if word in ("assigned", "same")]
        other = await self.deliver(to_deliver)
        return ["other" if id_ in other else word for (id_, _), word in zip(pairs, words, strict=True)]

    async def deliver(self, pairs: Sequence[tuple[str, bytes]]) -> set[str]:
        """Bring assignments to the server that has them, and strike them from the outbox. Those of tickets that had
        another one there already are returned: the first one stands."""
        if not pairs:
            return set()
        store, life_s = await self._servers.assignments(), self.settings.assigned_s
        commands: list[tuple[Any, ...]] = []
        for id_, body in pairs:
            key = self.assignment_beginning + id_
            commands += [("SET", key, body, "EX", life_s, "NX"), ("GET", key)]
        replies = await store.call_all(commands)
        for reply in replies:
            if isinstance(reply, StoreError):
                raise reply
        await self._store.call("HDEL", self.outbox, *(id_ for id_, _ in pairs))
        return {id_ for (id_, body), stands in zip(pairs, replies[1::2], strict=True) if stands != body}

    async def deliver_left(self) -> int:
        """Deliver what somebody has put into the outbox and not delivered. How many that were."""
        if not self._servers.has_other_assignments or not await self._store.call("HLEN", self.outbox):
            return 0
        _, flat = await self._store.call("HSCAN", self.outbox, 0, "COUNT", 1_000)
        pairs = [(id_.decode(), body) for id_, body in paired(flat).items()]
        await self.deliver(pairs)
        return len(pairs)

    # -- every step ---------------------------------------------------------------------------------------

    async def step(self, step: Step) -> list[Any]:
        """For those that may be repeated: what they do twice is as if they had done it once."""
        return await until_known(lambda: self.guard.take(step))


def _of_few_tickets(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Groups that one call can assign; a group is never divided."""
    some: list[Group] = []
    number = 0
    for group in groups:
        some.append(group)
        number += len(group.ticket_ids)
        if number >= MOST_ASSIGNED:
            yield some
            some, number = [], 0
    if some:
        yield some


def chunks(values: Sequence[Any], most: int) -> Iterator[Any]:
    if len(values) <= most:
        if values:
            yield values
        return
    for first in range(0, len(values), most):
        yield values[first : first + most]


def _saw(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
