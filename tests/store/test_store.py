"""The store as a whole, on both event loops, and on a Redis as old as Debian's."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from kizuna.app import connect
from kizuna.errors import OutcomeUnknown, Refused, Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.scripts import Script
from kizuna.testing import ChaosProxy, ServerProcess, eventually
from kizuna.testing.resp import Conversation

Run = Callable[[Coroutine[Any, Any, None]], None]

COUNT = Script(
    "count",
    """-- Count what is asked for.
--
-- KEYS total      how much in all
-- ROW ARGV more   how much more
--
-- Returns the total after each row

local totals = {}
for i = 1, rows do
  totals[i] = redis.call("INCRBY", total, row(i))
end
return totals
""",
)


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **options))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a scenario to its end on one of the two event loops, and sees that no task is left."""

    def run_to_the_end(scenario: Coroutine[Any, Any, None]) -> None:
        async def watched() -> None:
            await scenario
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(watched())

    return run_to_the_end


def test_a_thousand_callers_get_each_their_own(run: Run, server: ServerProcess, scratch: str) -> None:
    async def scenario() -> None:
        async with connect(at(server.url)) as k:

            async def caller(me: int) -> None:
                for number in range(5):
                    key, value = f"{scratch}{me}", f"{me}-{number}"
                    await k.store.call("SET", key, value)
                    assert await k.store.get(key) == value.encode()
                    assert await k.store.call("ECHO", value) == value.encode()

            await asyncio.gather(*(caller(me) for me in range(1000)))

    run(scenario())


def test_rows_are_counted(run: Run, server: ServerProcess, scratch: str) -> None:
    async def scenario() -> None:
        async with connect(at(server.url)) as k:
            rows = (COUNT.row(k.store, total=f"{scratch}total", more=1) for _ in range(1500))
            assert await asyncio.gather(*rows) == list(range(1, 1501))

    run(scenario())


def test_deadline_cut_and_partition(run: Run, server: ServerProcess) -> None:
    async def scenario() -> None:
        async with (
            ChaosProxy(server.host, server.port) as through,
            connect(at(through.url, timeout_s=2, connect_timeout_s=2)) as k,
        ):
            through.stall()
            began = time.monotonic()
            with pytest.raises(OutcomeUnknown):
                await k.store.call("PING")
            with pytest.raises(Unreachable):
                await k.store.call("PING")
            assert time.monotonic() - began < 6
            through.resume()
            assert await k.store.call("PING", timeout_s=5) == b"PONG"
            (link,) = k.store.topology.primaries()
            made = link.connections
            await through.cut()
            await eventually(lambda: link.connections > made)
            assert await k.store.call("PING", timeout_s=5) == b"PONG"

    run(scenario())


def test_a_loop_that_was_held_up_still_gets_its_replies(run: Run, server: ServerProcess) -> None:
    async def scenario() -> None:
        async with connect(at(server.url)) as k:
            replies = [k.store.call("ECHO", b"x" * 1_000, timeout_s=0.5) for _ in range(100)]
            await asyncio.sleep(0)  # they leave at the end of the turn
            time.sleep(3)  # noqa: ASYNC251 - somebody computes for longer than the deadline
            assert await asyncio.gather(*replies) == [b"x" * 1_000] * 100

    run(scenario())


def test_tls(run: Run, server: ServerProcess, tmp_path: Path) -> None:
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.cert_pem.write_to_path(str(tmp_path / "ca"))

    async def scenario() -> None:
        async with (
            ChaosProxy(server.host, server.port, ssl_context=context) as through,
            connect(at(through.url, tls_ca_file=str(tmp_path / "ca"))) as k,
        ):
            big = b"x" * 3_000_000
            assert await k.store.call("ECHO", big) == big

    run(scenario())


def test_a_call_without_end_waits_for_the_server(run: Run, server: ServerProcess) -> None:
    async def scenario() -> None:
        async with ChaosProxy(server.host, server.port) as through, connect(at(through.url)) as k:
            await through.cut()
            waiting = [k.store.call("ECHO", number, timeout_s=float("inf")) for number in range(3)]
            assert await asyncio.gather(*waiting) == [b"0", b"1", b"2"]

    run(scenario())


async def test_calls_join_the_line_when_they_are_called(store: Store, scratch: str) -> None:
    key = f"{scratch}k"
    calls = [store.call("SET", key, 1), store.get(key), store.call("INCR", key), store.get(key), store.call("DEL", key)]

    assert await asyncio.gather(*reversed(calls)) == [1, b"2", 2, b"1", b"OK"]


async def test_a_script_that_writes_and_then_says_busy_is_not_repeated(store: Store, scratch: str) -> None:
    script = "redis.call('INCR', KEYS[1]) return redis.error_reply('BUSY somebody has it')"
    with pytest.raises(Refused, match="BUSY somebody has it"):
        await store.call("EVAL", script, 1, f"{scratch}count")

    assert await store.get(f"{scratch}count") == b"1"


async def test_a_server_that_is_busy_with_a_script_is_waited_for(fresh_server: ServerProcess) -> None:
    fresh_server.call("CONFIG", "SET", "lua-time-limit", 10)
    async with connect(at(fresh_server.url)) as k:
        with fresh_server.connect() as other:
            endless = asyncio.create_task(asyncio.to_thread(_refusal, other, "EVAL", "while true do end", 0))
            await eventually(lambda: _is_busy(fresh_server))

            async def refusal() -> Refused | None:
                try:
                    await k.store.call("GET", "a", timeout_s=0.3)
                except Refused as error:
                    return error
                except OutcomeUnknown:
                    pass  # it looks at the network only now and then
                return None

            busy = await eventually(refusal)
            assert busy is not None
            assert busy.code == "BUSY"
            assert "SCRIPT KILL ends it if it has not written yet" in str(busy)
            waiting = k.store.call("GET", "a")
            fresh_server.call("SCRIPT", "KILL")

            assert await waiting is None
            assert "killed" in await endless


def _refusal(conversation: Conversation, *command: str | int) -> str:
    with pytest.raises(Refused) as refused:
        conversation.call(*command)
    return refused.value.what


def _is_busy(server: ServerProcess) -> bool:
    try:
        server.call("PING")
    except Refused as refused:
        return refused.code == "BUSY"
    return False


async def test_closing_does_not_wait_for_ever_for_a_server_that_is_away(fresh_server: ServerProcess) -> None:
    k = await connect(at(fresh_server.url, timeout_s=2))
    fresh_server.pause()
    value, reply = k.store.get("a", timeout_s=3600), k.store.call("GET", "a", timeout_s=3600)
    began = time.monotonic()
    await k.aclose()

    assert time.monotonic() - began < 4
    for waiting in (value, reply):
        with pytest.raises(OutcomeUnknown, match="the connection was closed here"):
            await waiting
    fresh_server.resume()


async def test_a_command_to_each_primary_raises_the_first_error(store: Store) -> None:
    with pytest.raises(Refused, match="unknown command"):
        await store.call_each_primary("NONSENSE")


async def test_closing_can_be_repeated(server: ServerProcess) -> None:
    k = await connect(at(server.url))
    await k.store.call("PING")
    for _ in range(3):
        await k.aclose()

    with pytest.raises(Unreachable, match="the store was closed"):
        await k.store.call("PING")


async def test_connecting_and_closing_fifty_times_leaves_nothing(server: ServerProcess) -> None:
    files: set[int] = set()
    for _ in range(50):
        async with connect(at(server.url)) as k:
            assert await k.store.call("PING") == b"PONG"
        files.add(open_files())

    assert len(files) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


def open_files() -> int:
    """How many this process has, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


# -- Redis -------------------------------------------------------------------------------------------------------


@pytest.fixture
def redis_server(redis_binary: str) -> Iterator[ServerProcess]:
    with ServerProcess(binary=redis_binary, config={"notify-keyspace-events": "AKE"}) as server:
        yield server


async def test_a_real_redis_serves_commands_scripts_and_events(redis_server: ServerProcess) -> None:
    assert "redis_version" in redis_server.info("server")
    async with connect(at(redis_server.url)) as k:
        assert await k.store.call("SET", "a", "b") == b"OK"
        assert await k.store.get("a") == b"b"
        assert await asyncio.gather(*(COUNT.row(k.store, total="t", more=2) for _ in range(3))) == [2, 4, 6]
        await k.store.call("SCRIPT", "FLUSH")
        assert await COUNT.row(k.store, total="t", more=1) == 7
        with pytest.raises(Refused, match="WRONGTYPE"):
            await k.store.call("LPUSH", "a", "x")
        async with k.store.events.watch("heard:*") as changes:
            await k.store.call("SET", "heard:1", "x")
            async with asyncio.timeout(5):
                async for change in changes:
                    if "heard:1" in str(change):
                        break


async def test_a_real_redis_is_found_again_after_a_restart(redis_server: ServerProcess) -> None:
    async with connect(at(redis_server.url)) as k:
        await asyncio.to_thread(redis_server.kill)
        await asyncio.to_thread(redis_server.start)
        assert await k.store.call("PING") == b"PONG"
