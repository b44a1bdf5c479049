"""Makes matches: a service that looks for them when tickets come, and now and then.

backend = k.match.backend(find_server)
backend.add(Profile("1v1", [Pool("everyone")]), one_against_one())
async with running(backend):
    …
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from kizuna.errors import KizunaError, TickFailed, WrongValue
from kizuna.match.backend.backlog import Backlog
from kizuna.match.backend.cache import TicketCache
from kizuna.match.backend.counts import Counts
from kizuna.match.backend.measures import measures_of
from kizuna.match.backend.shard_ticks import ShardTicks
from kizuna.match.backend.tick import Added, Tick
from kizuna.match.calling import name_of
from kizuna.match.hearing import Hearing
from kizuna.match.leftovers import take_out_assigned
from kizuna.match.reports import KEPT_S, BackendReport, PoolReport

if TYPE_CHECKING:
    from kizuna.coordination.processes.membership import Registration
    from kizuna.match.backfill_steps import BackfillSteps
    from kizuna.match.matches import Assigner, Evaluator, MatchFunction
    from kizuna.match.pools import Profile
    from kizuna.match.shard import Shard
    from kizuna.metrics import Measure
    from kizuna.store.client import Store

log = logging.getLogger("kizuna.match")

_LOOKS_AROUND_EVERY_S = 1.0
# While somebody else has tickets that might match ours: the first look again, and the longest pause between two.
_FIRST_LOOK_S = 0.005
_LONGEST_LOOK_S = 0.25


class Backend:
    """Made by `k.match.backend`."""

    def __init__(
        self,
        shards: Sequence[Shard],
        backfills: Mapping[str, BackfillSteps],
        name: str,
        join: Callable[[], Awaitable[Registration]],
        assigner: Assigner | None,
        *,
        evaluator: Evaluator | None,
        fetch_limit: int,
        tick_every_s: float,
        validate: bool,
        store: Store,
    ) -> None:
        self.name = name
        self.counts = Counts()
        self.on_tick: Callable[[Tick], None] = lambda _: None
        """Called with each tick when it is over."""
        self._store, self._join = store, join
        self._settings = store.settings.match
        self._assigner, self._evaluator = assigner, evaluator
        self._fetch_limit, self._tick_every_s, self._validate = fetch_limit, tick_every_s, validate
        self._added: list[Added] = []
        self._ticks = [self._ticks_on(shard, backfills[shard.prefix]) for shard in shards]
        self._ticking = asyncio.Lock()
        self._something_new = asyncio.Event()
        self._hearing = Hearing("new tickets", self._something_new.set)
        self._looked_around_at = -_LOOKS_AROUND_EVERY_S
        self._idle_looks = 0
        self._rest_s = 0.0

    def _ticks_on(self, shard: Shard, backfills: BackfillSteps) -> ShardTicks:
        cache = TicketCache(shard, self._settings.cache_s)
        return ShardTicks(shard, backfills, Backlog(shard, cache.created_at), cache, self.name, self.counts)

    def add(
        self, profile: Profile, function: MatchFunction, *, assigner: Assigner | None = None, name: str = ""
    ) -> None:
        """Have this function make matches of the tickets in this profile's pools. It may be added while the backend
        runs: it counts from the next tick on. WrongValue for what cannot be called."""
        finds_servers = assigner or self._assigner
        if not callable(finds_servers):
            wanted = "a function that finds servers, for this profile or for the backend"
            raise WrongValue("assigner", repr(finds_servers), wanted)
        if not callable(function):
            raise WrongValue("match function", repr(function), "a function that makes matches")
        # Another list: a tick that is under way goes on with the one it has.
        self._added = [*self._added, Added(profile, function, finds_servers, name or name_of(function))]

    @property
    def profiles(self) -> list[Profile]:
        return [added.profile for added in self._added]

    async def tick(self) -> Tick:
        """Look for matches once, now. TickFailed if a function, an evaluator or an assigner failed; the others' matches
        were made nevertheless. Other errors if the server could not be asked."""
        tick = await self._tick()
        if tick.failures:
            failed = TickFailed(*(what for what, _ in tick.failures))
            raise failed from tick.failures[0][1]
        return tick

    def measures(self) -> Iterator[Measure]:
        """For /metrics."""
        yield from measures_of(self.counts)

    async def run(self, started: asyncio.Event) -> None:
        """Until cancelled; a tick that is under way is finished then, unless it is cancelled again."""
        registration = await self._join()
        try:
            async with self._listening():
                await self._introduce()
                started.set()
                await self._go_on()
        finally:
            await self._take_leave()
            await registration.leave()

    # -- one tick -----------------------------------------------------------------------------------------

    async def _tick(self, *, ahead: bool = False) -> Tick:
        async with self._ticking:
            began = time.perf_counter()
            if not self.counts.ticks:
                await self._introduce()
            total = Tick()
            for tick in await asyncio.gather(*(self._tick_on(ticks, ahead) for ticks in self._ticks)):
                total.add(tick)
            total.took_s = time.perf_counter() - began
            self.counts.ticks += 1
            self.counts.tick_s.observe(total.took_s)
            self.on_tick(total)
            return total

    def _tick_on(self, ticks: ShardTicks, ahead: bool) -> Awaitable[Tick]:
        return ticks.tick(self._added, self._evaluator, self._fetch_limit, validate=self._validate, ahead=ahead)

    # -- the loop -----------------------------------------------------------------------------------------

    async def _go_on(self) -> None:
        pause_s = 0.0
        while True:
            await self._wait(pause_s)
            self._something_new.clear()
            pause_s, self._rest_s = self._tick_every_s, 0.0
            try:
                tick = await _to_its_end(self._tick(ahead=True))
            except KizunaError as error:
                log.warning("no tick", extra={"backend": self.name, "error": str(error)})
            else:
                pause_s, self._rest_s = self._pause_after(tick), rest_after(tick)
            await self._look_around()

    async def _wait(self, pause_s: float) -> None:
        """Until a ticket is new, and a moment longer for others that come with it; or that long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._something_new.wait()
                await asyncio.sleep(max(self._settings.gather_s, self._rest_s))

    def _pause_after(self, tick: Tick) -> float:
        if any(ticks.has_more for ticks in self._ticks):
            return 0.0
        if self._hearing.is_deaf:
            return min(self._tick_every_s, self._settings.poll_every_s)
        if not tick.busy or tick.assigned:
            self._idle_looks = 0
        if not tick.busy:
            return self._tick_every_s
        # Somebody else had tickets that may match those we saw. Who gives back unmatched ones announces nothing, so
        # that backends do not wake each other for ever; we look again, less and less often.
        self._idle_looks += 1
        longest_s = min(_FIRST_LOOK_S * 2**self._idle_looks, _LONGEST_LOOK_S, self._tick_every_s)
        return float(longest_s * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret

    # -- hearing of tickets -------------------------------------------------------------------------------

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        try:
            for ticks in self._ticks:
                await self._hearing.listen(self._store, ticks.shard.all_tickets, self._heard, ("sadd",))
            yield
        finally:
            await self._hearing.aclose()

    def _heard(self, _: list[bytes]) -> None:
        self._something_new.set()

    # -- being known --------------------------------------------------------------------------------------

    async def _introduce(self) -> None:
        """Before anything is taken, so that it is known whose it was."""
        await self._be_listed(b"")

    async def _be_listed(self, report: bytes) -> None:
        for ticks in self._ticks:
            await self._store.call("HSET", ticks.shard.backends, self.name, report)
            await self._store.call("EXPIRE", ticks.shard.backends, KEPT_S)

    async def _take_leave(self) -> None:
        try:
            for ticks in self._ticks:
                await ticks.let_go()
                await self._store.call("HDEL", ticks.shard.backends, self.name)
        except KizunaError as error:
            # It stays listed, and what it had taken comes back when it is missed.
            log.warning("backend left in silence", extra={"backend": self.name, "error": str(error)})

    async def _look_around(self) -> None:
        """Once in a while: tell how it goes, and see to what was not announced or not delivered."""
        if time.monotonic() - self._looked_around_at < _LOOKS_AROUND_EVERY_S:
            return
        self._looked_around_at = time.monotonic()
        try:
            await self._hearing.try_again()
            self.counts.tickets = sum([await ticks.shard.count() for ticks in self._ticks])
            await self._be_listed(msgspec.json.encode(await self.report()))
            for ticks in self._ticks:
                self.counts.delivered_late += await ticks.shard.deliver_left()
                await take_out_assigned(ticks.shard)
        except KizunaError as error:
            log.warning("no report", extra={"backend": self.name, "error": str(error)})

    async def report(self) -> BackendReport:
        """What it has found so far."""
        counts, waits = self.counts, self.counts.wait_s
        quantiles = [waits.quantile(q) if waits.count else None for q in (0.5, 0.95, 0.99)]
        return BackendReport(
            name=self.name,
            at=await self._store.time_s(),
            ticks=counts.ticks,
            fetched=counts.fetched,
            assigned=counts.assigned,
            matches=counts.matches,
            failures=counts.failures,
            wait_p50_s=quantiles[0],
            wait_p95_s=quantiles[1],
            wait_p99_s=quantiles[2],
            pools=[PoolReport(*names, state.waiting, state.oldest_s) for names, state in counts.pools.items()],
        )


def rest_after(tick: Tick) -> float:
    """How long not to look again, although tickets are new: where many wait who cannot be matched, to look at all of
    them for each that comes would keep us and the server busy all the time."""
    return tick.took_s if tick.assigned * 2 < tick.fetched else 0.0


async def _to_its_end(tick: Awaitable[Tick]) -> Tick:
    """When we are cancelled, it is finished first; cancelled again, it gives back what it has taken, and ends."""
    task: asyncio.Future[Tick] = asyncio.ensure_future(tick)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            try:
                await task
            except KizunaError as error:
                log.warning("no last tick", extra={"error": str(error)})
        raise
