"""Listening: everything that is written to the paths that fit a pattern, in the order in which it is written.

Requests that are there when it begins come first. After a reconnect, and where the server does not announce changes,
what is there is looked at, and what was not handed on yet comes with `found`: then the order is not known, and what was
written and overwritten, or has ended, in the meantime is not seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from kizuna.coordination.handlers import handler_of
from kizuna.errors import KizunaError
from kizuna.store.scanning import Scan
from kizuna.units.executions import called
from kizuna.units.hearing import Hearing
from kizuna.units.paths import build_path, read_path
from kizuna.units.reading import read_values

if TYPE_CHECKING:
    from kizuna.errors import StoreError
    from kizuna.units.paths import Path
    from kizuna.units.unit import Unit
    from kizuna.units.units import Units

log = logging.getLogger("kizuna.units")

# How many messages are remembered, so that looking again does not hand them on twice.
_REMEMBERED = 100_000
_AGAIN_AFTER_S = 0.2


class Message:
    """`unit`, `status` and `id` are in lower case; `raw` is the value as it was written."""

    def __init__(self, listener: Unit, root: str, path: Path, raw: bytes, at_s: float, *, found: bool) -> None:
        self.unit, self.status, self.id = path
        self.path = build_path(*path, root)
        self.raw = raw
        self.at_s = at_s
        """When it was heard of, or found, on the monotonic clock."""
        self.found = found
        """It was found by looking, and not announced."""
        self._listener = listener

    @property
    def data(self) -> Any:
        """The value, in the format of who listens. Undecodable if it is in another."""
        return self._listener.codec.decode(self.raw)

    async def reply(self, value: Any, *, ttl_s: float | None = None) -> None:
        """Answer a request: whoever sent it gets this value. There is no claim: others may answer it as well."""
        await self._listener.send("res", self.id, value, unit=self.unit, ttl_s=ttl_s)

    async def fail(self, body: bytes | str, *, ttl_s: float | None = None) -> None:
        """Answer a request with an error."""
        await self._listener.send_raw("err", self.id, body, unit=self.unit, ttl_s=ttl_s)

    def __repr__(self) -> str:
        return f"Message({self.path!r}, {self.raw!r})"


class Listening:
    """`async for message in unit.listen(pattern)`; or `async with unit.listen(pattern) as messages`, which is entered
    when everything from then on is heard; or, with a handler, `await unit.listen(pattern, handler)`.

    Holds a bounded number of messages for a slow reader, who then is made to look instead.
    """

    def __init__(self, units: Units, unit: Unit, pattern: str, handler: Callable[..., Any] | None) -> None:
        self._units, self._unit, self._pattern = units, unit, pattern
        self._handler = None if handler is None else handler_of(handler)
        self._hearing = Hearing(units.store, units.silence, pattern, self._heard, self._look_soon)
        self._counts = units.counts_of(unit.name)
        self._most = units.store.settings.events.buffer
        self._messages: deque[tuple[bytes, Message]] = deque()
        """With the key as it was written."""
        self._room = asyncio.Event()
        self._something = asyncio.Event()
        # Not a plain dict: to find the oldest of that, it goes past all that were removed before.
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._heard_at: dict[bytes, float] = {}
        """Of what is being read."""
        self._looking: asyncio.Task[None] | None = None
        self._look_once_more = False
        self._is_open = False
        self._announced = ExitStack()

    @property
    def polling(self) -> KizunaError | None:
        """Why it has to look for messages; None while it is told of them."""
        return self._hearing.polling

    async def __aenter__(self) -> Self:
        self._is_open = True
        self._units.listenings.add(self)
        try:
            await self._hearing.open()
            await self._look(first=True)
        except BaseException:
            await self.__aexit__()
            raise
        self._announced.enter_context(self._units.announcing.announced(self._unit.name, "listens", self._hearing))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._units.listenings.discard(self)
        self._announced.close()
        await self._hearing.aclose()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self._something.set()

    async def __aiter__(self) -> AsyncIterator[Message]:
        if self._is_open:
            while (message := await self.next()) is not None:
                yield message
        else:
            async with self:
                while (message := await self.next()) is not None:
                    yield message

    def __await__(self) -> Generator[Any, None, None]:
        return self._call_handler().__await__()

    async def next(self, *, timeout_s: float | None = None) -> Message | None:
        """The next message; None if none came in that time, or it is over."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                while not self._messages and self._is_open and not self._units.is_closed:
                    self._something.clear()
                    await self._something.wait()
        except TimeoutError:
            if not limit.expired():
                raise
        self._room.set()
        return self._messages.popleft()[1] if self._messages else None

    def close(self) -> None:
        """Nothing more will be heard: whoever iterates comes to the end of what there is."""
        self._something.set()
        self._room.set()

    # -- told by the reading ----------------------------------------------------------------------------

    def take_value(self, key: bytes, value: bytes | None) -> None:
        at_s = self._heard_at.pop(key, None)
        if value is not None:
            self._hand_on(key, value, time.monotonic() if at_s is None else at_s, found=False)

    def take_trouble(self, key: bytes, error: StoreError) -> None:
        self._heard_at.pop(key, None)
        log.debug("message not read", extra={"key": key, "error": str(error)})
        self._look_soon()

    # -- inside -----------------------------------------------------------------------------------------

    def _heard(self, keys: list[bytes]) -> None:
        now = time.monotonic()
        for key in keys:
            self._heard_at.setdefault(key, now)
        self._units.reading.ask([(key, self) for key in keys])

    def _hand_on(self, key: bytes, value: bytes, at_s: float, *, found: bool) -> None:
        path = read_path(key, self._units.root)
        if path is None or not self._is_open:
            return
        if len(self._messages) >= self._most:
            self._forget_waiting()
            self._look_soon()
            return
        self._remember(key, value)
        self._counts.heard += 1
        self._messages.append((key, Message(self._unit, self._units.root, path, value, at_s, found=found)))
        self._something.set()

    def _forget_waiting(self) -> None:
        """Nobody has read it: it will be found again."""
        for key, _ in self._messages:
            self._seen.pop(key, None)
        self._counts.heard -= len(self._messages)
        self._messages.clear()

    def _remember(self, key: bytes, value: bytes) -> None:
        self._seen.pop(key, None)
        self._seen[key] = hash(value)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def _look_soon(self) -> None:
        if self._looking is not None and not self._looking.done():
            self._look_once_more = True
        elif self._is_open:
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking(), name="kizuna units look")

    async def _keep_looking(self) -> None:
        self._look_once_more = True
        while self._look_once_more:
            self._look_once_more = False
            try:
                self._counts.resyncs += 1
                await self._look(first=False)
            except KizunaError as error:
                log.warning("messages not looked for", extra={"pattern": self._pattern, "error": str(error)})
                self._look_once_more = True
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _look(self, *, first: bool) -> None:
        """Hand on what is there and was not handed on yet; at first, of what is there only requests are news."""
        async for keys in Scan(self._units.store, [self._pattern], type="string"):
            values = await read_values(self._units.store, keys)
            for key, value in zip(keys, values, strict=True):
                if value is not None and self._seen.get(key) != hash(value):
                    if first and not _is_request(key):
                        self._remember(key, value)
                    else:
                        await self._hand_on_found(key, value, first=first)

    async def _hand_on_found(self, key: bytes, value: bytes, *, first: bool) -> None:
        # What was found can wait for a slow reader; but whoever is about to begin does not read yet.
        while len(self._messages) >= self._most and self._is_open and not first:
            self._room.clear()
            await self._room.wait()
        self._hand_on(key, value, time.monotonic(), found=True)

    async def _call_handler(self) -> None:
        if self._handler is None:
            raise TypeError("listen() without a handler is to be iterated over: `async for message in unit.listen(…)`")
        places = asyncio.Semaphore(self._units.settings.concurrency)
        async with asyncio.TaskGroup() as tasks, self:
            async for message in self:
                await places.acquire()
                tasks.create_task(self._call(message)).add_done_callback(lambda _: places.release())

    async def _call(self, message: Message) -> None:
        assert self._handler is not None  # noqa: S101 - asked before
        try:
            if self._handler.is_async:
                await self._handler.function(message)
            else:
                await asyncio.to_thread(called, self._handler.function, message, {})
        except Exception:
            log.exception("listener failed", extra={"path": message.path})


def _is_request(key: bytes) -> bool:
    return key.split(b"/")[-2] == b"req"
