"""Gathers the facts that `kizuna doctor` decides on, also from a server that we would refuse to work with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kizuna.clock import Clock, SystemClock
from kizuna.errors import NotificationsOff, PermissionDenied, Refused, ServerNotStarted, StoreError
from kizuna.store.client import Store
from kizuna.store.events.flags import SETTING
from kizuna.store.health import checks
from kizuna.store.health.checks import Check, ServerFacts, Unheard
from kizuna.store.health.info import Info, info_denied, number, parse_info
from kizuna.store.keys import CANARY
from kizuna.store.replies import answered

if TYPE_CHECKING:
    from kizuna.settings import Settings
    from kizuna.store.link import Link

_OPTIONS = (SETTING, "save", "appendfsync", "client-output-buffer-limit", "min-string-size-avoid-copy-reply")
_PINGS = 50
# Far away, fewer than fifty have to do.
_PING_FOR_S = 2.0
_WORST_FIRST = {"fail": 0, "warn": 1, "pass": 2}


async def examine(settings: Settings, clock: Clock | None = None) -> list[Check]:
    """Every check there is; one that failed alone if the server cannot be reached. Raises SettingsError."""
    store = Store(settings)
    try:
        await store.open()
    except (StoreError, ServerNotStarted) as error:
        return [checks.unreachable(_without_hint(error), error.hint)]
    try:
        servers = await facts_of(store, clock or SystemClock())
        unheard = await why_unheard(store, servers)
    except PermissionDenied as error:
        return [Check("permissions", "fail", _without_hint(error), error.hint)]
    except StoreError as error:
        return [checks.unreachable(_without_hint(error), error.hint)]
    finally:
        await store.aclose()
    return decide(store, servers, unheard)


def decide(store: Store, servers: list[ServerFacts], unheard: Unheard | None) -> list[Check]:
    target, poll_every_s = store.target, store.settings.units.poll_every_s
    hosts = [address.host for address in target.addresses]
    return [
        *merged(servers, (checks.latency(server.latencies_ms) for server in servers)),
        *merged(servers, (checks.version(server.info) for server in servers)),
        *merged(servers, (checks.topology(target.kind, server) for server in servers)),
        *merged(servers, (checks.persistence(server.info, server.config) for server in servers)),
        *merged(servers, (checks.eviction(server.info) for server in servers)),
        *merged(servers, (checks.notifications(server.config, unheard, poll_every_s) for server in servers)),
        *merged(servers, (checks.memory(server.info) for server in servers)),
        *merged(servers, (checks.slow_subscribers(server.info, server.config) for server in servers)),
        *merged(servers, (checks.clock(server.skew_s) for server in servers)),
        *merged(servers, (checks.clients(server.info) for server in servers)),
        checks.security(hosts, tls=target.tls, password=bool(target.password)),
    ]


def merged(servers: list[ServerFacts], found: Iterable[Check]) -> list[Check]:
    """One line where all primaries are alike; else the server's address before each."""
    each = dict(zip((server.address for server in servers), found, strict=True))
    alike = list(dict.fromkeys(each.values()))
    if len(alike) == 1:
        return alike
    named = [Check(c.check, c.verdict, f"{address}: {c.found}", c.mend) for address, c in each.items()]
    bad = [check for check in named if check.verdict != "pass"]
    if bad:
        return sorted(bad, key=lambda check: _WORST_FIRST[check.verdict])
    return [Check(named[0].check, "pass", "; ".join(check.found for check in named))]


# -- asking -------------------------------------------------------------------------------------------------


async def facts_of(store: Store, clock: Clock) -> list[ServerFacts]:
    """Raises StoreError; PermissionDenied says what this user would have to be granted."""
    asked = Asked(store, clock)
    return [await asked.everything(link) for link in store.topology.primaries()]


async def why_unheard(store: Store, servers: list[ServerFacts]) -> Unheard | None:
    """Try to hear of a change. Not where flags are missing: to try would be to set them, and we are here to look."""
    if any(checks.missing_notifications(server.config) or server.info.get("role") == "slave" for server in servers):
        return None
    canary = CANARY.build(store.settings.roots.system, place="all", reader="doctor")
    try:
        async with store.events.watch(canary, kinds=("set", "expire")):
            return None
    except NotificationsOff:
        return checks.not_announced()
    except StoreError as error:
        return Unheard(_without_hint(error), error.hint)


class Asked:
    """Questions to one server at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._username = store.target.username
        self._timeout_s = store.settings.store.timeout_s
        self._clock = clock

    async def everything(self, link: Link) -> ServerFacts:
        info = await self.info(link)
        return ServerFacts(
            address=link.describe(),
            info=info,
            config=await self.config(link),
            latencies_ms=await self.latencies_ms(link),
            skew_s=await self.skew_s(link),
            cluster=await self.cluster(link) if number(info, "cluster_enabled") else {},
        )

    async def info(self, link: Link) -> Info:
        try:
            return parse_info(await self._call(link, "INFO"))
        except PermissionDenied as error:
            raise info_denied(error, self._username) from None

    async def config(self, link: Link) -> dict[str, str] | None:
        """None if the server does not let us see. An option that it does not know is not among them."""
        try:
            # One by one: Redis 6.2 takes only one name.
            replies = await asyncio.gather(*(self._call(link, "CONFIG", "GET", name) for name in _OPTIONS))
        except Refused:
            return None
        return {name.decode(): value.decode() for reply in replies for name, value in reply.items()}

    async def latencies_ms(self, link: Link) -> list[float]:
        # Not the loop's time: that of uvloop moves in whole milliseconds.
        ends_at = time.perf_counter() + _PING_FOR_S
        took_ms: list[float] = []
        while len(took_ms) < _PINGS and (not took_ms or time.perf_counter() < ends_at):
            began = time.perf_counter()
            await answered(self._call(link, "PING"))
            took_ms.append((time.perf_counter() - began) * 1000)
        return took_ms

    async def skew_s(self, link: Link) -> float:
        """The server looked at its clock somewhere between our two looks; in the middle, as far as we can tell."""
        before = self._clock.now()
        seconds, microseconds = await self._call(link, "TIME")
        after = self._clock.now()
        return int(seconds) + int(microseconds) / 1e6 - (before + after) / 2

    async def cluster(self, link: Link) -> Info:
        return parse_info(await self._call(link, "CLUSTER", "INFO"))

    async def _call(self, link: Link, *command: str) -> Any:
        return await link.send(command, asyncio.get_running_loop().time() + self._timeout_s)


def _without_hint(error: StoreError | ServerNotStarted) -> str:
    """The hint stands in a place of its own."""
    return str(error).removesuffix(f"; {error.hint}")
