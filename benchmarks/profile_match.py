"""Where the microseconds of a CreateTicket over gRPC go, with 64 in flight: `python -m benchmarks.profile_match`.

The whole is measured as it is, in CPU time of the frontend process, and then what it is made of, each by itself:

    sockets, the loop            what is in no other part
    └ HTTP/2 and gRPC            bytes in, bytes out, a method that returns what it was asked
      └ headers                  those that a client of Go sends
    └ protocol buffers           the request read, the ticket written
    └ creating                   k.match.create_from, 64 callers
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles

from benchmarks.loops import Loop, run_on
from benchmarks.match_peers.building import build
from benchmarks.match_peers.kizuna import serving
from benchmarks.match_peers.systems import SERVER
from benchmarks.reporting import Report
from kizuna import connect
from kizuna.match.matchmaking import Matchmaking
from kizuna.match.openmatch import frontend_pb2
from kizuna.match.serving.http2 import frames
from kizuna.match.serving.http2.calls import Calls, Method
from kizuna.match.serving.http2.connection import Connection
from kizuna.match.serving.http2.hpack import HeaderReader, written
from kizuna.match.serving.http2.messages import framed
from kizuna.match.tickets import new_ticket
from kizuna.testing.servers import ServerProcess

CALLERS = 64
ROUNDS = 12
ROUND_S = 0.4
PATH = b"/openmatch.FrontendService/CreateTicket"
HEADERS = written([
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", PATH), (b":authority", b"127.0.0.1:50504"),
    (b"content-type", b"application/grpc"), (b"user-agent", b"grpc-go/1.76.0"), (b"te", b"trailers"),
])  # fmt: skip
REQUEST = frontend_pb2.CreateTicketRequest(
    ticket=new_ticket(tags=["eu-west"], doubles={"skill": 1500.0}, strings={"mode": "ranked"})
)
BODY = framed(REQUEST.SerializeToString())
Part = Callable[[], Awaitable[float]]
"""Microseconds for one."""


def main() -> None:
    report = Report()
    with ServerProcess(config=SERVER) as server:
        for loop in ("asyncio", "uvloop"):
            _show(report, loop, run_on(loop, profile(server.url)))


async def profile(url: str) -> dict[str, float]:
    async with connect(url) as k, serving(k.match, k.settings.match) as target:
        game = await _game()
        parts: dict[str, Part] = {
            "whole": lambda: _whole(game, target),
            "HTTP/2 and gRPC": _http2,
            "headers": _headers,
            "protocol buffers": _buffers,
            "creating": lambda: _creating(k.match),
        }
        taken: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(ROUNDS):
            for name, part in parts.items():
                taken[name].append(await part())
        game.terminate()
        await game.wait()
    # The lowest tenth: whoever else is on the machine adds to what is measured, and never takes away.
    return {name: quantiles(of_one, n=10)[0] for name, of_one in taken.items()}


async def _game() -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(build("load"), stdin=pipe, stdout=pipe)


async def _whole(game: asyncio.subprocess.Process, target: str) -> float:
    order = {"order": "create", "targets": [target], "in_flight": CALLERS, "seconds": ROUND_S}
    assert game.stdin is not None
    assert game.stdout is not None
    began_s = time.process_time()
    game.stdin.write(json.dumps(order).encode() + b"\n")
    facts = json.loads(await game.stdout.readline())
    return float((time.process_time() - began_s) / facts["done"] * 1e6)


async def _creating(match: Matchmaking) -> float:
    created, began_s, ends_at = 0, time.process_time(), time.perf_counter() + ROUND_S

    async def caller() -> None:
        nonlocal created
        while time.perf_counter() < ends_at:
            await match.create_from(REQUEST.ticket)
            created += 1

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return (time.process_time() - began_s) / created * 1e6


async def _http2() -> float:
    """Of one connection, that reads eight calls at a time, as with eight connections of eight in flight each."""
    calls = Calls({PATH: Method(_echo)}, 1 << 20, set())
    connection = Connection(calls.accept, lambda: None, time.monotonic)
    calls.use(connection)
    connection.read(frames.PREFACE + frames.settings() + frames.window_update(0, 1 << 30))
    connection.read(_call(1, _first_block()))
    await asyncio.sleep(0)
    chunks = [b"".join(_call(n * 16 + 2 * m + 3, _table_block(n)) for m in range(8)) for n in range(500)]
    began_s = time.process_time()
    for chunk in chunks:
        connection.read(chunk)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connection.take()
    return (time.process_time() - began_s) / (len(chunks) * 8) * 1e6


async def _echo(asked: bytes) -> bytes:
    return asked


def _call(stream: int, block: bytes) -> bytes:
    head = frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block)
    return head + frames.frame(frames.DATA, frames.END_STREAM, stream, BODY)


def _first_block() -> bytes:
    """All headers, to be remembered."""
    return HEADERS.replace(b"\0", b"\x40")


def _table_block(number: int) -> bytes:
    """The usual one: all of them from the table, and a deadline that is always another."""
    deadline = b"\x00\x0cgrpc-timeout\x09%08dm" % (10_000 + number)
    return b"\x83\x86" + bytes(range(0xBE, 0xBE + 5)) + deadline


async def _headers() -> float:
    reader = HeaderReader(16_384)
    reader.read(_first_block())
    blocks = [_table_block(number) for number in range(4_000)]
    began_s = time.process_time()
    for block in blocks:
        reader.read(block)
    return (time.process_time() - began_s) / len(blocks) * 1e6


async def _buffers() -> float:
    body, parse = BODY[5:], frontend_pb2.CreateTicketRequest.FromString
    began_s = time.process_time()
    for _ in range(4_000):
        parse(body).ticket.SerializeToString()
    return (time.process_time() - began_s) / 4_000 * 1e6


def _show(report: Report, loop: Loop, us: dict[str, float]) -> None:
    rest = us["whole"] - us["HTTP/2 and gRPC"] - us["protocol buffers"] - us["creating"]
    report.table(
        [f"CPU µs of a CreateTicket, {loop}", ""],
        [
            ["headers", us["headers"]],
            ["HTTP/2 and gRPC, the rest", us["HTTP/2 and gRPC"] - us["headers"]],
            ["protocol buffers", us["protocol buffers"]],
            ["creating", us["creating"]],
            ["sockets, the loop, what is in no other part", rest],
            ["whole", us["whole"]],
        ],
    )


if __name__ == "__main__":
    main()
