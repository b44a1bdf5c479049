"""Where the microseconds of a command go, with 64 callers: `python -m benchmarks.profile_wire`.

A profiler would multiply what it measures: a command is a few microseconds, spread over twenty functions. So
the whole is measured as it is, in CPU time of the process, and then with layers taken away:

    store.call               which link, is it connected, has it room; deadline; repetition if the server did not run it
    └ wire.send              the wire, from packing to the reply
      └ a future, woken      nothing but callers, the loop, and futures that are resolved in one callback

Within the wire, what happens once for many commands is timed in place (write, data_received), and what is a call
or two for each command in a loop of its own (packing, the line, parsing). What remains is named as such.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

import hiredis

from benchmarks.loops import LOOPS, Loop, run_on
from benchmarks.reporting import Report
from kizuna import connect
from kizuna.store.client import Store
from kizuna.store.wire import Command, Wire
from kizuna.testing.servers import ServerProcess

CALLERS = 64
AWAITS = 100
ROUNDS = 40
VALUE = b"v" * 100
COMMAND: Command = ("SET", "benchmark:64", VALUE)
REPLIES = b"+OK\r\n" * CALLERS

Operation = Callable[[str], Awaitable[Any]]


class InPlace:
    """CPU time within some functions of a live wire, and how often it wrote."""

    def __init__(self) -> None:
        self.write_ns = self.received_ns = self.writes = 0


async def profile(url: str) -> dict[str, float]:
    """Microseconds a command, by part, in the order of their happening; and `commands a write`."""
    async with connect(url) as k:
        layers = _layers(k.store)
        taken: dict[str, list[float]] = {name: [] for name in layers}
        single: dict[str, list[float]] = {name: [] for name in _SINGLE}
        timed: list[InPlace] = []
        for _ in range(ROUNDS):
            for name, operation in layers.items():
                taken[name].append(await _cpu_us(operation))
            for name, part in _SINGLE.items():
                single[name].append(part() / CALLERS)
            timed.append(await _timed_in_place(k.store, layers["store.call"]))
    whole = {name: _undisturbed(of_one) for name, of_one in taken.items()}
    return _parts(whole, {name: _undisturbed(of_one) for name, of_one in single.items()}, timed)


def _undisturbed(measured: list[float]) -> float:
    """The lowest tenth: whoever else is on the machine adds to what is measured, and never takes away."""
    return quantiles(measured, n=10)[0]


def _parts(whole: dict[str, float], single: dict[str, float], timed: list[InPlace]) -> dict[str, float]:
    commands = CALLERS * AWAITS
    turns = sum(of_one.writes for of_one in timed) / (commands * ROUNDS)
    write_us = _undisturbed([of_one.write_ns for of_one in timed]) / commands / 1000
    received_us = _undisturbed([of_one.received_ns for of_one in timed]) / commands / 1000
    receive_us = single["receive"] * CALLERS * turns
    waking_us = whole["a future, woken"] - single["future"]
    wire_us = whole["wire.send"] - whole["a future, woken"]
    known_us = single["pack"] + single["line"] + write_us + receive_us + single["parse"]
    return {
        "routing: Store, Topology, Link": whole["store.call"] - whole["wire.send"] - single["deadline"],
        "deadline": single["deadline"],
        "packing (hiredis)": single["pack"],
        "future": single["future"],
        "line: append, count, take off": single["line"],
        "joining and socket write": write_us,
        "socket read": receive_us,
        "parsing (hiredis)": single["parse"],
        "waking the awaiting task, its turn in the loop": waking_us,
        "rest: select, callbacks, what is in no other part": wire_us - known_us,
        "whole": whole["store.call"],
        "data_received, timed in place": received_us,
        "commands a write": 1 / turns,
    }


def _layers(store: Store) -> dict[str, Operation]:
    wire = _wire(store)
    loop = asyncio.get_running_loop()
    far = loop.time() + 3_600
    waiting: list[asyncio.Future[None]] = []

    def wake_all() -> None:
        woken = waiting.copy()
        waiting.clear()
        for future in woken:
            future.set_result(None)

    def nothing_but_a_future(_: str) -> asyncio.Future[None]:
        if not waiting:
            loop.call_soon(wake_all)
        future = loop.create_future()
        waiting.append(future)
        return future

    return {
        "a future, woken": nothing_but_a_future,
        "wire.send": lambda key: wire.send(("SET", key, VALUE), far),
        "store.call": lambda key: store.call("SET", key, VALUE),
    }


def _wire(store: Store) -> Wire:
    (link,) = store.topology.primaries()
    assert link.wire is not None
    return link.wire


async def _cpu_us(operation: Operation) -> float:
    """CPU time of the process for one command, with all callers at work."""

    async def call(key: str) -> None:
        for _ in range(AWAITS):
            await operation(key)

    began = time.process_time_ns()
    await asyncio.gather(*(call(f"benchmark:{caller}") for caller in range(CALLERS)))
    return (time.process_time_ns() - began) / (CALLERS * AWAITS) / 1000


# -- in place ---------------------------------------------------------------------------------------------


async def _timed_in_place(store: Store, operation: Operation) -> InPlace:
    with _watched(_wire(store)) as in_place:
        await _cpu_us(operation)
    return in_place


@contextmanager
def _watched(wire: Wire) -> Iterator[InPlace]:
    in_place, transport = InPlace(), wire._transport
    flush, data_received, clock = wire.flush, wire.data_received, time.thread_time_ns

    def timed_flush() -> None:
        began = clock()
        flush()
        in_place.write_ns += clock() - began
        in_place.writes += 1

    def timed_data_received(data: bytes) -> None:
        began = clock()
        data_received(data)
        in_place.received_ns += clock() - began

    wire.flush, wire.data_received = timed_flush, timed_data_received  # type: ignore[method-assign]
    # uvloop looks the method up only here.
    transport.set_protocol(wire)
    try:
        yield in_place
    finally:
        del wire.flush, wire.data_received
        transport.set_protocol(wire)


# -- one by one: CPU microseconds for as many commands as there are callers -------------------------------


def _timed(work: Callable[[], None], times: int = 50) -> float:
    work()
    began = time.thread_time_ns()
    for _ in range(times):
        work()
    return (time.thread_time_ns() - began) / times / 1000


def _pack() -> float:
    def work() -> None:
        for _ in range(CALLERS):
            hiredis.pack_command(COMMAND)  # type: ignore[arg-type]  # its stub knows one-tuples only

    return _timed(work)


def _future() -> float:
    loop = asyncio.get_running_loop()

    def work() -> None:
        for _ in range(CALLERS):
            loop.create_future()

    return _timed(work)


def _line() -> float:
    future = asyncio.get_running_loop().create_future()
    packed, line = b"x" * 140, deque[tuple[asyncio.Future[Any], int, float]]()
    outgoing: list[bytes] = []

    def work() -> None:
        in_flight = 0
        for _ in range(CALLERS):
            line.append((future, len(packed), 1.0))
            outgoing.append(packed)
            in_flight += len(packed)
        outgoing.clear()
        for _ in range(CALLERS):
            taken, size, _deadline = line.popleft()
            in_flight -= size
            taken.done()

    return _timed(work)


def _parse() -> float:
    nothing = object()
    reader = hiredis.Reader(notEnoughData=nothing)

    def work() -> None:
        reader.feed(REPLIES)
        while reader.gets() is not nothing:
            pass

    return _timed(work)


def _deadline() -> float:
    loop, timeout_s, watch_at = asyncio.get_running_loop(), 5.0, 0.0

    def work() -> None:
        for _ in range(CALLERS):
            if loop.time() + timeout_s < watch_at:
                raise AssertionError("time runs backwards")

    return _timed(work)


def _receive() -> float:
    """One read of all replies, from a TCP connection on the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as ours:
        theirs, _ = listening.accept()
        with theirs:
            # All sent before the first is read, so that one pair of looks at the clock is enough for all.
            theirs.sendall(REPLIES * 50)
            began = time.thread_time_ns()
            for _ in range(50):
                ours.recv(len(REPLIES))
            return (time.thread_time_ns() - began) / 50 / 1000


_SINGLE: dict[str, Callable[[], float]] = {
    "pack": _pack,
    "future": _future,
    "line": _line,
    "parse": _parse,
    "deadline": _deadline,
    "receive": _receive,
}


def main() -> None:
    report = Report()
    with ServerProcess() as server:
        profiles: dict[Loop, dict[str, float]] = {loop: run_on(loop, profile(server.url)) for loop in LOOPS}
    report.title(f"SET of {len(VALUE)} bytes through store.call, {CALLERS} callers: CPU µs for each command")
    report.table(["part", *profiles], [[part, *(of[part] for of in profiles.values())] for part in profiles["asyncio"]])


if __name__ == "__main__":
    main()
