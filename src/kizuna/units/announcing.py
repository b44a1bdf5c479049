"""Being there: each unit that is in use in a process says so, again and again, below its own `keep`.

Who serves or listens says so at once; who only asks, after a while, so that a call from a shell never shows. Who leaves
says that as well, and who is gone without a word is missed when the key ends. Not to be able to say it disturbs nobody:
it is said the next time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from kizuna.clock import milliseconds
from kizuna.errors import KizunaError
from kizuna.units.paths import build_path
from kizuna.units.presence import LIVES, Presence, Rates, Tally, presence_id, quantiles_of, tally_of

if TYPE_CHECKING:
    from kizuna.store.wire import Command
    from kizuna.units.counts import Counts
    from kizuna.units.units import Units

log = logging.getLogger("kizuna.units")

# So many are written in one go, so that what else the process does need not wait for them.
_AT_ONCE = 100
# Whoever leaves a server that is away need not wait for it.
_GOODBYE_S = 1.0
# As short as a life can be: nothing is removed, all ends by its time.
_AT_ONCE_MS = 1


class Source(Protocol):
    """What a unit is in use for."""

    @property
    def polling(self) -> KizunaError | None: ...


class PatternSource(Source, Protocol):
    @property
    def pattern(self) -> str: ...


class Announcing:
    """For all units of a process, in one task."""

    def __init__(self, units: Units) -> None:
        self.is_silent = False
        """To be set before anything is in use: then nobody hears of us."""
        self._units = units
        self._every_s = units.settings.presence_every_s
        self._present: dict[str, _Present] = {}
        self._soon: set[str] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def announced(self, unit: str, role: Literal["serves", "listens"], source: PatternSource) -> Iterator[None]:
        """While the block runs, the unit is told to serve the pattern of the source, or to listen to it."""
        self._begin(unit, source, role, source.pattern)
        try:
            self._announce_soon(unit)
            yield
        finally:
            self.end(unit, source)

    def asks(self, unit: str, source: Source) -> None:
        """The unit is there for what it asks of others, until `end`. Harmless when repeated."""
        self._begin(unit, source, "asks", "")

    def end(self, unit: str, source: Source) -> None:
        """Harmless when it has not begun."""
        present = self._present.get(unit)
        if present is None or not present.forget(source):
            return
        if present.is_in_use:
            self._announce_soon(unit)
        else:
            del self._present[unit]
            self._begin_to_send(_goodbyes([present]))

    def polling(self) -> set[str]:
        """The units that have to look for what they should be told."""
        return {unit for unit, present in self._present.items() if present.polling is not None}

    async def announce(self, units: Iterable[str]) -> None:
        """Write the presence of these; what cannot be written now will be the next time."""
        waiting, sent = iter(units), []
        while chunk := list(islice(waiting, _AT_ONCE)):
            now = time.monotonic()
            sent.append(
                self._begin_to_send([self._present[unit].command(now) for unit in chunk if unit in self._present])
            )
            await asyncio.sleep(0)
        for replies in await asyncio.gather(*sent):
            _log_errors(replies)

    async def aclose(self) -> None:
        """Others see us leave now, and not when the keys end."""
        self.is_silent = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        present, self._present = self._present, {}
        _log_errors(await self._begin_to_send(_goodbyes(present.values()), timeout_s=_GOODBYE_S))

    # -- inside -----------------------------------------------------------------------------------------

    def _begin(self, unit: str, source: Source, role: str, pattern: str) -> None:
        if self.is_silent:
            return
        if unit not in self._present:
            self._present[unit] = _Present(self._units, unit, self._every_s)
        self._present[unit].uses[source] = (role, pattern)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep_announcing(), name="kizuna units presence")

    def _announce_soon(self, unit: str) -> None:
        self._soon.add(unit)
        self._wake.set()

    async def _keep_announcing(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every_s
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            self._wake.clear()
            soon, self._soon = self._soon, set()
            if loop.time() >= due:
                due = loop.time() + self._every_s
                await self.announce(list(self._present))
            else:
                await self.announce(soon)

    def _begin_to_send(
        self, commands: Sequence[Command], *, timeout_s: float | None = None
    ) -> asyncio.Future[list[object]]:
        return self._units.store.call_all(commands, timeout_s=timeout_s)


class _Present:
    """One unit that is in use in this process."""

    def __init__(self, units: Units, unit: str, every_s: float) -> None:
        self.uses: dict[Source, tuple[str, str]] = {}
        """What for, "serves", "listens" or "asks", and with which pattern; in the order in which it began."""
        self.key = build_path(unit, "keep", presence_id(units.process), units.root)
        self.is_written = False
        self._units, self._unit, self._every_s = units, unit, every_s
        self._lives_ms = milliseconds(LIVES * every_s)
        self._since = time.time()
        self._rates = Rates()
        self._told: object = None
        """What can change, as it was told the last time; and the text that tells it."""
        self._text = b""
        self._counted = tally_of(units.counts_of(unit))
        self._counted_at = time.monotonic()

    @property
    def is_in_use(self) -> bool:
        return bool(self.uses)

    @property
    def polling(self) -> KizunaError | None:
        return next((source.polling for source in self.uses if source.polling is not None), None)

    def forget(self, source: Source) -> bool:
        return self.uses.pop(source, None) is not None

    def command(self, now: float) -> Command:
        """That writes it. `now` is on the monotonic clock."""
        self.is_written = True
        counts = self._units.counts_of(self._unit)
        tally = tally_of(counts)
        self._measure(tally, now)
        why = self.polling
        polling = None if why is None else str(why)
        # The sums as well: a time is counted a moment after what it took.
        took_s = counts.latency.sum, counts.handling.sum
        changing = (tally, took_s, self._rates, polling, tuple(self.uses.values()))
        if changing != self._told:
            # Most units of many are idle: there is nothing new to be worked out about them.
            self._told, self._text = changing, _encode(self._presence(counts, tally, polling))
        return ("SET", self.key, self._text, "PX", self._lives_ms)

    def _presence(self, counts: Counts, tally: Tally, polling: str | None) -> Presence:
        return Presence(
            process=self._units.process,
            host=_HOST,
            pid=os.getpid(),
            since=round(self._since, 3),
            every_s=self._every_s,
            serves=self._patterns("serves"),
            listens=self._patterns("listens"),
            counts=tally,
            rates=self._rates,
            latency_ms=quantiles_of(counts.latency),
            handling_ms=quantiles_of(counts.handling),
            polling=polling,
        )

    def _measure(self, tally: Tally, now: float) -> None:
        passed_s = now - self._counted_at
        if passed_s < self._every_s / 2:
            return  # it is written out of turn: over so short a time a rate says little
        before = self._counted
        requests = tally.requests - before.requests
        served = tally.served + tally.failed - before.served - before.failed
        self._rates = Rates(requests=round(requests / passed_s, 2), served=round(served / passed_s, 2))
        self._counted, self._counted_at = tally, now

    def _patterns(self, role: str) -> list[str]:
        """Each once, however many servers of this unit there are."""
        return list(dict.fromkeys(pattern for what, pattern in self.uses.values() if what == role))


def _log_errors(replies: Iterable[object]) -> None:
    error = next((reply for reply in replies if isinstance(reply, KizunaError)), None)
    if error is not None:
        log.debug("presence not written", extra={"error": str(error)})


def _goodbyes(present: Iterable[_Present]) -> list[Command]:
    return [("PEXPIRE", each.key, _AT_ONCE_MS) for each in present if each.is_written]


_HOST = socket.gethostname()
_encode = msgspec.json.Encoder().encode
