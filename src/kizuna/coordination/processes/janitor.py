"""Finds the dead, and gives back what they held.

    active ── silent for three intervals ──> overdue ── connection gone, or silent for too long ──> zombie
    zombie ── all hooks have run ──> buried: listed until it is forgotten

Every member of the fleet looks, and all may look at once: a process is declared dead by one of them, and buried by one
at a time. Who buries and dies of it is followed by the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kizuna.clock import milliseconds
from kizuna.coordination.keys import PROCESS_BURIAL, PROCESS_HEARTBEAT, PROCESS_INFO, PROCESSES_LOOKED
from kizuna.coordination.processes.membership import Fleet, kept_s, silence_ms
from kizuna.errors import KizunaError, Refused
from kizuna.metrics import Measure
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.settings import Settings
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

log = logging.getLogger("kizuna.coordination")

Hook = Callable[[str], Awaitable[object]]

# Those who are found in one look; more are found in the next.
_AT_MOST = 1000
# A look at every name that is listed, and not only at those that are overdue, in each of so many looks.
_SWEEP_EVERY = 3
_SWEEP_BATCH = 100
# A hook that takes longer is given up and tried again; and who claims a burial and dies is waited for as long.
BURIAL_S = 10.0

_find_silent = Script.load(__package__, "find_silent")
_declare_dead = Script.load(__package__, "declare_dead")
_finish_burial = Script.load(__package__, "finish_burial")
_drop_zombie = Script.load(__package__, "drop_zombie")


class _Overdue(NamedTuple):
    process: str
    deadline: bytes
    now_ms: int


class _Counts(NamedTuple):
    active: int
    zombies: int


class Janitor:
    def __init__(self, store: Store, roots: Roots, process: str, hooks: Sequence[Hook]) -> None:
        self.deaths = 0
        """How many were declared dead by this one."""
        self._store, self._roots, self._process, self._hooks = store, roots, process, hooks
        self._settings: Settings = store.settings
        self._every_s = store.settings.processes.heartbeat_every_s
        self._counts: dict[str, _Counts] = {}
        self._looks = 0
        self._cursors: dict[str, bytes] = {}

    @property
    def look_every_s(self) -> float:
        return self._every_s / 2

    async def look(self) -> list[str]:
        """Look once: declare dead who is, and give back what they held. Returns those that were declared dead."""
        self._looks += 1
        dead: list[str] = []
        for root in self._roots.all:
            dead += await self._look_below(root)
        return dead

    async def bury(self, process: str) -> bool:
        """Run all hooks for a dead process, unless somebody does so or has done so. Whether they were run, by us and
        without a failure."""
        root = self._roots.of(process)
        info = PROCESS_INFO.build(root, process=process)
        burial = PROCESS_BURIAL.build(root, process=process)
        finish = partial(_finish_burial, self._store, info=info, burial=burial, claim=self._process)
        try:
            claimed = await self._store.call("SET", burial, self._process, "NX", "PX", milliseconds(BURIAL_S * 2))
            if not claimed:
                return False
            # After the claim: whoever had it before us may just have finished.
            died_at, given_back_at = await self._store.call("HMGET", info, "died_at", "given_back_at")
            due = died_at is not None and given_back_at is None
            done = due and await self._run_hooks(process)
            await finish(success=int(done))
        except asyncio.CancelledError:
            # Others take over at once, and need not wait until the claim of one who has left ends.
            with suppress(KizunaError):
                await finish(success=0)
            raise
        if done:
            log.info("given back what a dead process held", extra={"member": process})
        return done

    async def drop(self, process: str, *, told: bool) -> str:
        """Take it off the list of zombies, if it may go. The word of the script."""
        root = self._roots.of(process)
        outcome = await _drop_zombie(
            self._store,
            info=PROCESS_INFO.build(root, process=process),
            zombies=Fleet.below(root).zombies,
            process=process,
            told=int(told),
        )
        return str(outcome.decode())

    def measures(self) -> Iterator[Measure]:
        """As of the last look."""
        active = sum(counts.active for counts in self._counts.values())
        zombies = sum(counts.zombies for counts in self._counts.values())
        yield Measure("gauge", "kizuna_processes_active", "Processes at work.", active)
        yield Measure("gauge", "kizuna_processes_zombies", "Processes that died without saying goodbye.", zombies)
        yield Measure("counter", "kizuna_process_deaths_total", "Processes declared dead by this one.", self.deaths)

    # -- inside -----------------------------------------------------------------------------------------

    async def _look_below(self, root: str) -> list[str]:
        found = await self._find_overdue(root)
        dead = [one.process for one in found if not await self._is_busy(root, one) and await self._declare(root, one)]
        if self._looks % _SWEEP_EVERY == 0:
            dead += await self._sweep_active(root)
            await self._sweep_zombies(root)
        for process in dead:
            await self.bury(process)
        return dead

    async def _find_overdue(self, root: str) -> list[_Overdue]:
        now_ms, active, zombies, overdue = await _find_silent(
            self._store,
            looked=PROCESSES_LOOKED.build(root),
            first=int(self._looks == 1),
            gap_ms=milliseconds(self._every_s),
            given_up_ms=milliseconds(self._settings.store.timeout_s),
            # Who has to reconnect may wait so long before the last attempt, and is heard of right after it.
            mercy_ms=silence_ms(self._every_s) + milliseconds(self._settings.store.reconnect_longest_s),
            at_most=_AT_MOST,
            **Fleet.below(root)._asdict(),
        )
        self._counts[root] = _Counts(active, zombies)
        return [
            _Overdue(process.decode(), deadline, now_ms)
            for process, deadline in zip(overdue[::2], overdue[1::2], strict=True)
        ]

    async def _is_busy(self, root: str, one: _Overdue) -> bool:
        """Its connection stands, so it may only be busy: something holds its interpreter, or it was stopped."""
        info = PROCESS_INFO.build(root, process=one.process)
        heard_at, client, name = await self._store.call("HMGET", info, "heard_at", "client", "client_name")
        silent_s = (one.now_ms - int(heard_at or 0)) / 1000
        if silent_s >= self._settings.processes.busy_s or not client or client == b"0":
            return False
        try:
            listed = await self._store.call_beside(info, "CLIENT", "LIST", "ID", client)
        except Refused:
            # We may not ask: then silence is all there is to go by.
            return False
        return bool(name) and b" name=%s " % name in listed

    async def _declare(self, root: str, one: _Overdue) -> bool:
        outcome = await _declare_dead(
            self._store,
            info=PROCESS_INFO.build(root, process=one.process),
            heartbeat=PROCESS_HEARTBEAT.build(root, process=one.process),
            process=one.process,
            deadline=one.deadline,
            kept_s=kept_s(self._settings),
            **Fleet.below(root)._asdict(),
        )
        if outcome != b"dead":
            return False
        self.deaths += 1
        log.warning("process died", extra={"member": one.process})
        return True

    async def _run_hooks(self, process: str) -> bool:
        """All of them, also if one fails. Whether none did."""
        done = True
        for hook in self._hooks:
            try:
                async with asyncio.timeout(BURIAL_S):
                    await hook(process)
            except (KizunaError, TimeoutError) as error:
                done = False
                log.warning("not given back", extra={"member": process, "hook": _name(hook), "error": repr(error)})
            except Exception:
                done = False
                log.exception("not given back", extra={"member": process, "hook": _name(hook)})
        return done

    async def _sweep_active(self, root: str) -> list[str]:
        """Those who are listed without a deadline live by their heartbeat alone: outsiders, with plain commands."""
        fleet = Fleet.below(root)
        listed = await self._next_batch(fleet.active)
        if not listed:
            return []
        deadlines = await self._store.call("ZMSCORE", fleet.deadlines, *listed)
        outsiders = [name for name, deadline in zip(listed, deadlines, strict=True) if deadline is None]
        return [name for name in outsiders if await self._declare(root, _Overdue(name, b"", 0))]

    async def _sweep_zombies(self, root: str) -> None:
        for process in await self._next_batch(Fleet.below(root).zombies):
            if await self.drop(process, told=False) == "unburied":
                await self.bury(process)

    async def _next_batch(self, key: str) -> list[str]:
        """Some members of a set; others the next time."""
        cursor = self._cursors.get(key, b"0")
        self._cursors[key], raw = await self._store.call("SSCAN", key, cursor, "COUNT", _SWEEP_BATCH)
        names = [member.decode(errors="replace") for member in raw]
        return [name for name in names if PROCESS_INFO.takes(process=name)]


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", repr(hook))
