"""The proof that changes of keys are announced on a connection: the right flags, and a canary that is heard.

A connection that only listens does not notice that it is dead, nor that the server stopped announcing. So a key is
set on this very connection, and the event must come back on it:

    SET canary ──>  <── set          all is well
    PING ──────>    <── PONG

    no answer in time                the network or the server is gone: connect anew
    READONLY                         yesterday's primary: connect anew, which looks for today's
    MOVED                            the slots have moved: look at the cluster again
    PONG, but no event before it     notifications are off: switch them on, or say who must

The server answers in order, so the PONG tells at once what no waiting could.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from kizuna.errors import KizunaError, NotificationsOff, PermissionDenied, Refused
from kizuna.settings import Settings
from kizuna.store.events.feeds import literal_head
from kizuna.store.events.flags import NONE, SETTING, Letters, lacking, with_letters
from kizuna.store.keys import CANARY, key_slot
from kizuna.store.wire import Wire

log = logging.getLogger("kizuna.store")

# What a canary that is heard proves: SET with an end is announced as a change of a string, and as a generic one.
_PROVEN_BY_SONG = frozenset("K$g")

NEEDS_ANOTHER_CONNECTION = frozenset({"READONLY", "MASTERDOWN", "LOADING"})


@dataclass(frozen=True)
class Proof:
    """What one look at the server has shown."""

    missing: Letters = NONE
    """What is needed and not announced."""
    reason: KizunaError | None = None
    """Why not; None if nothing is missing."""
    mended: Letters = NONE
    """What had been missing until we switched it on."""


class Canary:
    """One for each listener. `on_moved` is called when the slot that it sings in is another server's."""

    def __init__(self, settings: Settings, database: int, on_moved: Callable[[], None]) -> None:
        self._events, self._root = settings.events, settings.roots.system
        self._prefix = keyspace_prefix(database)
        self._on_moved = on_moved
        self._reader = secrets.token_hex(6)
        self._singing = asyncio.Lock()
        self.family = self._prefix + literal_head(CANARY.glob(self._root).encode())
        """Begins the channels of all canaries, ours and other processes': nobody else wants to know of them."""
        self._channel = b""
        self._heard: set[bytes] = set()
        self._may_see_flags = True

    def take(self, push: list[Any]) -> None:
        """A message about a canary."""
        channel, kind = push[-2], push[-1]
        if channel == self._channel:
            self._heard.add(kind)

    def forget_connection(self) -> None:
        """The next proof is on another one."""
        self._channel = b""

    async def prove(self, wire: Wire, needed: Letters, slot: int | None, deadline: float) -> Proof:
        """Look what of the needed is not announced, after switching it on where we may.

        Raises a StoreError where another connection is needed.
        """
        async with self._singing:
            proof = await self._prove_once(wire, needed, slot, deadline)
            if proof.reason is None:
                return proof
            # The flags may have been changed between our look at them and the song: both ways.
            second = await self._prove_once(wire, needed, slot, deadline)
            return replace(second, mended=second.mended | (proof.missing - second.missing))

    async def _prove_once(self, wire: Wire, needed: Letters, slot: int | None, deadline: float) -> Proof:
        is_heard = await self._is_heard_at_once(wire, needed, slot, deadline)
        if is_heard:
            return Proof()
        flags, mended = await self._flags(wire, needed, deadline)
        if flags is not None and (missing := lacking(flags, needed)):
            return Proof(missing, notifications_off(wire.server, flags, needed))
        reason = await self._why_unheard(wire, flags, needed, slot, deadline)
        if reason is not None:
            return Proof(needed, reason)
        # Unheard a moment ago and heard now: somebody else has switched it on.
        return Proof(mended=needed if is_heard is False else mended)

    async def _is_heard_at_once(self, wire: Wire, needed: Letters, slot: int | None, deadline: float) -> bool | None:
        """Without a look at the flags, where these could tell no more, or may not be seen: the server keeps a log of
        what it has refused. None if that is no proof."""
        if not needed <= _PROVEN_BY_SONG and self._may_see_flags:
            return None
        try:
            return await self._is_heard(wire, needed, slot, deadline)
        except Refused as error:
            if error.code in NEEDS_ANOTHER_CONNECTION:
                raise
            return None

    async def _flags(self, wire: Wire, needed: Letters, deadline: float) -> tuple[str | None, Letters]:
        """The server's flags, None if we may not see them; and what was lacking until we mended it."""
        try:
            reply = await wire.send(("CONFIG", "GET", SETTING), deadline)
            flags: str = reply[SETTING.encode()].decode()
        except (Refused, KeyError) as error:
            self._may_see_flags = False
            log.debug("flags not readable", extra={"server": wire.server, "error": str(error)})
            return None, NONE
        self._may_see_flags = True
        missing = lacking(flags, needed)
        if not missing:
            return flags, NONE
        wanted = with_letters(flags, needed)
        try:
            # Somebody else may do the same in between and undo ours; the next round puts it right.
            await wire.send(("CONFIG", "SET", SETTING, wanted), deadline)
        except Refused as error:
            log.debug("flags not settable", extra={"server": wire.server, "error": str(error)})
            return flags, NONE
        log.info("notifications switched on", extra={"server": wire.server, "was": flags, "now": wanted})
        return wanted, missing

    async def _why_unheard(
        self, wire: Wire, flags: str | None, needed: Letters, slot: int | None, deadline: float
    ) -> KizunaError | None:
        try:
            heard = await self._is_heard(wire, needed, slot, deadline)
        except PermissionDenied as error:
            # Where the flags can be read, they are proof enough.
            return error if flags is None else None
        except Refused as error:
            if error.code in NEEDS_ANOTHER_CONNECTION:
                raise
            if error.code in ("MOVED", "ASK"):
                self._on_moved()
            # Full, or not responsible: it answers, and that is all that can be proven now.
            log.debug("canary refused", extra={"server": wire.server, "error": str(error)})
            return None
        return None if heard else notifications_off(wire.server, flags, needed)

    async def _is_heard(self, wire: Wire, needed: Letters, slot: int | None, deadline: float) -> bool:
        key = CANARY.build(self._root, place=_tag_in(slot), reader=self._reader)
        channel = self._prefix + key.encode()
        if channel != self._channel:
            await wire.send(("SUBSCRIBE", channel), deadline)
            self._channel = channel
        self._heard.clear()
        lives_ms = int((self._events.canary_every_s + self._events.canary_timeout_s) * 2000)
        song = wire.send(("SET", key, "", "PX", lives_ms), deadline)
        await asyncio.gather(song, wire.send(("PING",), deadline))
        # SET with an end is announced twice, as a change of a string and as a generic one.
        return {b"set", b"expire"} <= self._heard if "g" in needed else b"set" in self._heard


def keyspace_prefix(database: int) -> bytes:
    return b"__keyspace@%d__:" % database


def notifications_off(server: str, flags: str | None, needed: Letters) -> NotificationsOff:
    known = "" if flags is None else f" ({SETTING} is {flags!r})"
    command = f"CONFIG SET {SETTING} {with_letters(flags or '', needed)}"
    return NotificationsOff(
        f"changes of keys are not announced{known}",
        server,
        f"run `{command}` there, and put it into the server's configuration, or let this user do so (+config)",
    )


@lru_cache
def _tag_in(slot: int | None) -> str:
    """A tag whose keys are in this slot: the first number that is, found in some milliseconds."""
    if slot is None:
        return "all"
    return next(tag for tag in map(str, itertools.count()) if key_slot(tag) == slot)
