"""The key families of matchmaking, behind the prefix that is set, which is empty unless set otherwise.

The first three groups are a protocol: minimatch has the first and the lock, Open Match the backfills. What we need
beside it has keys of its own, that nobody else has to know.
"""

from __future__ import annotations

from functools import partial

from kizuna.store.keys import Key

_Key = partial(Key, joined_by="")

# tickets

ALL_TICKETS = _Key("allTickets", "set", "removed", "the tickets that wait, or are being matched")
PROPOSED_TICKETS = _Key(
    "proposed_ticket_ids", "zset", "removed", "the tickets that are being matched, and since when, in whole seconds"
)
ASSIGNMENT = _Key("assign:<ticket>", "string", "expires", "where the player of a ticket is to play")

# the lock of whoever picks tickets in several steps: two of the three keys have it

LOCK_0 = _Key("fetchTicketsLock", "string", "expires", "who picks tickets now", before_root="rueidislock:0:")
LOCK_1 = _Key("fetchTicketsLock", "string", "expires", "the same", before_root="rueidislock:1:")
LOCK_2 = _Key("fetchTicketsLock", "string", "expires", "the same", before_root="rueidislock:2:")
PLAIN_LOCK = _Key("fetchTicketsLock", "string", "expires", "the same, of those who know the lock as one key")

# backfills

ALL_BACKFILLS = _Key("allBackfills", "hash", "removed", "the backfills that wait for players, and their generations")
BACKFILL_ACKS = _Key(
    "backfill_last_ack_time", "zset", "removed", "when each backfill was last acknowledged, in nanoseconds"
)

# what we need beside

HELD = _Key("kizuna:held:<backend>:<batch>", "list", "expires", "the tickets that a backend has taken, should it die")
OUTBOX = _Key("kizuna:outbox", "hash", "removed", "assignments on their way to the server that has them")
BACKENDS = _Key("kizuna:backends", "hash", "expires", "what each backend found when it last looked")
ENDED = _Key("kizuna:ended", "channel", "never", "tells the id of a ticket that was deleted")

# the body of a ticket or backfill has no name but its id

BODY = _Key(
    "<id>",
    "string",
    "expires",
    "a ticket, or a backfill",
    apart_from=(ALL_TICKETS, PROPOSED_TICKETS, PLAIN_LOCK, ALL_BACKFILLS, BACKFILL_ACKS),
)
