from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kizuna.errors import ServiceFailed, ServiceStuck
from kizuna.service import Running, run_until_signalled, running
from kizuna.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


class Recorded:
    """A service that writes down what happens to it."""

    def __init__(self, name: str, events: list[str], *, drain_s: float = 0.0) -> None:
        self.name, self.events, self.drain_s = name, events, drain_s
        self.break_down = asyncio.Event()
        self.error: Exception | None = None

    async def run(self, started: asyncio.Event) -> None:
        self.events.append(f"{self.name} starts")
        await asyncio.sleep(0)
        started.set()
        try:
            await self.break_down.wait()
            if self.error:
                raise self.error
        except asyncio.CancelledError:
            await self._drain()
            raise
        finally:
            self.events.append(f"{self.name} is gone")

    async def _drain(self) -> None:
        try:
            await asyncio.sleep(self.drain_s)
        except asyncio.CancelledError:
            self.events.append(f"{self.name} stops now")
            raise

    def fail(self, error: Exception | None) -> None:
        self.error = error
        self.break_down.set()

    async def fail_while_the_block_waits(self, error: Exception | None) -> None:
        self.fail(error)
        await asyncio.Event().wait()

    async def fail_in_this_moment(self, error: Exception, and_raise: Exception | None = None) -> None:
        """Return, or raise, in the same turn of the loop in which the service ends."""
        self.fail(error)
        await asyncio.sleep(0)
        if and_raise:
            raise and_raise


class NeverStarts:
    """Raises, returns or hangs before it has started."""

    def __init__(self, outcome: Exception | str) -> None:
        self.outcome = outcome

    async def run(self, started: asyncio.Event) -> None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome == "hangs":
            await asyncio.Event().wait()


class FailsToStop:
    async def run(self, started: asyncio.Event) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the socket was closed twice")


class Stuck:
    """Ignores every cancellation until it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def run(self, started: asyncio.Event) -> None:
        started.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue


class SignalsItsProcessWhenStopped:
    async def run(self, started: asyncio.Event) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.02)


@pytest.fixture
def events() -> list[str]:
    return []


async def test_services_start_in_order_and_stop_in_reverse(events: list[str]) -> None:
    async with running(Recorded("store", events), Recorded("leader", events)):
        events.append("block")

    assert events == ["store starts", "leader starts", "block", "leader is gone", "store is gone"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_no_services_are_no_problem() -> None:
    async with running() as block:
        assert block.phase == "started"


@pytest.mark.parametrize("outcome", [OSError("port 80 is taken"), "returns"])
async def test_a_service_that_cannot_start_is_reported_after_the_others_were_stopped(
    events: list[str], outcome: Exception | str
) -> None:
    with pytest.raises((OSError, ServiceFailed)) as refused:
        async with running(Recorded("store", events), NeverStarts(outcome), Recorded("leader", events)):
            events.append("block")

    assert events == ["store starts", "store is gone"]
    assert str(refused.value) in (
        "port 80 is taken",
        "NeverStarts ended by itself: it returned before it had started",
    )


async def test_a_cancelled_start_stops_what_was_started_and_stays_a_cancellation(events: list[str]) -> None:
    async def start() -> None:
        async with running(Recorded("store", events), NeverStarts("hangs")):
            events.append("block")

    starting = asyncio.create_task(start())
    await eventually(lambda: events)
    starting.cancel()
    await asyncio.wait([starting])

    assert starting.cancelled()
    assert events == ["store starts", "store is gone"]


@pytest.mark.parametrize("error", [ValueError("bad frame"), None])
async def test_a_service_that_ends_ends_the_block_with_the_cause(events: list[str], error: Exception | None) -> None:
    weak = Recorded("weak", events)

    with pytest.raises(ServiceFailed) as failed:
        async with running(Recorded("store", events), weak):
            await weak.fail_while_the_block_waits(error)

    assert failed.value.__cause__ is error
    reason = "ValueError('bad frame')" if error else "it returned"
    assert str(failed.value) == f"Recorded ended by itself: {reason}"
    assert events == ["store starts", "weak starts", "weak is gone", "store is gone"]
    this = asyncio.current_task()
    assert this is not None
    assert this.cancelling() == 0
    await asyncio.sleep(0)  # no cancellation is left over for whoever comes next


async def test_a_service_that_fails_while_another_starts_ends_the_start(events: list[str]) -> None:
    weak = Recorded("weak", events)
    asyncio.get_running_loop().call_later(0.02, weak.fail, ValueError("bad frame"))

    with pytest.raises(ServiceFailed, match="bad frame"):
        async with running(weak, NeverStarts("hangs")):
            events.append("block")

    assert events == ["weak starts", "weak is gone"]


async def test_a_failure_in_the_last_moment_of_the_block_is_not_lost(events: list[str]) -> None:
    weak = Recorded("weak", events)

    with pytest.raises(ServiceFailed, match="bad frame"):
        async with running(weak):
            await weak.fail_in_this_moment(ValueError("bad frame"))


async def test_a_failure_while_others_drain_is_not_lost(events: list[str]) -> None:
    weak = Recorded("weak", events)

    with pytest.raises(ServiceFailed, match="bad frame"):
        async with running(weak, Recorded("slow", events, drain_s=0.1)):
            asyncio.get_running_loop().call_later(0.05, weak.fail, ValueError("bad frame"))


async def test_the_blocks_own_error_goes_up_with_a_note_about_the_service(events: list[str]) -> None:
    weak = Recorded("weak", events)

    with pytest.raises(KeyError) as error:
        async with running(weak):
            await weak.fail_in_this_moment(ValueError("bad frame"), and_raise=KeyError("mine"))

    assert error.value.__notes__ == ["besides: Recorded ended by itself: ValueError('bad frame')"]


async def test_an_error_of_the_block_stops_the_services(events: list[str]) -> None:
    with pytest.raises(KeyError):
        async with running(Recorded("store", events)):
            raise KeyError("mine")

    assert events == ["store starts", "store is gone"]


async def test_an_error_while_stopping_is_raised_after_all_were_stopped(events: list[str]) -> None:
    with pytest.raises(OSError, match="closed twice"):
        async with running(Recorded("store", events), FailsToStop()):
            pass

    assert events == ["store starts", "store is gone"]


async def test_a_cancellation_from_outside_stays_one_even_if_a_service_fails_too(events: list[str]) -> None:
    weak, blocks = Recorded("weak", events), list[Running]()

    async def run() -> None:
        async with running(weak) as block:
            blocks.append(block)
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await eventually(lambda: blocks)
    weak.fail(ValueError("bad frame"))
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()


async def test_a_timeout_around_the_block_stays_a_timeout(events: list[str]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), running(Recorded("store", events)):
            await asyncio.Event().wait()

    assert events == ["store starts", "store is gone"]


async def test_a_service_may_drain_within_its_time(events: list[str]) -> None:
    async with running(Recorded("slow", events, drain_s=0.15), stop_timeout_s=5):
        pass

    assert events == ["slow starts", "slow is gone"]


async def test_a_service_that_drains_too_long_is_told_to_stop_now(events: list[str]) -> None:
    began = time.monotonic()
    async with running(Recorded("store", events), Recorded("slow", events, drain_s=30), stop_timeout_s=0.1):
        pass

    assert time.monotonic() - began < 2
    assert events == ["store starts", "slow starts", "slow stops now", "slow is gone", "store is gone"]


async def test_stop_now_cuts_the_drain_of_every_service_short(events: list[str]) -> None:
    slow = [Recorded(name, events, drain_s=30) for name in ("a", "b")]
    began = time.monotonic()
    async with running(*slow) as block:
        asyncio.get_running_loop().call_later(0.1, block.stop_now)

    assert time.monotonic() - began < 2
    assert events[2:] == ["b stops now", "b is gone", "a stops now", "a is gone"]


async def test_a_cancellation_during_the_drain_stops_now_and_stays_a_cancellation(events: list[str]) -> None:
    blocks: list[Running] = []

    async def run() -> None:
        async with running(Recorded("slow", events, drain_s=30)) as block:
            blocks.append(block)

    task = asyncio.create_task(run())
    await eventually(lambda: blocks and blocks[0].phase == "stopping")
    task.cancel()
    await asyncio.wait([task], timeout=15)

    assert task.cancelled()
    assert events == ["slow starts", "slow stops now", "slow is gone"]


async def test_a_stuck_service_is_reported_after_the_others_were_stopped(
    events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Stuck()

    with pytest.raises(ServiceStuck) as error:
        async with running(Recorded("store", events), stuck, stop_timeout_s=0.1):
            pass
    stuck.released.set()

    assert error.value.service == "Stuck"
    assert 2 <= error.value.waited_s < 4
    assert events == ["store starts", "store is gone"]
    assert ("kizuna.service", logging.ERROR, "service stuck") in caplog.record_tuples


async def test_failures_are_logged_with_fields(events: list[str], caplog: pytest.LogCaptureFixture) -> None:
    weak = Recorded("weak", events)
    with pytest.raises(ServiceFailed):
        async with running(weak):
            await weak.fail_while_the_block_waits(ValueError("bad frame"))

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    fields = vars(record)
    assert (record.message, fields["service"], fields["error"]) == (
        "service failed",
        "Recorded",
        "ValueError('bad frame')",
    )


async def test_blocks_can_be_nested(events: list[str]) -> None:
    weak = Recorded("weak", events)

    async with running(Recorded("outer", events)):
        with pytest.raises(ServiceFailed):
            async with running(weak):
                await weak.fail_while_the_block_waits(ValueError("bad frame"))
        events.append("outer goes on")

    assert events[-2:] == ["outer goes on", "outer is gone"]


PROGRAM = """
import asyncio, signal, sys
from kizuna.service import run_until_signalled

class Slow:
    async def run(self, started):
        say("starting")
        await asyncio.sleep({start_s})
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("draining")
            try:
                await asyncio.sleep({drain_s})
            except asyncio.CancelledError:
                say("stopping now")
                raise
            say("drained")
            raise

def say(text):
    print(text, flush=True)

async def main():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    number = await run_until_signalled(Slow(), on_started=lambda: say("started"))
    after = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    say(number.name)
    say("handlers restored" if before == after else f"handlers changed: {{before}} {{after}}")
    await asyncio.sleep(0)  # no cancellation is left over

{run}
"""

RUNS = {
    "asyncio": "asyncio.run(main())",
    "uvloop": "import uvloop; uvloop.run(main())",
}


class Program:
    """A process that runs one slow service until it is signalled."""

    def __init__(self, loop: str) -> None:
        self.loop = loop
        self.process: subprocess.Popen[str]

    def start(self, *, start_s: float = 0.0, drain_s: float = 0.0) -> None:
        source = PROGRAM.format(start_s=start_s, drain_s=drain_s, run=RUNS[self.loop])
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", source], stdout=subprocess.PIPE, text=True
        )

    def says(self, *lines: str) -> None:
        assert self.process.stdout is not None
        assert [self.process.stdout.readline().rstrip() for _ in lines] == list(lines)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends_well(self) -> bool:
        return self.process.wait(timeout=120) == 0


@pytest.fixture(params=RUNS)
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    pytest.importorskip(request.param)
    program = Program(request.param)
    yield program
    program.process.kill()
    program.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains_and_handlers_are_restored(program: Program, number: signal.Signals) -> None:
    program.start(drain_s=0.1)
    program.says("starting", "started")

    program.signal(number)

    program.says("draining", "drained", number.name, "handlers restored")
    assert program.ends_well()


def test_the_second_signal_stops_now(program: Program) -> None:
    program.start(drain_s=30)
    program.says("starting", "started")

    program.signal(signal.SIGTERM)
    program.says("draining")
    program.signal(signal.SIGINT)

    program.says("stopping now", "SIGTERM", "handlers restored")
    assert program.ends_well()


def test_a_signal_during_the_start_ends_the_start(program: Program) -> None:
    program.start(start_s=30)
    program.says("starting")

    program.signal(signal.SIGTERM)

    program.says("SIGTERM", "handlers restored")
    assert program.ends_well()


async def test_a_service_that_fails_ends_the_wait_for_a_signal(events: list[str]) -> None:
    weak = Recorded("weak", events)
    before = signal.getsignal(signal.SIGTERM)

    with pytest.raises(ServiceFailed, match="bad frame"):
        await run_until_signalled(weak, on_started=lambda: weak.fail(ValueError("bad frame")))

    assert signal.getsignal(signal.SIGTERM) == before


async def test_a_service_that_cannot_start_is_reported_though_a_signal_came_too() -> None:
    with pytest.raises(OSError, match="port 80 is taken"):
        await run_until_signalled(SignalsItsProcessWhenStopped(), NeverStarts(OSError("port 80 is taken")))


async def test_a_cancelled_wait_for_a_signal_stays_a_cancellation(events: list[str]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await run_until_signalled(Recorded("store", events))

    assert events == ["store starts", "store is gone"]
