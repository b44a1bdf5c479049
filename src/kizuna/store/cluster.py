"""A cluster: a link to each primary, and a table that says whose each of the 16,384 slots is."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from typing import Any

from kizuna.errors import SignInRefused, StoreError, TlsRefused, Unreachable
from kizuna.settings import Settings
from kizuna.store.commands import keys_of
from kizuna.store.dialing import Address, Dialer
from kizuna.store.keys import SLOTS, key_slot
from kizuna.store.link import Link, Locate, OnRefusal, backoff, copy_of
from kizuna.store.places import Place, Route
from kizuna.store.wire import Command

log = logging.getLogger("kizuna.store")

_CLUSTER_HINT = "is it a cluster, and are its nodes running? (CLUSTER INFO)"


class Cluster:
    def __init__(
        self, first_nodes: tuple[Address, ...], dialer: Dialer, settings: Settings, on_refusal: OnRefusal
    ) -> None:
        self.dialer = dialer
        self.only: Link | None = None
        self._first_nodes, self._settings, self._on_refusal = first_nodes, settings, on_refusal
        self._nodes: dict[Address, Link] = {}
        self._slots: list[Address | None] = [None] * SLOTS
        self._refreshing: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._left: list[Link] = []
        """Links to former members, on which something may still be answered."""
        self._closed = False

    async def start(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self.refresh()
        except TimeoutError:
            raise Unreachable("no node has told its slots in time", self._named(), _CLUSTER_HINT) from None
        for link in self.primaries():
            await link.connected(deadline)

    def route(self, command: Command) -> Link:
        keys = keys_of(command)
        if not keys:
            return self._any()
        address = self._slots[key_slot(keys[0])]
        return self._any() if address is None else self._link(address)

    def group(self, key: str | bytes) -> int:
        return key_slot(key)

    def primaries(self) -> list[Link]:
        return [self._link(address) for address in self._primary_slots()]

    def owners(self) -> list[Address | None]:
        return list(self._slots)

    def links(self) -> list[Link]:
        return self.primaries()

    def places(self) -> list[Place]:
        return [Place(str(address), _always(address), slot) for address, slot in self._primary_slots().items()]

    async def learn(self, command: Command, link: Link, error: StoreError) -> Route:
        if error.code in ("MOVED", "ASK"):
            slot, address = _redirection(error)
            if address not in self._nodes:
                # Somebody new: there may be more that we do not know.
                self._node_lost()
            if error.code == "ASK":
                return Route(self._link(address), asking=True)
            self._slots[slot] = address
            return Route(self._link(address))
        if error.code != "TRYAGAIN":
            await self._refresh_if_possible()
        return Route(self.route(command))

    async def refresh(self) -> None:
        """Ask node after node until one tells the whole table. Those who call at once share one asking."""
        if self._closed:
            raise self._was_closed()
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._read_table(), name="kizuna cluster")
            # Those who wait get the error; if all of them have gone, nobody misses it.
            self._refreshing.add_done_callback(lambda task: task.cancelled() or task.exception())
        task = self._refreshing
        await asyncio.wait([task])
        if task.cancelled():
            raise self._was_closed()
        if error := task.exception():
            raise copy_of(error)

    async def aclose(self) -> None:
        self._closed = True
        for task in (self._following, self._refreshing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        for link in (*self._nodes.values(), *self._left):
            await link.aclose()

    # -- inside -----------------------------------------------------------------------------------------

    def _node_lost(self) -> None:
        if not self._closed and (self._following is None or self._following.done()):
            self._following = asyncio.get_running_loop().create_task(self._follow(), name="kizuna cluster")

    async def _follow(self) -> None:
        """A node is gone: ask until it is back, or until its slots are another's."""
        store = self._settings.store
        for pause_s in backoff(store.reconnect_first_s, store.reconnect_longest_s):
            await self._refresh_if_possible()
            # Who refused us is not asked again and again: that locks accounts.
            missing = [link for link in self.primaries() if link.wire is None and not link.was_refused]
            if not missing:
                return
            for link in missing:
                link.connect()
            await asyncio.sleep(pause_s)

    async def _refresh_if_possible(self) -> None:
        try:
            await self.refresh()
        except StoreError as error:
            log.warning("cluster table not refreshed", extra={"error": str(error)})

    async def _read_table(self) -> None:
        problems: list[str] = []
        refusal: StoreError | None = None
        for address in self._whom_to_ask():
            try:
                self._take_table(address, await self._table_of(address))
            except StoreError as error:
                problems.append(f"{address}: {error.what}")
                if isinstance(error, (SignInRefused, TlsRefused)):
                    refusal = error
            else:
                self._forget_strangers()
                return
        if refusal is not None:
            raise refusal
        told = "; ".join(problems)
        raise Unreachable(f"no node of the cluster tells its slots [{told}]", self._named(), _CLUSTER_HINT)

    def _whom_to_ask(self) -> Iterator[Address]:
        """Those who answer now first; then whoever we know; then those that settings name."""
        # By chance among them: one that is cut off from the others would tell yesterday's table again and again.
        known = sorted(self._nodes, key=lambda address: (self._nodes[address].wire is None, random.random()))  # noqa: S311
        yield from dict.fromkeys((*known, *self._first_nodes))

    async def _table_of(self, address: Address) -> list[Any]:
        deadline = asyncio.get_running_loop().time() + self.dialer.connect_timeout_s
        wire = await self._link(address).connected(deadline)
        table: list[Any] = await wire.send(("CLUSTER", "SLOTS"), deadline)
        if not table:
            raise Unreachable("it has no slots yet", str(address), "CLUSTER ADDSLOTS gives it some")
        return table

    def _take_table(self, asked: Address, table: list[Any]) -> None:
        slots: list[Address | None] = [None] * SLOTS
        for first, last, (host, port, *_), *_ in table:
            address = Address(_host(host.decode() if host else "", asked.host), port)
            slots[first : last + 1] = [address] * (last + 1 - first)
        self._slots = slots

    def _forget_strangers(self) -> None:
        primaries = self._primary_slots()
        for address in [address for address in self._nodes if address not in primaries]:
            # Whom we asked may not have heard of a new member yet: what was sent to it is still answered.
            link = self._nodes.pop(address)
            link.leave()
            self._left.append(link)
        self._left = [link for link in self._left if not link.has_ended]

    def _primary_slots(self) -> dict[Address, int]:
        """Each primary, with a slot of its own."""
        found: dict[Address, int] = {}
        for slot, address in enumerate(self._slots):
            if address is not None and address not in found:
                found[address] = slot
        return found

    def _any(self) -> Link:
        """For a command without keys: whoever is there."""
        there = next((link for link in self._nodes.values() if link.wire is not None), None)
        return there or self._link(next(filter(None, self._slots), self._first_nodes[0]))

    def _named(self) -> str:
        return ", ".join(map(str, self._first_nodes))

    def _was_closed(self) -> Unreachable:
        return Unreachable("the store was closed", self._named(), "connect again")

    def _link(self, address: Address) -> Link:
        link = self._nodes.get(address)
        if link is None:
            store = self._settings.store
            link = Link(
                _always(address),
                self.dialer,
                server=str(address),
                first_s=store.reconnect_first_s,
                longest_s=store.reconnect_longest_s,
                on_lost=self._node_lost,
                on_refusal=self._on_refusal,
            )
            self._nodes[address] = link
        return link


def _always(address: Address) -> Locate:
    async def locate() -> Address:
        return address

    return locate


def _redirection(error: StoreError) -> tuple[int, Address]:
    """`MOVED 3999 127.0.0.1:6381` or `ASK …`; the host may be empty: the one that said so."""
    _, slot, place = error.what.split(" ")[:3]
    host, _, port = place.rpartition(":")
    said_by = error.server.rpartition(":")[0].strip("[]")
    return int(slot), Address(_host(host, said_by), int(port))


def _host(named: str, said_by: str) -> str:
    """A node that does not know its own name, or does not tell it, means the one under which we asked."""
    return said_by if named in ("", "?") else named
