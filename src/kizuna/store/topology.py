"""Which server holds which key now.

    OnePrimary  one address, the embedded server, or the primary that the sentinels name
    Cluster     a link to each primary, and a table of slots (cluster.py)

Both answer `route(command)` with the link to send it on, learn from what the servers answer, and hand the same
knowledge to those who listen for events.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from kizuna.errors import StoreError
from kizuna.settings import Settings
from kizuna.store.cluster import Cluster
from kizuna.store.commands import keys_of
from kizuna.store.dialing import Address, Dialer, tls_context
from kizuna.store.embedded.server import EmbeddedServer
from kizuna.store.keys import key_slot
from kizuna.store.link import Link, Locate, OnRefusal
from kizuna.store.places import Place, Route
from kizuna.store.sentinels import Sentinels
from kizuna.store.targets import Target
from kizuna.store.wire import Command

ONLY_PLACE = "primary"


class Topology(Protocol):
    dialer: Dialer
    """Opens connections as ours are opened; on Sentinel, to primaries only."""
    only: Link | None
    """The one link that all commands take, if it is one."""

    async def start(self, deadline: float) -> None:
        """Be connected, or raise what keeps us from it."""

    def route(self, command: Command) -> Link:
        """The link that leads to the keys of this command."""

    def group(self, key: str | bytes) -> int:
        """Keys of one group may stand in one command."""

    def primaries(self) -> list[Link]:
        """One link to each primary."""

    def owners(self) -> list[Address | None]:
        """Whose each slot is, as far as we know; empty where one server holds everything."""

    def links(self) -> list[Link]:
        """Every link that a command may take."""

    def places(self) -> list[Place]:
        """Where to listen so as to hear of every key."""

    async def learn(self, command: Command, link: Link, error: StoreError) -> Route:
        """The server did not run the command because it is not the one, or not now: where to try next."""

    async def refresh(self) -> None:
        """Ask again who is who."""

    async def aclose(self) -> None:
        """Close every connection and let go of the embedded server."""


class OnePrimary:
    """One server has all keys.

    A few sockets, if so set: a key always takes the same one, to keep its order. A command with several keys takes
    that of the first; the order of what happens to the others is kept only with one socket.
    """

    def __init__(self, locate: Locate, dialer: Dialer, settings: Settings, on_refusal: OnRefusal) -> None:
        self.dialer = dialer
        self._locate = locate
        store = settings.store
        self._links = [
            Link(
                locate,
                dialer,
                first_s=store.reconnect_first_s,
                longest_s=store.reconnect_longest_s,
                on_refusal=on_refusal,
            )
            for _ in range(store.connections)
        ]
        self.only = self._links[0] if len(self._links) == 1 else None

    async def start(self, deadline: float) -> None:
        for link in self._links:
            await link.connected(deadline)

    def route(self, command: Command) -> Link:
        if self.only is not None:
            return self.only
        keys = keys_of(command)
        return self._links[self.group(keys[0])] if keys else self._links[0]

    def group(self, key: str | bytes) -> int:
        return 0 if self.only is not None else key_slot(key) % len(self._links)

    def primaries(self) -> list[Link]:
        return self._links[:1]

    def owners(self) -> list[Address | None]:
        return []

    def links(self) -> list[Link]:
        return self._links

    def places(self) -> list[Place]:
        return [Place(ONLY_PLACE, self._locate, slot=None)]

    async def learn(self, command: Command, link: Link, error: StoreError) -> Route:
        if error.code in ("READONLY", "MASTERDOWN"):
            # After a failover this is yesterday's primary: the link looks for today's when it reconnects.
            link.look_again(f"this server takes no writes now ({error.code})")
        return Route(link)

    async def refresh(self) -> None:
        """Nothing to ask: a link looks the address up each time it connects."""

    async def aclose(self) -> None:
        for link in self._links:
            await link.aclose()


class Embedded(OnePrimary):
    """The server that comes along: started when needed, and let go of at the end."""

    def __init__(self, dialer: Dialer, settings: Settings, on_refusal: OnRefusal) -> None:
        self.server = EmbeddedServer(settings.embedded)
        super().__init__(self._find, dialer, settings, on_refusal)

    async def _find(self) -> Address:
        running = await self.server.attach()
        return Address(running.host, running.port)

    async def aclose(self) -> None:
        await super().aclose()
        await self.server.detach()


def make_dialer(settings: Settings, target: Target) -> Dialer:
    store = settings.store
    return Dialer(
        username=target.username,
        password=target.password,
        database=target.database,
        tls=tls_context(store) if target.tls else None,
        client_name=store.client_name,
        connect_timeout_s=store.connect_timeout_s,
        silence_s=store.timeout_s,
        in_flight_bytes=store.in_flight_bytes,
    )


def make_topology(settings: Settings, target: Target, dialer: Dialer, on_refusal: OnRefusal) -> Topology:
    """`on_refusal` is asked about every command that a server did not run."""
    if target.kind == "embedded":
        return Embedded(dialer, settings, on_refusal)
    if target.kind == "cluster":
        return Cluster(target.addresses, dialer, settings, on_refusal)
    if target.kind == "sentinel":
        asking = replace(
            dialer,
            database=0,
            username=settings.store.sentinel_username,
            password=settings.store.sentinel_password,
        )
        sentinels = Sentinels(target.addresses, target.primary_name, asking)
        return OnePrimary(sentinels.locate, replace(dialer, primary_only=True), settings, on_refusal)
    (address,) = target.addresses

    async def locate() -> Address:
        return address

    return OnePrimary(locate, dialer, settings, on_refusal)
