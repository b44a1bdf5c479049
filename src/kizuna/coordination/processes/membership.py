"""One process as a member of the fleet: how it takes its name, keeps it, and gives it up.

    registered ── beats every second ──> left
        │  ^                                      "dead": somebody else found us silent for too long, and gave back
        v  │ registered anew, and told            what we held
       dead

Beats are sent from the background's thread; whatever happens in the program's own loop does not delay them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from kizuna._version import __version__
from kizuna.clock import milliseconds
from kizuna.coordination.fields import texts_of
from kizuna.coordination.keys import (
    PROCESS_HEARTBEAT,
    PROCESS_INFO,
    PROCESSES_ACTIVE,
    PROCESSES_DEADLINES,
    PROCESSES_ZOMBIES,
)
from kizuna.errors import KizunaError, OutcomeUnknown, ProcessTaken, Refused, Unreachable
from kizuna.service import Running, running
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.coordination.background import Background, Repetition
    from kizuna.coordination.processes.processes import Processes
    from kizuna.settings import Settings
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

log = logging.getLogger("kizuna.coordination")

SILENT_INTERVALS = 3
"""A process that was not heard of for so many of its intervals is overdue."""

# A server that is away must not keep a program from ending.
_GOODBYE_WITHIN_S = 1.0

# What only the scripts write.
_OURS = frozenset({"token", "beats", "started_at", "heard_at", "client", "client_name", "died_at", "given_back_at"})

_register_process = Script.load(__package__, "register_process")
_beat = Script.load(__package__, "beat")
_leave_fleet = Script.load(__package__, "leave_fleet")


class Fleet(NamedTuple):
    """The keys that a process shares with those below the same root."""

    active: str
    zombies: str
    deadlines: str

    @classmethod
    def below(cls, root: str) -> Fleet:
        return cls(PROCESSES_ACTIVE.build(root), PROCESSES_ZOMBIES.build(root), PROCESSES_DEADLINES.build(root))


class Member:
    """A name in the fleet that is ours, or to be. `beat` may run in another thread than all else."""

    def __init__(self, process: str, roots: Roots, settings: Settings, facts: Mapping[str, str]) -> None:
        root = roots.of(process)
        self.process, self.facts = process, dict(facts)
        self.handles = 0
        self.on_declared_dead: Callable[[], None] = _nobody
        self.replaced = False
        """Somebody else has taken the name meanwhile; we no longer try to have it."""
        self._info = PROCESS_INFO.build(root, process=process)
        self._heartbeat = PROCESS_HEARTBEAT.build(root, process=process)
        self._fleet = Fleet.below(root)
        self._token = secrets.token_hex(8)
        self._every_s = settings.processes.heartbeat_every_s
        self._kept_s = kept_s(settings)
        self._leaving = False
        self._was_declared_dead = False
        self._beating: Repetition | None = None

    async def register(self, store: Store) -> tuple[str, int]:
        """The word of the script; and with "taken", how often the other one was heard of."""
        facts = self.facts | {"client_name": f"{store.settings.store.client_name}:{os.getpid()}"}
        word, *beats = await _register_process(
            store,
            zombies=self._fleet.zombies,
            facts=msgspec.json.encode(facts),
            **await self._beat_arguments(store),
        )
        return word.decode(), beats[0] if beats else 0

    async def start_beating(self, background: Background) -> None:
        name = f"heartbeat of {self.process}"
        self._beating = await background.repeat(self.beat, every_s=self._every_s, name=name)

    async def beat(self, store: Store) -> None:
        """One heartbeat; by a name that was lost, the attempt to have it again."""
        if self.replaced or self._leaving:
            return
        try:
            outcome = await self._beat(store)
        except (OutcomeUnknown, Unreachable):
            # A beat that comes twice is as good as one, and the next would be an interval later.
            outcome = await self._beat(store)
        if outcome == "taken":
            self.replaced = True
            log.error("another process has our name", extra={"member": self.process})
        elif outcome != "alive" and not self._leaving:
            await self._register_again(store, outcome)

    async def update(self, store: Store, facts: Mapping[str, str]) -> None:
        self.facts = {**self.facts, **facts}
        if facts:
            written = store.call("HSET", self._info, *(text for fact in facts.items() for text in fact))
            # Should the server have forgotten us, this must not stay there for ever.
            await asyncio.gather(written, store.call("EXPIRE", self._info, self._kept_s))

    async def leave(self, store: Store) -> None:
        self.stop_beating()
        names = {"info": self._info, "heartbeat": self._heartbeat, **self._fleet._asdict()}
        try:
            await _leave_fleet(store, process=self.process, token=self._token, timeout_s=_GOODBYE_WITHIN_S, **names)
        except KizunaError as error:
            # Those who are left will notice: to them it looks as if we had died.
            log.warning("left without saying goodbye", extra={"member": self.process, "error": str(error)})

    def stop_beating(self) -> None:
        self._leaving = True
        if self._beating is not None:
            self._beating.stop()

    # -- inside -----------------------------------------------------------------------------------------

    async def _beat(self, store: Store) -> str:
        outcome = await _beat(store, **await self._beat_arguments(store))
        return str(outcome.decode())

    async def _beat_arguments(self, store: Store) -> dict[str, Any]:
        return {
            "info": self._info,
            "heartbeat": self._heartbeat,
            "active": self._fleet.active,
            "deadlines": self._fleet.deadlines,
            "process": self.process,
            "token": self._token,
            "client": await self._client(store),
            "silence_ms": silence_ms(self._every_s),
            "kept_s": self._kept_s,
        }

    async def _client(self, store: Store) -> int:
        """The number of the connection that beats: while it stands, we are at most busy. Another after a reconnect."""
        try:
            return int(await store.call_beside(self._info, "CLIENT", "ID"))
        except Refused:
            return 0

    async def _register_again(self, store: Store, why: str) -> None:
        if why == "dead" and not self._was_declared_dead:
            self._was_declared_dead = True
            log.warning("declared dead, although alive", extra={"member": self.process})
            self.on_declared_dead()
        outcome, _ = await self.register(store)
        if outcome == "registered":
            self._was_declared_dead = False
            log.warning("registered again", extra={"member": self.process, "was": why})
        # Otherwise it is tried again at the next beat: what we held is being given back.


class Registration:
    """A process's place in the fleet, until `leave`."""

    def __init__(self, member: Member, store: Store, on_left: Callable[[Member], bool]) -> None:
        self.process = member.process
        self._member, self._store, self._on_left = member, store, on_left
        self._left = False

    async def update(self, info: Mapping[str, object]) -> None:
        """Change what the process says about itself; the rest stays."""
        await self._member.update(self._store, facts_of(info))

    async def leave(self) -> None:
        """Others see us leave now. Gives nothing back; harmless when repeated."""
        if not self._left:
            self._left = True
            if self._on_left(self._member):
                await self._member.leave(self._store)

    def check(self) -> None:
        """Raise ProcessTaken if another process has the name now."""
        if self._member.replaced:
            raise ProcessTaken(self.process)


class Membership:
    """What `membership` returns: a service, to be run with others, or by itself for the length of an `async with`."""

    def __init__(self, processes: Processes, kind: str, info: Mapping[str, object], id_: str | None) -> None:
        self._processes, self._kind, self._info, self._id = processes, kind, info, id_
        self._running: Running
        self._registration: Registration

    async def __aenter__(self) -> Self:
        self._running = running(self)
        await self._running.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._running.__aexit__(kind, error, trace)

    async def run(self, started: asyncio.Event) -> None:
        """ProcessTaken, also later, if another process has our name."""
        registration = await self._processes.join(self._info, self._id, kind=self._kind)
        try:
            self._registration = registration
            started.set()
            while True:
                await asyncio.sleep(self._processes.look_every_s)
                registration.check()
        finally:
            await registration.leave()

    async def update(self, info: Mapping[str, object]) -> None:
        """Once it has started: change what the process says about itself; the rest stays."""
        await self._registration.update(info)


def facts_of(info: Mapping[str, object]) -> dict[str, str]:
    return texts_of(info, ours=_OURS)


def own_facts(kind: str) -> dict[str, str]:
    """What every process says about itself, without being asked."""
    return {"kind": kind, "host": socket.gethostname(), "pid": str(os.getpid()), "version": __version__}


def silence_ms(every_s: float) -> int:
    return milliseconds(every_s * SILENT_INTERVALS)


def kept_s(settings: Settings) -> int:
    """Not less than it takes to find that somebody is dead."""
    processes = settings.processes
    return max(settings.kept.heartbeat_s, round(processes.busy_s + processes.heartbeat_every_s * 2 * SILENT_INTERVALS))


def _nobody() -> None:
    pass
