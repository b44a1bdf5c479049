"""One connection, many awaiters: whose reply is whose, whatever happens to the others, the server or the network."""

from __future__ import annotations

import asyncio
import os
import random
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.errors import OutcomeUnknown, Refused, StoreError, Unreachable
from kizuna.store.dialing import Address, Dialer
from kizuna.store.wire import Wire
from kizuna.testing import ChaosProxy, ServerProcess, eventually

MakeProxy = Callable[..., Awaitable[ChaosProxy]]

# Runs for a while without looking at the clock: the clock stands still inside a script.
SLOW_SCRIPT = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + 1 end return n"


def open_files() -> int:
    """How many this process has, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def dialled(port: int, *, on_push: Any = None, **options: Any) -> AsyncIterator[Wire]:
    wire = await Dialer(**options).open(Address("127.0.0.1", port), on_push)
    try:
        yield wire
    finally:
        await wire.aclose()


@pytest.fixture
async def wire(server: ServerProcess) -> AsyncIterator[Wire]:
    async with dialled(server.port) as wire:
        yield wire


@asynccontextmanager
async def saying(answer: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    """The port of a peer that reads, and says whatever `answer` makes of it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(answer(data))
        writer.close()

    peer = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with peer:
        yield peer.sockets[0].getsockname()[1]


def with_greeting(then: bytes) -> Callable[[bytes], bytes]:
    """Greets like a server, and then says something else."""
    return lambda data: b"%1\r\n$4\r\nrole\r\n$6\r\nmaster\r\n" if data.startswith(b"*4") else then


@hypothesis_settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=30))
def test_everybody_gets_the_reply_to_his_own_question(server: ServerProcess, plans: list[list[int]]) -> None:
    async def caller(wire: Wire, name: int, pauses: list[int]) -> None:
        for number, turns in enumerate(pauses):
            for _ in range(turns):
                await asyncio.sleep(0)
            question = f"{name}-{number}".encode() * (1 + turns * 1000)
            assert await wire.send(("ECHO", question), soon()) == question

    async def talk() -> None:
        async with dialled(server.port) as wire:
            await asyncio.gather(*(caller(wire, name, pauses) for name, pauses in enumerate(plans)))

    asyncio.run(talk())


async def test_an_error_in_the_middle_of_a_pipeline_is_only_one_awaiters(wire: Wire, scratch: str) -> None:
    text, number = f"{scratch}text", f"{scratch}number"
    replies = await asyncio.gather(
        wire.send(("SET", text, "some"), soon()),
        wire.send(("LPUSH", text, "x"), soon()),
        wire.send(("INCR", number), soon()),
        wire.send(("INCR", text), soon()),
        wire.send(("NONSENSE", b"\xff\xfe"), soon()),
        wire.send(("GET", text), soon()),
        return_exceptions=True,
    )

    assert replies[0] == b"OK"
    assert isinstance(replies[1], Refused)
    assert replies[1].code == "WRONGTYPE"
    assert "another type; `TYPE <key>` shows it" in str(replies[1])
    assert replies[2] == 1
    assert isinstance(replies[3], Refused)
    assert replies[3].what == "ERR value is not an integer or out of range"
    assert isinstance(replies[4], Refused)
    assert replies[4].what.startswith("ERR unknown command 'NONSENSE'")
    assert replies[5] == b"some"


async def test_awaiters_that_are_cancelled_hurt_nobody_else(wire: Wire) -> None:
    async def ask(name: int) -> Any:
        return await wire.send(("ECHO", name), soon())

    tasks = [asyncio.create_task(ask(name)) for name in range(200)]
    await asyncio.sleep(0)
    for task in random.Random(1).sample(tasks, 100):
        task.cancel()
    replies = await asyncio.gather(*tasks, return_exceptions=True)

    assert sum(isinstance(reply, asyncio.CancelledError) for reply in replies) == 100
    assert all(
        reply == str(name).encode()
        for name, reply in enumerate(replies)
        if not isinstance(reply, asyncio.CancelledError)
    )
    assert await ask(1) == b"1"


async def test_each_call_has_its_own_deadline_and_later_replies_still_match(proxy: MakeProxy) -> None:
    through = await proxy()
    async with dialled(through.port) as wire:
        through.stall()
        slow = wire.send(("ECHO", "slow"), soon(60))
        hasty = [wire.send(("ECHO", f"hasty-{i}"), soon(0.05)) for i in range(3)]
        patient = [wire.send(("ECHO", f"patient-{i}"), soon(60)) for i in range(3)]

        for reply in hasty:
            with pytest.raises(OutcomeUnknown) as unknown:
                await reply
            assert unknown.value.outcome == "unknown"
            assert str(unknown.value) == (
                f"no reply in time at {wire.server} (unknown); look whether it happened before you repeat it"
            )
        through.resume()
        assert await slow == b"slow"
        assert await asyncio.gather(*patient) == [b"patient-0", b"patient-1", b"patient-2"]


async def test_a_call_that_was_given_long_is_not_cut_off_by_the_deadlines_of_others(proxy: MakeProxy) -> None:
    through = await proxy()
    async with dialled(through.port, silence_s=0.2) as wire:
        through.stall()
        slow = wire.send(("ECHO", "slow"), soon(60))
        with pytest.raises(OutcomeUnknown, match="no reply in time"):
            await wire.send(("PING",), soon(0.25))

        through.resume()
        assert await slow == b"slow"
        assert wire.lost is None


async def test_a_server_that_is_silent_for_too_long_is_given_up(proxy: MakeProxy) -> None:
    through = await proxy()
    async with dialled(through.port, silence_s=0.2) as wire:
        through.stall()
        first = wire.send(("PING",), soon(0.25))
        second = wire.send(("PING",), soon(60))

        for reply in (first, second):
            with pytest.raises(OutcomeUnknown):
                await reply
        assert wire.lost is not None
        assert wire.lost.startswith("the server has been silent for ")


async def test_replies_that_came_while_the_loop_was_held_up_are_in_time(wire: Wire) -> None:
    reply = wire.send(("PING",), soon(0.1))

    time.sleep(0.5)  # noqa: ASYNC251 - somebody computes for longer than the deadline
    wait_until_something_came(wire)

    assert await reply == b"PONG"


def wait_until_something_came(wire: Wire) -> None:
    """Without the loop, which is held up."""
    poll = select.poll()
    poll.register(wire._transport.get_extra_info("socket"), select.POLLIN)
    assert poll.poll(20_000)


async def test_deadlines_hold_on_a_loop_that_is_always_busy(proxy: MakeProxy) -> None:
    through = await proxy()
    async with dialled(through.port) as wire:
        through.stall()
        reply = wire.send(("PING",), soon(0.1))
        turns = 0
        while not reply.done() and turns < 100:
            time.sleep(0.15)  # noqa: ASYNC251 - somebody computes again and again
            await asyncio.sleep(0)
            turns += 1

        assert turns < 10
        with pytest.raises(OutcomeUnknown, match="no reply in time"):
            await reply


async def test_garbage_ends_the_connection_and_says_so() -> None:
    async with saying(with_greeting(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port, dialled(port) as wire:
        replies = await asyncio.gather(
            wire.send(("PING",), soon()), wire.send(("PING",), soon()), return_exceptions=True
        )

        for reply in replies:
            assert isinstance(reply, OutcomeUnknown)
            assert reply.what == ('the server sent what is not RESP (Protocol error, got "H" as reply type byte)')
        with pytest.raises(Unreachable, match="not RESP") as unreachable:
            wire.send(("PING",), soon())
        assert unreachable.value.outcome == "not sent"


async def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    async with saying(with_greeting(b"+one\r\n+two\r\n")) as port, dialled(port) as wire:
        assert await wire.send(("PING",), soon()) == b"one"

        assert wire.lost == "the server sent a reply that nobody asked for"


async def test_a_reply_that_python_cannot_hold_ends_the_connection_and_nothing_more(wire: Wire) -> None:
    """A map with a list for a key: a script can return it."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    script = "redis.setresp(3) return {map={[{1, 2}] = 3}}"
    with pytest.raises(OutcomeUnknown, match="unhashable type"):
        await wire.send(("EVAL", script, 0), soon())


async def test_values_of_ten_megabytes_travel_both_ways(wire: Wire, scratch: str) -> None:
    big = os.urandom(10 * 1024 * 1024)
    written, read, small = await asyncio.gather(
        wire.send(("SET", f"{scratch}big", big), soon(20)),
        wire.send(("GET", f"{scratch}big"), soon(20)),
        wire.send(("ECHO", "small"), soon(20)),
    )

    assert written == b"OK"
    assert read == big
    assert small == b"small"


async def test_a_broken_connection_tells_sent_from_not_sent(proxy: MakeProxy) -> None:
    through = await proxy()
    async with dialled(through.port) as wire:
        through.stall()
        sent = wire.send(("ECHO", "sent at once: the server is idle"), soon())
        gathered = wire.send(("ECHO", "would leave at the end of this turn"), soon())
        wire.abort("the cable was pulled")

        with pytest.raises(OutcomeUnknown, match="the cable was pulled") as unknown:
            await sent
        with pytest.raises(Unreachable, match="the cable was pulled") as unreachable:
            await gathered
        assert unknown.value.outcome == "unknown"
        assert unreachable.value.outcome == "not sent"


async def test_a_connection_that_is_reset_fails_what_was_sent(proxy: MakeProxy) -> None:
    through = await proxy()
    async with dialled(through.port) as wire:
        through.stall()
        waiting = [wire.send(("PING",), soon()) for _ in range(3)]
        await asyncio.sleep(0)
        await through.cut()

        for reply in waiting:
            with pytest.raises(OutcomeUnknown, match="the connection was lost") as unknown:
                await reply
            assert unknown.value.server == through.address


@pytest.mark.parametrize("then", ["silence", "cut"])
async def test_a_write_whose_reply_is_lost_happened_once(
    proxy: MakeProxy, server: ServerProcess, scratch: str, then: Literal["cut", "silence"]
) -> None:
    through = await proxy()
    async with dialled(through.port, silence_s=0.2) as wire:
        through.drop_replies(then=then)
        waiting = [
            wire.send(("INCR", f"{scratch}count"), soon(0.25)),
            wire.send(("XADD", f"{scratch}stream", "*", "a", "b"), soon(0.25)),
        ]

        for reply in waiting:
            with pytest.raises(OutcomeUnknown):
                await reply
        assert server.call("GET", f"{scratch}count") == b"1"
        assert server.call("XLEN", f"{scratch}stream") == 1


async def test_half_a_reply_is_no_reply(proxy: MakeProxy, scratch: str) -> None:
    through = await proxy()
    async with dialled(through.port) as wire:
        await wire.send(("SET", f"{scratch}k", "x" * 1000), soon())
        through.truncate_next_reply(100)

        with pytest.raises(OutcomeUnknown, match="the server closed the connection"):
            await wire.send(("GET", f"{scratch}k"), soon())


async def test_pushed_messages_do_not_disturb_replies(server: ServerProcess, scratch: str) -> None:
    pushed: list[Any] = []
    channel = f"{scratch}news"
    async with dialled(server.port, on_push=pushed.append) as wire, dialled(server.port) as other:
        acknowledged = await wire.send(("SUBSCRIBE", channel), soon())
        assert acknowledged == [b"subscribe", channel.encode(), 1]

        async def publish() -> None:
            for number in range(100):
                await other.send(("PUBLISH", channel, number), soon())

        async def ask() -> None:
            for number in range(100):
                assert await wire.send(("ECHO", number), soon()) == str(number).encode()

        await asyncio.gather(publish(), ask())

        await eventually(lambda: len(pushed) == 100)
        assert [int(message) for _, _, message in pushed] == list(range(100))
        left = await wire.send(("UNSUBSCRIBE", channel), soon())
        assert left == [b"unsubscribe", channel.encode(), 0]


async def test_a_retired_wire_answers_what_it_was_sent_and_then_closes(proxy: MakeProxy) -> None:
    through = await proxy()
    async with dialled(through.port) as wire:
        ended: list[Wire] = []
        through.stall()
        waiting = [wire.send(("ECHO", number), soon()) for number in range(3)]
        wire.retire(ended.append)
        through.resume()

        assert await asyncio.gather(*waiting) == [b"0", b"1", b"2"]
        await eventually(lambda: ended == [wire])
        assert wire.lost == "the connection is no longer needed"


async def test_a_retired_wire_with_nothing_to_wait_for_closes_at_once(wire: Wire) -> None:
    wire.retire(lambda wire: None)

    assert wire.lost == "the connection is no longer needed"


async def test_bytes_in_flight_are_counted_until_they_are_answered(server: ServerProcess) -> None:
    rooms = 0

    def room() -> None:
        nonlocal rooms
        rooms += 1

    async with dialled(server.port, in_flight_bytes=64 * 1024) as wire:
        wire.on_room = room
        assert wire.in_flight < wire.most_in_flight
        replies = [wire.send(("ECHO", b"x" * 1000), soon()) for _ in range(70)]
        assert wire.in_flight >= wire.most_in_flight
        await asyncio.gather(*replies)

        assert wire.in_flight < wire.most_in_flight
        assert rooms > 0


async def test_closing_fails_what_waits_and_leaves_nothing(server: ServerProcess) -> None:
    await (await Dialer().open(Address(server.host, server.port))).aclose()  # what the loop opens once for itself
    before = open_files()
    wire = await Dialer().open(Address(server.host, server.port))
    reply = wire.send(("EVAL", SLOW_SCRIPT, 0, 1_000_000), soon())
    await wire.aclose()
    await wire.aclose()

    with pytest.raises(OutcomeUnknown, match="the connection was closed here"):
        await reply
    assert len(asyncio.all_tasks()) == 1
    assert open_files() == before


@pytest.mark.parametrize("argument", [None, True, ["a"], "\ud800"])
async def test_what_cannot_be_sent_is_refused_before_it_is_sent(wire: Wire, argument: Any) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        wire.send(("ECHO", argument), soon())

    assert await wire.send(("ECHO", "fine"), soon()) == b"fine"


async def test_an_error_survives_a_trip_between_processes(wire: Wire) -> None:
    import pickle

    with pytest.raises(StoreError) as caught:
        await wire.send(("NONSENSE",), soon())

    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is Refused
    assert str(again) == str(caught.value)
