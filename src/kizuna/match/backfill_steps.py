"""The steps on backfills behind one prefix, by the rules of Open Match.

    created ──acknowledged in time, again and again──> … ──not acknowledged for long──> expired ──> forgotten
       └──a match brings tickets──> they wait, pending ──acknowledged──> assigned

A backfill has a generation that counts its changes. A match that was made for an older one is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kizuna.errors import BackfillExpired, BackfillMissing, IllegalName, Undecodable
from kizuna.match import keys
from kizuna.match.backfills import Backfill, StoredBackfill
from kizuna.match.openmatch import internal_pb2
from kizuna.match.scripts import script
from kizuna.match.shard import chunks
from kizuna.store.repeating import until_known

if TYPE_CHECKING:
    from kizuna.match.matches import Match
    from kizuna.match.openmatch import messages_pb2
    from kizuna.match.servers import Servers
    from kizuna.match.shard import Shard

_write_backfill = script("write_backfill")
_acknowledge_backfill = script("acknowledge_backfill")
_delete_backfill = script("delete_backfill")
_propose_matches = script("propose_matches")

# How much of the time for which a ticket is pending a game server has to acknowledge it.
_EXPIRES_AFTER = 0.8
# What has expired is stored on for a while: who still asks for it is to hear that it expired.
_STORED_FOR = 10
# In one call of a script.
_MOST_MATCHES = 100
# To a script, 0 stands for a backfill that is new.
_NO_GENERATION = -1


class BackfillSteps:
    def __init__(self, servers: Servers, shard: Shard) -> None:
        self._store, self._shard = servers.main, shard
        pending_s = servers.settings.pending_s
        self._expires_ms = round(pending_s * _EXPIRES_AFTER * 1000)
        self._stored_ms = pending_s * _STORED_FOR * 1000
        self._pending_s = pending_s
        self._all = keys.ALL_BACKFILLS.build(shard.prefix)
        self._acks = keys.BACKFILL_ACKS.build(shard.prefix)

    async def read(self, id_: str) -> StoredBackfill:
        # First whether it is one: what else is stored under that name is not ours to look at.
        key = self._shard.body(id_)
        if not await self._store.call("HEXISTS", self._all, id_) or (body := await self._store.get(key)) is None:
            raise BackfillMissing(id_)
        return StoredBackfill.decode(body)

    async def create(self, backfill: messages_pb2.Backfill) -> None:
        await self._write(backfill, expected=0, released=())

    async def update(self, id_: str, wanted: messages_pb2.Backfill) -> messages_pb2.Backfill:
        """Take over what the other one says; the next generation. Its tickets go back."""
        while True:
            stored = await self.read(id_)
            changed = stored.backfill.message
            for field in ("search_fields", "extensions", "persistent_field"):
                changed.ClearField(field)
            if wanted.HasField("search_fields"):
                changed.search_fields.CopyFrom(wanted.search_fields)
            _copy_map(wanted.extensions, changed.extensions)
            _copy_map(wanted.persistent_field, changed.persistent_field)
            expected = changed.generation
            changed.generation += 1
            if await self._write(changed, expected, stored.ticket_ids):
                return changed

    async def _write(self, backfill: messages_pb2.Backfill, expected: int, released: Sequence[str]) -> bool:
        told: dict[str, Any] = {
            "body": self._shard.body(backfill.id),
            "root": self._shard.prefix,
            "id": backfill.id,
            "stored": internal_pb2.BackfillInternal(backfill=backfill).SerializeToString(),
            "generation": backfill.generation,
            "expected": expected,
            "released": " ".join(released),
            "expires_ms": self._expires_ms,
            "backfill_ms": self._stored_ms,
        }
        word, *_ = await self._shard.step(lambda token: _write_backfill(self._store, token=token, **told))
        if word == b"missing":
            raise BackfillMissing(backfill.id)
        if word == b"expired":
            raise BackfillExpired("update", backfill.id)
        return bool(word == b"written")

    async def acknowledge(self, id_: str) -> StoredBackfill:
        told: dict[str, Any] = {
            "body": self._shard.body(id_),
            "root": self._shard.prefix,
            "id": id_,
            "expires_ms": self._expires_ms,
            "backfill_ms": self._stored_ms,
        }
        word, *stored = await until_known(lambda: _acknowledge_backfill(self._store, **told))
        if word == b"missing":
            raise BackfillMissing(id_)
        if word == b"expired":
            raise BackfillExpired("acknowledge", id_)
        return StoredBackfill.decode(stored[0])

    async def delete(self, id_: str, *, with_tickets: bool = True) -> None:
        """Its tickets go back, unless whoever deletes it sees to them."""
        key = self._shard.body(id_)
        if not await self._store.call("HEXISTS", self._all, id_):
            return
        stored = _decoded(await self._store.get(key)) if with_tickets else None
        told: dict[str, Any] = {
            "body": key,
            "root": self._shard.prefix,
            "id": id_,
            "released": " ".join(stored.ticket_ids if stored else []),
        }
        await self._shard.step(lambda token: _delete_backfill(self._store, token=token, **told))

    async def has_any(self) -> bool:
        return bool(await self._store.call("EXISTS", self._acks))

    async def alive(self) -> list[StoredBackfill]:
        """Those that were acknowledged lately. What was forgotten meanwhile is struck from the index."""
        now_s = await self._store.time_s()
        oldest_ns = round(now_s * 1e9) - self._expires_ms * 1_000_000
        ids = [id_.decode() for id_ in await self._store.call("ZRANGE", self._acks, oldest_ns, "+inf", "BYSCORE")]
        bodies = await self._shard.read_all(ids)
        await self._forget(now_s)
        return [stored for body in bodies if (stored := _decoded(body)) is not None]

    async def _forget(self, now_s: float) -> None:
        before_ns = round(now_s * 1e9) - self._stored_ms * 1_000_000
        gone = await self._store.call("ZRANGE", self._acks, "-inf", before_ns, "BYSCORE", "LIMIT", 0, 1_000)
        if gone:
            await self._store.call_all([("HDEL", self._all, *gone), ("ZREM", self._acks, *gone)])

    # -- proposals ----------------------------------------------------------------------------------------

    async def propose(self, matches: Sequence[Match], *, are_ours: bool = False) -> list[bool]:
        """Mark the tickets of each match as pending, and write its backfill: all of a match, or nothing of it. They
        must not be pending, unless it was us who took them."""
        told: dict[str, Any] = {
            "tickets": self._shard.all_tickets,
            "root": self._shard.prefix,
            "pending_s": self._pending_s,
            "are_ours": int(are_ours),
            "backfill_ms": self._stored_ms,
        }
        outcomes: list[bool] = []
        for some in chunks(matches, _MOST_MATCHES):
            rows = [await self._draft(match) for match in some]
            words = await self._shard.guard.take(
                lambda token, rows=rows: _propose_matches.rows(self._store, rows, token=token, **told)  # type: ignore[misc]
            )
            outcomes += [word == b"proposed" for word in words]
        return outcomes

    async def _draft(self, match: Match) -> dict[str, str | int | bytes]:
        """As the script wants it; the match gets its backfill as it will be stored."""
        if match.backfill is None:
            return _row(match)
        wanted = match.backfill.message
        if not wanted.id:
            return await self._draft_new(match, wanted)
        try:
            stored = await self.read(wanted.id)
        except (BackfillMissing, IllegalName, Undecodable):
            return _row(match, wanted.id, _NO_GENERATION)
        message = internal_pb2.BackfillInternal(ticket_ids=[*stored.ticket_ids, *match.ticket_ids])
        message.backfill.CopyFrom(wanted)
        message.backfill.create_time.CopyFrom(stored.message.backfill.create_time)
        message.backfill.generation = wanted.generation + 1
        return self._row_with(match, message, wanted.generation or _NO_GENERATION)

    async def _draft_new(self, match: Match, wanted: messages_pb2.Backfill) -> dict[str, str | int | bytes]:
        message = internal_pb2.BackfillInternal(ticket_ids=match.ticket_ids)
        message.backfill.CopyFrom(wanted)
        message.backfill.id = self._shard.new_id()
        message.backfill.create_time.FromNanoseconds(round(await self._store.time_s() * 1e9))
        message.backfill.generation = 1
        return self._row_with(match, message, 0)

    def _row_with(
        self, match: Match, message: internal_pb2.BackfillInternal, generation: int
    ) -> dict[str, str | int | bytes]:
        match.backfill = Backfill(message.backfill)
        return _row(match, match.backfill.id, generation, match.backfill.generation, message.SerializeToString())


def _row(
    match: Match, backfill: str = "", generation: int = 0, next_generation: int = 0, stored: bytes = b""
) -> dict[str, str | int | bytes]:
    return {
        "ids": " ".join(match.ticket_ids),
        "backfill": backfill,
        "generation": generation,
        "next_generation": next_generation,
        "stored": stored,
    }


def _decoded(body: bytes | None) -> StoredBackfill | None:
    """None for what somebody has put there that is none: nobody can join it, and it disturbs nobody."""
    try:
        return None if body is None else StoredBackfill.decode(body)
    except Undecodable:
        return None


def _copy_map(source: Any, target: Any) -> None:
    for name, value in source.items():
        target[name].CopyFrom(value)
