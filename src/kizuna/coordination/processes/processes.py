"""Who is there: every process of the fleet, alive, silent or dead.

    async with running(k.processes.membership(kind="web")):
        …                                          # others see us, and we see when one of them dies
    k.processes.on_death(give_back)                # whatever the dead one held

A process is heard of every second. Silent for three, it is dead if its connection to the server is gone, too; while
that stands, it may only be busy, and is given `processes.busy_s`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct

from kizuna.coordination.keys import PROCESS_HEARTBEAT, PROCESS_INFO
from kizuna.coordination.processes.janitor import Hook, Janitor
from kizuna.coordination.processes.membership import (
    Fleet,
    Member,
    Membership,
    Registration,
    facts_of,
    own_facts,
)
from kizuna.coordination.roots import roots_of
from kizuna.errors import KizunaError, ProcessTaken, ProcessUnknown
from kizuna.metrics import Measure
from kizuna.store.scanning import members
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.coordination.background import Background
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.coordination")

State = Literal["alive", "silent", "zombie", "dead", "unknown"]

_KNOWN = frozenset({"kind", "host", "pid", "version", "started_at", "heard_at", "beats", "died_at", "given_back_at"})
_NOT_SHOWN = frozenset({"token", "client", "client_name"})

_describe_processes = Script.load(__package__, "describe_processes")


class Process(Struct, frozen=True, kw_only=True):
    """What is known about a process. Times are seconds since the epoch, by the server's clock; None: not known."""

    id: str
    state: State
    """silent: not heard of in time, and not declared dead yet. dead: no longer listed among the zombies."""
    kind: str = ""
    host: str = ""
    pid: int | None = None
    version: str = ""
    started_at: float | None = None
    heard_at: float | None = None
    silent_s: float | None = None
    beats: int | None = None
    died_at: float | None = None
    given_back_at: float | None = None
    """When all it had held was given back."""
    info: dict[str, str] = {}
    """What it says about itself besides."""


class Processes:
    """`k.processes`."""

    def __init__(self, store: Store, background: Background, process: str) -> None:
        self.process = process
        self.declared_dead = 0
        """How often this process was declared dead while it was alive."""
        self._store, self._background = store, background
        self._roots = roots_of(store)
        self._hooks: list[Hook] = []
        self._callbacks: list[Callable[[str], object]] = []
        self._members: dict[str, Member] = {}
        self._joining = asyncio.Lock()
        self._lookers = 0
        self._looking: asyncio.Task[None]
        self._janitor = Janitor(store, self._roots, process, self._hooks)

    # -- being a member ---------------------------------------------------------------------------------

    def membership(
        self,
        kind: str = "process",
        info: Mapping[str, object] | None = None,
        id: str | None = None,  # noqa: A002
    ) -> Membership:
        """A service: registered and heard of while it runs, gone when it ends; it also looks after the others."""
        return Membership(self, kind, info or {}, id)

    async def register(
        self,
        info: Mapping[str, object] | None = None,
        id: str | None = None,  # noqa: A002
        *,
        kind: str = "process",
    ) -> Registration:
        """Be heard of from now on, by our own name or another one. `info` is for others: text, or what JSON has.

        If a process of that name has died and is not yet known to be dead, this waits until it is, and until what it
        held is given back. ProcessTaken if it is alive. A name that is ours already is shared: its last `leave` counts.
        """
        return Registration(await self._member(info, id, kind), self._store, self._let_go)

    async def join(
        self,
        info: Mapping[str, object] | None = None,
        id: str | None = None,  # noqa: A002
        *,
        kind: str = "process",
    ) -> Registration:
        """Like `register`; and look after the others, too, until we leave."""
        member = await self._member(info, id, kind)
        if self._lookers == 0:
            self._looking = asyncio.create_task(self._look_on(), name="kizuna looks for the dead")
        self._lookers += 1
        return Registration(member, self._store, self._look_away)

    def on_death(self, hook: Hook) -> None:
        """Have this called with the name of each process that died, in one process of those that are left.

        If it fails, it is called again, by whoever looks next; so it must not matter how often it is called.
        """
        self._hooks.append(hook)

    def on_declared_dead(self, callback: Callable[[str], object]) -> None:
        """Have this called with our name when we were declared dead, though alive: what we held is no longer ours."""
        self._callbacks.append(callback)

    @property
    def look_every_s(self) -> float:
        return self._janitor.look_every_s

    async def look(self) -> list[str]:
        """Look for the dead once, as every membership does twice per interval. Returns those declared dead by us."""
        return await self._janitor.look()

    # -- seeing the others ------------------------------------------------------------------------------

    async def active(self) -> list[Process]:
        """All that are at work, by name; those too that are silent, and not yet known to be dead."""
        return await self._listed("active")

    async def zombies(self) -> list[Process]:
        """All that died without saying goodbye, until they are forgotten (`kept.heartbeat_s`) or buried."""
        return await self._listed("zombies")

    async def info(self, process: str) -> Process:
        """ProcessUnknown if there is none of that name, nor was of late."""
        (found,) = await self._describe(self._roots.of(process), [process])
        if found.state == "unknown":
            raise ProcessUnknown(process)
        return found

    async def is_alive(self, process: str) -> bool:
        """Whether it is at work, as far as anybody knows."""
        (found,) = await self._describe(self._roots.of(process), [process])
        return found.state in ("alive", "silent")

    async def bury(self, process: str) -> None:
        """Take a zombie off the list, once all it held is given back, which is done now if nobody else does it.
        ProcessUnknown if it is not among the zombies."""
        if (await self.info(process)).state != "zombie":
            raise ProcessUnknown(process)
        while await self._janitor.drop(process, told=True) == "unburied":
            if not await self._janitor.bury(process):
                await asyncio.sleep(self._janitor.look_every_s)

    def measures(self) -> Iterator[Measure]:
        """For /metrics: as of the last look of this process."""
        yield from self._janitor.measures()
        told = "How often this process was declared dead while it was alive."
        yield Measure("counter", "kizuna_process_declared_dead_total", told, self.declared_dead)

    # -- inside -----------------------------------------------------------------------------------------

    async def _member(self, info: Mapping[str, object] | None, id_: str | None, kind: str) -> Member:
        process = self.process if id_ is None else id_
        facts = facts_of(info or {})
        async with self._joining:
            member = self._members.get(process)
            if member is None:
                member = await self._join(process, own_facts(kind) | facts)
            else:
                await member.update(self._store, facts)
            member.handles += 1
        return member

    async def _join(self, process: str, facts: Mapping[str, str]) -> Member:
        member = Member(process, self._roots, self._store.settings, facts)
        loop = asyncio.get_running_loop()

        def tell() -> None:
            # Called in the thread of the background.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._was_declared_dead, process)

        member.on_declared_dead = tell
        try:
            await self._take_name(member)
            await member.start_beating(self._background)
        except BaseException:
            # Also what was sent just before a cancellation must not leave anybody on the list.
            await member.leave(self._store)
            raise
        self._members[process] = member
        return member

    async def _take_name(self, member: Member) -> None:
        heard: int | None = None
        while True:
            outcome, beats = await member.register(self._store)
            if outcome == "registered":
                return
            if outcome == "taken":
                # Heard of since we asked first: it is alive.
                if beats < 0 or heard not in (None, beats):
                    raise ProcessTaken(member.process)
                heard = beats
            else:
                await self._janitor.bury(member.process)
            await self._janitor.look()
            await asyncio.sleep(self._janitor.look_every_s)

    async def _look_on(self) -> None:
        """Once for all parts of the program, as long as one of them is a member."""
        while True:
            try:
                await self.look()
            except KizunaError as error:
                log.warning("could not look for the dead", extra={"error": str(error)})
            await asyncio.sleep(self.look_every_s)

    def _look_away(self, member: Member) -> bool:
        self._lookers -= 1
        if self._lookers == 0:
            self._looking.cancel()
        return self._let_go(member)

    def _let_go(self, member: Member) -> bool:
        """Whether that was the last one who holds it."""
        member.handles -= 1
        if member.handles == 0:
            del self._members[member.process]
        return member.handles == 0

    def _was_declared_dead(self, process: str) -> None:
        self.declared_dead += 1
        for callback in self._callbacks:
            try:
                callback(process)
            except Exception:
                log.exception("callback failed", extra={"member": process})

    async def _listed(self, which: Literal["active", "zombies"]) -> list[Process]:
        found: dict[str, Process] = {}
        for root in self._roots.all:
            async for batch in members(self._store, getattr(Fleet.below(root), which)):
                names = [name for name in batch if PROCESS_INFO.takes(process=name)]
                found |= {process.id: process for process in await self._describe(root, names)}
        # Those that have changed sides since the set was read are in the other list.
        states = ("zombie",) if which == "zombies" else ("alive", "silent")
        return sorted((process for process in found.values() if process.state in states), key=lambda one: one.id)

    async def _describe(self, root: str, processes: list[str]) -> list[Process]:
        rows = [
            {
                "info": PROCESS_INFO.build(root, process=process),
                "heartbeat": PROCESS_HEARTBEAT.build(root, process=process),
                "process": process,
            }
            for process in processes
        ]
        described = await _describe_processes.rows(self._store, rows, **Fleet.below(root)._asdict())
        return [_process(name, *facts) for name, facts in zip(processes, described, strict=True)]


def _process(name: str, state: bytes, silent_ms: int, flat: list[bytes]) -> Process:
    texts = [text.decode(errors="replace") for text in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    known: dict[str, Any] = {
        "kind": fields.get("kind", ""),
        "host": fields.get("host", ""),
        "version": fields.get("version", ""),
        "pid": _whole(fields.get("pid")),
        "beats": _whole(fields.get("beats")),
        "silent_s": None if silent_ms < 0 else silent_ms / 1000,
        **{time: _seconds(fields.get(time)) for time in ("started_at", "heard_at", "died_at", "given_back_at")},
    }
    own = {field: value for field, value in fields.items() if field not in _KNOWN | _NOT_SHOWN}
    return Process(id=name, state=cast("State", state.decode()), info=own, **known)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _seconds(text: str | None) -> float | None:
    whole = _whole(text)
    return None if whole is None else whole / 1000
