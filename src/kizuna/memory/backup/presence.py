"""Whether the server is there.

    there ──silent for memory.fallback_after_s──> away ──answers again──> replaying ──nothing is journalled──> there

Nothing goes to the server again before all that was journalled has happened there: whoever reads sees his own writes,
wherever they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kizuna.errors import KizunaError, OutcomeUnknown, StoreError, Unreachable
from kizuna.memory.backup import journal
from kizuna.memory.backup.items import Doubt
from kizuna.memory.backup.silence import Silence, is_away

if TYPE_CHECKING:
    from kizuna.memory.backup.backup import Backup
    from kizuna.settings import Settings

log = logging.getLogger("kizuna.memory")

T = TypeVar("T")

# Between two attempts of a call whose connection broke.
_TRY_AGAIN_S = 0.03
# How often is looked whether the server is back: soon at first, and then once in a second.
_FIRST_PROBE_S, _LONGEST_PROBE_S = 0.2, 1.0
PROBE_TIMEOUT_S = 1.0
# How often is looked for what a process left behind that has died.
_LOOK_EVERY_S = 1.0
# And for how much is in the file.
_COUNT_EVERY_S = 10.0
# Replayed while others still write; only then are they made to wait for the rest.
_ROUNDS = 3
# If there is no less of it after this time, they write as fast as it is replayed: then they are made to wait anyway,
# and let go only for a moment in between.
_OUTRUN_AFTER_S = 5.0
_LET_GO_S = 0.02
# How often is looked whether another process has replayed what we wait for.
_ELSEWHERE_S = 0.02


class Presence:
    def __init__(self, backup: Backup, settings: Settings) -> None:
        self.is_away = False
        self.may_ask = asyncio.Event()
        """Cleared while the last journalled writes are replayed, which everybody waits for."""
        self.may_ask.set()
        self.patience_s = settings.memory.fallback_after_s
        self._backup, self._timeout_s = backup, settings.store.timeout_s
        self._silence = Silence(backup.ask_time, self.patience_s, self.go_away)
        self._why: StoreError = Unreachable("not asked yet", "the server", "try again")
        self._left = asyncio.Event()
        self._pending_at: tuple[int, float] | None = None
        self._is_outrun = False
        self._complained_of = ""

    def go_away(self, error: StoreError) -> None:
        """From now on, the copy answers; also those who wait for the server now."""
        if not self.is_away:
            self.is_away, self._why = True, error
            log.warning("the server is away; the copy answers", extra={"error": str(error)})
            self._left.set()
        self._silence.let_go()

    def why(self) -> StoreError:
        """One for each who is told."""
        return type(self._why)(*self._why.args)

    def unknown(self) -> OutcomeUnknown:
        hint = "look whether it happened before you repeat it"
        return OutcomeUnknown("the server went away before it answered", self._why.server, hint)

    async def aclose(self) -> None:
        await self._silence.aclose()

    # -- asking it ----------------------------------------------------------------------------------------

    async def asked(self, call: Callable[[], Awaitable[T]]) -> tuple[T | StoreError, Doubt | None]:
        """The server's answer; or why there is none, after which we are away, and whether it may have done it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_in_doubt, why = False, self._why
        while True:
            try:
                return await self._watched(call), None
            except StoreError as error:
                if not is_away(error):
                    raise
                why, is_in_doubt = error, is_in_doubt or error.outcome == "unknown"
            except TimeoutError:
                # Whoever let us go has said why.
                why, is_in_doubt = self.why(), True
            if self.is_away or loop.time() >= began + self.patience_s:
                break
            # Repeated, it is known by its token. A connection that broke is there again in no time.
            await asyncio.sleep(_TRY_AGAIN_S)
        self.go_away(why)
        return why, self._doubt(loop.time() - began) if is_in_doubt else None

    def _doubt(self, waited_s: float) -> Doubt:
        now_ms = self._backup.thread.now_ms()
        # For as long as a command may be under way, what is in the line may still be sent.
        return Doubt(now_ms - int(waited_s * 1000), now_ms + int(self._timeout_s * 1000))

    async def _watched(self, call: Callable[[], Awaitable[T]]) -> T:
        async with asyncio.timeout(None) as limit:
            self._silence.begin(limit)
            try:
                return await call()
            finally:
                self._silence.end(limit)

    # -- coming back --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: find out when the server is back; and while it is there, see to what others have left in the
        journal."""
        loop, pause_s, counts_at = asyncio.get_running_loop(), _FIRST_PROBE_S, 0.0
        while True:
            try:
                if loop.time() >= counts_at:
                    await self._backup.contents()
                    counts_at = loop.time() + _COUNT_EVERY_S
                if self.is_away:
                    await self._come_back()
                elif await self._backup.pending():
                    await self._backup.replay()
                pause_s = _FIRST_PROBE_S
            except KizunaError as error:
                self._forget_pace()
                pause_s = min(pause_s * 1.5, _LONGEST_PROBE_S)
                self._complain(error)
            except Exception:
                log.exception("the journal was not replayed")
                self._forget_pace()
                pause_s = _LONGEST_PROBE_S
            if self._is_outrun:
                pause_s = _LET_GO_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s if self.is_away else _LOOK_EVERY_S):
                    await self._left.wait()
            self._left.clear()

    def _complain(self, error: KizunaError) -> None:
        """That it is away was said. That it is there, and takes nothing, is something else; it is said once."""
        if not isinstance(error, (Unreachable, OutcomeUnknown)) and str(error) != self._complained_of:
            self._complained_of = str(error)
            log.warning("the journal was not replayed", extra={"error": str(error)})

    async def _come_back(self) -> None:
        """Replay all that is journalled; most of it while others still write, and the rest while they wait."""
        await self._backup.ask_time(PROBE_TIMEOUT_S)
        for _ in range(_ROUNDS):
            if not self._is_outrun and not await self._gets_less():
                return
        self.may_ask.clear()
        try:
            # What this process wrote has a number by now; what others write meanwhile, they replay themselves.
            last = await self._backup.thread.do(journal.last_number)
            async with asyncio.timeout(self.patience_s):
                if await self._is_replayed(last):
                    self.is_away = False
                    self._forget_pace()
                    log.warning("the server is back", extra={"replayed": self._backup.replayed.done})
        except TimeoutError:
            log.info("not back yet: others wait for too long")
        finally:
            self.may_ask.set()

    async def _is_replayed(self, last: int) -> bool:
        """By us, or by another process, which does not tell us when it is done."""
        loop = asyncio.get_running_loop()
        # A little less than others wait, so that what has happened is noted as well.
        ends_at = loop.time() + 0.8 * self.patience_s
        while True:
            replayed = await self._backup.replay(last, for_s=ends_at - loop.time())
            if replayed.waits:
                # It is not we who are too slow.
                self._forget_pace()
            if not replayed.left or replayed.waits or loop.time() >= ends_at:
                return not replayed.left
            await asyncio.sleep(_ELSEWHERE_S)

    async def _gets_less(self) -> bool:
        """A round of replaying while others still write. False if it has to be tried again later. If as much is written
        as is replayed, by whichever process, that would go on for ever: then all that helps is to make others wait."""
        replayed = await self._backup.replay(for_s=_OUTRUN_AFTER_S)
        pending, now = await self._backup.pending(), asyncio.get_running_loop().time()
        before, since = self._pending_at or (pending, now)
        if self._pending_at is None or now - since >= _OUTRUN_AFTER_S:
            self._pending_at = pending, now
            self._is_outrun = now > since and pending >= before and not replayed.waits
        return self._is_outrun or not replayed.left

    def _forget_pace(self) -> None:
        self._pending_at, self._is_outrun = None, False
