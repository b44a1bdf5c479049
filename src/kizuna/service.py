"""The start/stop contract that every long-running part obeys, and what runs parts that obey it.

    starting ──started.set()──> working ──cancelled──> draining ──cancelled again──> stopping now ──> gone

`running` keeps services for the length of a block, `run_until_signalled` for the life of a command.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from typing import TYPE_CHECKING, Literal, Protocol, Self

from kizuna.errors import ServiceFailed, ServiceStuck
from kizuna.interruption import Interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


log = logging.getLogger("kizuna.service")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

# How long a service that was told to stop now may take to let go of what it holds.
_STOP_NOW_WITHIN_S = 2.0
# A task that is cancelled twice before it runs sees one cancellation; so the second one waits a little.
_BETWEEN_CANCELS_S = 0.05


class Service(Protocol):
    async def run(self, started: asyncio.Event) -> None:
        """Set `started` once it works; go on until cancelled; return when nothing is left of it.

        The first cancellation asks it to finish what it has begun. A second one, during that, asks it to let
        go at once. Whatever it raises before `started` goes to whoever starts it; returning or raising later
        without being asked is a failure. One object need not be able to run twice at the same time.
        """


def running(*services: Service, stop_timeout_s: float = 10.0) -> Running:
    """Run services for the length of an `async with` block: started in order, stopped in reverse.

    The block begins when all have started. If one cannot, its error is raised after those before it were
    stopped. If one ends during the block, the block is cancelled and `ServiceFailed` raised, with its
    exception as the cause; an exception of the block's own goes up instead, with a note about the service.

    At the end each service has `stop_timeout_s` to drain, then it is cancelled again. One that goes on even
    so raises `ServiceStuck`, after all others were stopped. A cancellation from outside stays one; if it
    comes while services drain, they stop now.
    """
    return Running(services, stop_timeout_s)


async def run_until_signalled(
    *services: Service,
    on_started: Callable[[], None] | None = None,
    stop_timeout_s: float = 10.0,
    signals: tuple[signal.Signals, ...] = STOP_SIGNALS,
) -> signal.Signals:
    """Run services until the first of the signals, let them drain, and return that signal.

    A signal during the start ends the start. A second one makes all stop now. The handlers that were set
    with `signal.signal` before are back afterwards. For the main thread only.
    """
    block = Running(services, stop_timeout_s)
    first: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    interruption = Interruption()

    def on_signal(number: signal.Signals) -> None:
        log.info("stopping now" if first.done() else "stopping", extra={"signal": number.name})
        if first.done():
            block.stop_now()
            return
        first.set_result(number)
        if block.phase == "starting":
            interruption.cancel()

    with _handling(signals, on_signal):
        try:
            async with block:
                if on_started is not None:
                    on_started()
                await asyncio.shield(first)
        except asyncio.CancelledError:
            if not interruption.take_back():
                raise
            if block.problem is not None:
                raise block.problem from block.problem.__cause__
    return first.result()


class Running:
    """What `running` returns; `async with` gives it to the block."""

    def __init__(self, services: tuple[Service, ...], stop_timeout_s: float) -> None:
        self.phase: Literal["starting", "started", "stopping"] = "starting"
        self.problem: BaseException | None = None
        """The first thing that went wrong with a service, once it had started."""
        self._services = services
        self._stop_timeout_s = stop_timeout_s
        self._runs: list[_Run] = []
        self._hurry = asyncio.Event()
        self._interruption: Interruption

    def stop_now(self) -> None:
        """Do not wait for services to drain, now or when the block ends."""
        self._hurry.set()

    async def __aenter__(self) -> Self:
        self._interruption = Interruption()
        try:
            for service in self._services:
                await self._start(service)
        except BaseException as error:
            await self._end(error)
            raise
        self.phase = "started"
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._end(error)

    async def _start(self, service: Service) -> None:
        began, started = time.monotonic(), asyncio.Event()
        run = _Run(type(service).__name__, asyncio.create_task(service.run(started)))
        self._runs.append(run)
        await _first_of(run.task, started)
        if not started.is_set():
            run.end_is_known = True
            raise run.error() or run.ended_by_itself(" before it had started")
        log.debug("service started", extra={"service": run.service, "took_ms": _ms_since(began)})
        run.task.add_done_callback(lambda _: self._notice_end_of(run))

    def _notice_end_of(self, run: _Run) -> None:
        if run.end_is_known:
            return
        run.end_is_known = True
        failure = run.ended_by_itself()
        log.error("service failed", extra={"service": run.service, "error": failure.reason})
        self._add_problem(failure)
        if self.phase != "stopping":
            self._interruption.cancel()

    async def _end(self, error: BaseException | None) -> None:
        """Stop everything; then raise what matters more than `error`, or return to let that go up."""
        self.phase = "stopping"
        cancelled_meanwhile = await self._stop_all_whatever_comes()
        only_we_cancelled = self._interruption.take_back()
        if cancelled_meanwhile is not None:
            raise cancelled_meanwhile
        if self.problem is None:
            return
        if error is None or (isinstance(error, asyncio.CancelledError) and only_we_cancelled):
            raise self.problem
        error.add_note(f"besides: {self.problem}")

    async def _stop_all_whatever_comes(self) -> asyncio.CancelledError | None:
        # In a task of its own, because a cancellation of ours must not leave half of them running.
        stopping = asyncio.create_task(self._stop_all())
        cancelled = None
        while not stopping.done():
            try:
                await asyncio.wait([stopping])
            except asyncio.CancelledError as error:
                cancelled = error
                self.stop_now()
        stopping.result()
        return cancelled

    async def _stop_all(self) -> None:
        for run in reversed(self._runs):
            if run.task.done():
                self._notice_end_of(run)
            else:
                await self._stop(run)

    async def _stop(self, run: _Run) -> None:
        began, run.end_is_known = time.monotonic(), True
        run.task.cancel()
        await asyncio.wait([run.task], timeout=_BETWEEN_CANCELS_S)
        if not run.task.done():
            await _first_of(run.task, self._hurry, timeout_s=self._stop_timeout_s)
        if not run.task.done():
            log.warning("service stops now", extra={"service": run.service, "waited_ms": _ms_since(began)})
            run.task.cancel()
            await asyncio.wait([run.task], timeout=_STOP_NOW_WITHIN_S)
        self._record_stop_of(run, began)

    def _record_stop_of(self, run: _Run, began: float) -> None:
        fields = {"service": run.service, "took_ms": _ms_since(began)}
        if not run.task.done():
            log.error("service stuck", extra=fields)
            self._add_problem(ServiceStuck(run.service, round(time.monotonic() - began, 1)))
        elif error := run.error():
            log.error("service failed while it stopped", extra={**fields, "error": repr(error)})
            self._add_problem(error)
        else:
            log.debug("service stopped", extra=fields)

    def _add_problem(self, problem: BaseException) -> None:
        self.problem = self.problem or problem


class _Run:
    def __init__(self, service: str, task: asyncio.Task[None]) -> None:
        self.service = service
        self.task = task
        self.end_is_known = False
        """Its end was asked for, or was reported already."""

    def error(self) -> BaseException | None:
        return None if self.task.cancelled() else self.task.exception()

    def ended_by_itself(self, when: str = "") -> ServiceFailed:
        error = self.error()
        how = "it was cancelled by somebody else" if self.task.cancelled() else "it returned"
        failure = ServiceFailed(self.service, repr(error) if error else how + when)
        failure.__cause__ = error
        return failure


async def _first_of(task: asyncio.Task[None], event: asyncio.Event, *, timeout_s: float | None = None) -> None:
    """Return when the task is over, the event is set, or the time is up; the task goes on."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([task, waiting], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


@contextlib.contextmanager
def _handling(signals: tuple[signal.Signals, ...], on_signal: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            # None: it was not set from Python, and cannot be set again from there.
            if handler is not None:
                signal.signal(number, handler)


def _ms_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
