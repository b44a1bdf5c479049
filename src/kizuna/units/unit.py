"""A unit: a program that others know by name.

unit = k.unit("camera")
boxes = await unit.request("detector", image)

async with k.unit("detector").serving(detect): ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kizuna.clock import milliseconds
from kizuna.coordination.handlers import handler_of
from kizuna.errors import IllegalName, WrongValue
from kizuna.store.lifetimes import checked_lifetime
from kizuna.units.listening import Listening
from kizuna.units.paths import (
    ADDRESS_END,
    SHORT_LIVED,
    SHORT_MS,
    build_path,
    checked_id,
    checked_pattern,
    lowered,
    unit_name,
)
from kizuna.units.serving import Serving, Terms
from kizuna.units.values import checked_size, encoded

if TYPE_CHECKING:
    from kizuna.codecs import Codec
    from kizuna.units.requests import Requests
    from kizuna.units.state import Keep
    from kizuna.units.units import Units


class Unit:
    """Made by `k.unit(name)`; any number of requests, servers and listeners at once."""

    def __init__(
        self,
        units: Units,
        name: str,
        codec: Codec,
        *,
        request_s: float | None,
        response_s: float | None,
        error_s: float | None,
        keep_s: float | None,
    ) -> None:
        settings = units.settings
        self.name = unit_name(name)
        self.codec = codec
        self._units = units
        self._largest = settings.largest_bytes
        self._lives_s = {
            "req": _lifetime(request_s, settings.request_s),
            "res": _lifetime(response_s, settings.response_s),
            "err": _lifetime(error_s, settings.error_s),
            "keep": _lifetime(keep_s, settings.keep_s),
        }

    @cached_property
    def _requests(self) -> Requests:
        # Not before it asks for something: there may be very many units that never do.
        return self._units.requests_of(self.name)

    async def request(
        self,
        to: str | None,
        data: Any = b"",
        *,
        id: str | None = None,  # noqa: A002 - what it is called
        timeout_s: float | None = None,
        ttl_s: float | None = None,
    ) -> Any:
        """Ask the unit `to`, and return its reply. None asks whoever listens to all.

        Waits as long as the request lives, unless told otherwise; the request does not outlive the wait, unless it is
        given a `ttl_s` that does. With an `id` that was used before, the reply to that is the reply, as long as it is
        there.
        Raises RequestFailed with what came back as an error, RequestTimeout if nothing did, TooLarge, Undecodable if
        the reply is in another format, and a StoreError if the server refused the request.
        """
        address = "" if to is None else unit_name(to)
        if timeout_s is None and ttl_s is None:
            wait_s = lives_s = self._lives_s["req"]
        else:
            wait_s = _lifetime(timeout_s, self._lives_s["req"] if ttl_s is None else ttl_s)
            lives_s = _lifetime(ttl_s, min(self._lives_s["req"], wait_s))
        raw = encoded(self.codec, data, self._largest, "the request")
        requests = self._requests
        ttl_ms = milliseconds(lives_s)
        own_id = requests.unique_id(address, ttl_ms) if id is None else _own_id(address, id, ttl_ms)
        if not requests.is_open:
            await requests.open()
            self._units.announcing.asks(self.name, requests)
        session = requests.begin(address, own_id, raw, ttl_ms, wait_s)
        if id is not None:
            requests.look(session)
        try:
            return self.codec.decode(await session.future)
        finally:
            requests.end(session)

    async def send(
        self,
        status: str,
        id: str,  # noqa: A002
        data: Any = b"",
        *,
        unit: str | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """Write one value, of any status and id, in this unit's space or another's."""
        await self.send_raw(status, id, encoded(self.codec, data, self._largest, "the value"), unit=unit, ttl_s=ttl_s)

    async def send_raw(
        self,
        status: str,
        id: str,  # noqa: A002
        raw: bytes | str,
        *,
        unit: str | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """The same for bytes as they are."""
        status = lowered(status)
        path = build_path(self.name if unit is None else unit, status, id, self._units.root)
        body = checked_size(raw.encode() if isinstance(raw, str) else bytes(raw), self._largest, "the value")
        lives_s = _lifetime(ttl_s, self._lives_s[status])
        await self._units.store.call("SET", path, body, "PX", milliseconds(lives_s))

    def server(
        self, handler: Callable[..., Any], *, pattern: str | None = None, concurrency: int | None = None
    ) -> Server:
        """A service that answers requests: those to this unit, or those whose path fits the pattern.

        `handler(data)`, or `handler(data, request)`, is an async function or a plain one, which then runs in a
        thread. What it returns is the reply; an exception is an error, with its text as the body.
        """
        units = self._units
        wanted = f"{units.root}/*/req/{self.name}.*" if pattern is None else checked_pattern(pattern, units.root)
        most = units.settings.concurrency if concurrency is None else concurrency
        if most < 1:
            raise WrongValue("concurrency", f"{most}", "1 or more")
        return Server(units, self, handler, wanted, most)

    @asynccontextmanager
    async def serving(
        self, handler: Callable[..., Any], *, pattern: str | None = None, concurrency: int | None = None
    ) -> AsyncIterator[None]:
        """Serve while the block runs; at its end, what was begun is finished. See `server`."""
        async with self.server(handler, pattern=pattern, concurrency=concurrency).running():
            yield

    async def serve(
        self, handler: Callable[..., Any], *, pattern: str | None = None, concurrency: int | None = None
    ) -> None:
        """Serve until cancelled. See `server`."""
        async with self.serving(handler, pattern=pattern, concurrency=concurrency):
            await self._units.until_closed()

    def listen(self, pattern: str, handler: Callable[..., Any] | None = None) -> Listening:
        """What is written to paths that fit the pattern; see `Listening`."""
        return Listening(self._units, self, checked_pattern(pattern, self._units.root), handler)

    @cached_property
    def keep(self) -> Keep:
        """The state that this unit shares."""
        return self.keep_of(self.name)

    def keep_of(self, unit: str) -> Keep:
        """That of another one."""
        from kizuna.units.state import Keep

        units = self._units
        return Keep(units.store, lowered(unit), self._lives_s["keep"], self.codec, self._largest, units.root)

    def lives_s(self, status: str) -> float:
        """How long a value of this status lives, unless a call says otherwise."""
        return self._lives_s[status]


class Server:
    """A service: `running(unit.server(handler))`, `run_until_signalled(unit.server(handler))`."""

    def __init__(self, units: Units, unit: Unit, handler: Callable[..., Any], pattern: str, concurrency: int) -> None:
        self._units, self._unit, self._handler = units, unit, handler_of(handler, "request")
        self._pattern, self._concurrency = pattern, concurrency

    async def run(self, started: asyncio.Event) -> None:
        async with self.running():
            started.set()
            await self._units.until_closed()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        unit = self._unit
        lives_s = unit.lives_s("res"), unit.lives_s("err")
        terms = Terms(self._pattern, self._handler, unit.codec, self._concurrency, *lives_s)
        async with self._units.serving(unit.name, Serving(self._units, unit.name, terms)):
            yield


def _own_id(address: str, id_: str, ttl_ms: int) -> str:
    # Each by itself: an address is no id.
    own_id = checked_id(id_)
    if address:
        own_id = checked_id(f"{address}{ADDRESS_END}{own_id}")
    if ttl_ms > SHORT_MS and f"{ADDRESS_END}{SHORT_LIVED}" in own_id:
        reason = f"with {SHORT_LIVED!r} it says that the request lives for {SHORT_MS / 1000:g}s at most"
        raise IllegalName("id", own_id, reason)
    return own_id


def _lifetime(given_s: float | None, default_s: float) -> float:
    return checked_lifetime(default_s if given_s is None else given_s, "a time to live or to wait")
