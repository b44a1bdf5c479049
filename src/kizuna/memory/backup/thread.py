"""The thread that has the file to itself, so that no disk ever holds up the event loop.

    copy(…)  ──> waiting copies ─┐
                                 ├─ all that wait, at once: one transaction for copies, one for writes, one for reads
    await do ──> waiting jobs   ─┘

Copies are not waited for. They are dropped when too many wait, and lost when the disk does not take them: then there is
a gap, which is noted in the file with the next thing that can be written at all, and whoever follows the feed looks at
everything again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from kizuna.errors import BackupNotWritten, KizunaError
from kizuna.memory.backup import contexts, copying
from kizuna.memory.backup.copying import Copy
from kizuna.memory.backup.file import CopyFile
from kizuna.store.link import copy_of

log = logging.getLogger("kizuna.memory")

T = TypeVar("T")
Work = Callable[[CopyFile], T]
How = Literal["look", "note", "read", "change"]
"""look, note: read or write what the file knows about itself. read, change: memory, while the server is away; there,
contexts end by the file's clock."""

# What waits to be copied.
_MOST_COPIES, _MOST_BYTES = 10_000, 32 * 1024 * 1024
# And what of it is put into one transaction: other processes wait for that, and the file grows by it.
_AT_ONCE, BYTES_AT_ONCE = 500, 1024 * 1024

_GATHER_S = 0.02
# How often it is tried to note a gap, while there is nothing else to write.
_NOTE_GAP_EVERY_S = 0.5


class _Job(Generic[T]):
    def __init__(self, work: Work[T], how: How, *, durably: bool) -> None:
        self.work, self.how, self.durably = work, how, durably
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.outcome: T | BaseException

    def run(self, file: CopyFile) -> None:
        """What it refuses is its own outcome; any other trouble is that of the whole transaction."""
        try:
            self.outcome = self.work(file)
        except KizunaError as refusal:
            self.outcome = refusal

    def tell(self) -> None:
        if self.future.done():
            return
        if isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(self.outcome)


class CopyThread:
    def __init__(self, path: Path, largest_bytes: int) -> None:
        self.path = path
        self.problem: KizunaError | None = None
        """Why the latest copies could not be written; None while all is well."""
        self.lost = 0
        """Copies that were dropped, or could not be written."""
        self._largest_bytes = largest_bytes
        self._offset_ms: int | None = None
        self._wake = threading.Condition()
        self._jobs: deque[_Job[Any]] = deque()
        self._copies: deque[tuple[int, Copy]] = deque()
        self._bytes = 0
        # How often something was lost, and of how much of that the file knows.
        self._gaps = self._gaps_noted = 0
        self._ends = False
        self._ready: Future[None] = Future()
        self._ended: Future[None] = Future()
        # A daemon, so that a program which ends without closing is not kept alive by it.
        self._thread = threading.Thread(target=self._work, name="kizuna-backup", daemon=True)

    async def open(self) -> None:
        """BackupDamaged, BackupNotWritten. Harmless when repeated, and from whatever loop."""
        with self._wake:
            if self._thread.ident is None and not self._ends:
                self._ready.set_running_or_notify_cancel()
                self._thread.start()
        if not self._ends:
            await asyncio.wrap_future(self._ready)

    async def aclose(self) -> None:
        """What waits is still done."""
        with self._wake:
            self._ends = True
            self._wake.notify()
        if self._thread.ident is not None:
            await asyncio.shield(asyncio.wrap_future(self._ended))
            self._thread.join()

    def copy(self, *copies: Copy) -> None:
        """Put what the server has into the file, some time soon. Never waits, never fails."""
        with self._wake:
            if self._ends:
                return
            for copy in copies:
                size = copying.size_of(copy)
                self._copies.append((size, copy))
                self._bytes += size
            # But one that is too large alone is no reason to have none.
            while len(self._copies) > 1 and (len(self._copies) > _MOST_COPIES or self._bytes > _MOST_BYTES):
                self._next_copy()
                self.lost += 1
                self._gaps += 1
            if len(self._copies) == len(copies) or self._is_urgent():
                self._wake.notify()

    def do(self, work: Work[T], how: How = "look", *, durably: bool = False) -> asyncio.Future[T]:
        """Run it in the thread, after all copies that came before. Cancelled, it may be done nevertheless."""
        job = _Job(work, how, durably=durably)
        with self._wake:
            if self._ends:
                raise BackupNotWritten(str(self.path), "it was closed")
            self._jobs.append(job)
            self._wake.notify()
        return job.future

    def set_clock(self, offset_ms: int) -> None:
        """What the server's clock is ahead of ours."""
        self._offset_ms = offset_ms

    def now_ms(self) -> int:
        """By the server's clock, as far as it is known."""
        return int(time.time() * 1000) + (self._offset_ms or 0)

    # -- in the thread ------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            file = CopyFile.open(self.path, self._largest_bytes)
        except BaseException as error:
            self._ready.set_exception(error)
            self._ended.set_result(None)
            return
        self._ready.set_result(None)
        try:
            while self._turn(file):
                pass
            file.close()
        except KizunaError as error:
            log.warning("copy not closed", extra={"file": str(self.path), "error": str(error)})
        finally:
            self._ended.set_result(None)

    def _turn(self, file: CopyFile) -> bool:
        with self._wake:
            pause_s = _NOTE_GAP_EVERY_S if self._has_gap else None
            self._wake.wait_for(lambda: self._jobs or self._copies or self._ends, timeout=pause_s)
            # Copies are in no hurry: those of a moment together cost less than each alone.
            self._wake.wait_for(self._is_urgent, timeout=_GATHER_S)
            goes_on = bool(self._jobs or self._copies) or not self._ends
            copies = self._some_copies()
            # Not before all copies that came before them.
            jobs = [] if self._copies else list(self._jobs)
            if jobs:
                self._jobs.clear()
            file.has_gap = self._has_gap
        self._keep_clock(file)
        if copies:
            self._put(file, copies)
        if jobs:
            self._run(file, jobs)
        if not (copies or jobs) and self._has_gap:
            self._note_gap(file)
        return goes_on

    @property
    def _has_gap(self) -> bool:
        return self._gaps != self._gaps_noted

    def _is_urgent(self) -> bool:
        return bool(self._jobs) or self._ends or len(self._copies) >= _AT_ONCE or self._bytes >= BYTES_AT_ONCE

    def _some_copies(self) -> list[Copy]:
        copies, begun_with = list[Copy](), self._bytes
        while self._copies and len(copies) < _AT_ONCE and begun_with - self._bytes < BYTES_AT_ONCE:
            copies.append(self._next_copy())
        return copies

    def _next_copy(self) -> Copy:
        size, copy = self._copies.popleft()
        self._bytes -= size
        return copy

    def _keep_clock(self, file: CopyFile) -> None:
        if self._offset_ms is None:
            self._offset_ms = file.offset_ms
        file.offset_ms = self._offset_ms

    @contextmanager
    def _writing(self, file: CopyFile, *, durably: bool = False) -> Iterator[None]:
        """A gap is noted with whatever is written next: a cursor beyond it is never written alone."""
        gaps = self._gaps
        with file.writing(durably=durably):
            if gaps != self._gaps_noted:
                copying.forget_pass(file)
            yield
        self._gaps_noted = gaps
        file.has_gap = self._has_gap

    def _note_gap(self, file: CopyFile) -> None:
        # If it cannot be written, it is tried again.
        with suppress(KizunaError), self._writing(file):
            pass

    def _put(self, file: CopyFile, copies: list[Copy]) -> None:
        try:
            with self._writing(file):
                lost = copying.apply_all(file, copies)
                file.keep_bound()
        except KizunaError as error:
            self._lost(len(copies), error)
        else:
            self.lost += lost
            self._recovered()

    def _lost(self, count: int, error: KizunaError) -> None:
        with self._wake:
            self.lost += count
            self._gaps += 1
        if self.problem is None:
            log.error("memory is not copied", extra={"file": str(self.path), "error": str(error)})
        self.problem = error

    def _recovered(self) -> None:
        if self.problem is not None:
            log.info("memory is copied again", extra={"file": str(self.path)})
        self.problem = None

    def _run(self, file: CopyFile, jobs: list[_Job[Any]]) -> None:
        writes = [job for job in jobs if job.how in ("note", "change")]
        reads = [job for job in jobs if job.how in ("look", "read")]
        if writes:
            self._together(writes, self._write_for, file)
        if reads:
            self._together(reads, self._read_for, file)

    def _together(
        self, jobs: list[_Job[Any]], run: Callable[[CopyFile, list[_Job[Any]]], None], file: CopyFile
    ) -> None:
        try:
            run(file, jobs)
        except BaseException as error:
            for job in jobs:
                job.outcome = copy_of(error)
        for loop in {job.loop for job in jobs}:
            _tell(loop, [job for job in jobs if job.loop is loop])

    def _write_for(self, file: CopyFile, jobs: list[_Job[Any]]) -> None:
        with self._writing(file, durably=any(job.durably for job in jobs)):
            if any(job.how == "change" for job in jobs):
                contexts.end_due(file)
            for job in jobs:
                job.run(file)

    def _read_for(self, file: CopyFile, jobs: list[_Job[Any]]) -> None:
        with file.reading():
            is_due = any(job.how == "read" for job in jobs) and contexts.are_due(file)
            if not is_due:
                for job in jobs:
                    job.run(file)
        if is_due:
            # It takes a write to end them; then it is known what is there to read.
            with self._writing(file):
                contexts.end_due(file)
                for job in jobs:
                    job.run(file)


def _tell(loop: asyncio.AbstractEventLoop, jobs: list[_Job[Any]]) -> None:
    def tell() -> None:
        for job in jobs:
            job.tell()

    # The loop may be over: then nobody waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(tell)
