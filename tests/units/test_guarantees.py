"""What units promise, with separate processes where it matters: exactly one answers, another one if that one dies, and
nothing is deleted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.errors import IllegalName, RequestTimeout
from kizuna.settings import Settings, UnitsSettings
from kizuna.testing import ServerProcess, eventually
from kizuna.testing.ledger import Ledger

WITHIN_S = 40.0
CLAIM_S = 1.0

Start = Callable[..., subprocess.Popen[bytes]]

pytestmark = pytest.mark.usefixtures("nothing_is_reported")


class Counting:
    """A handler that knows what it was asked, and answers with how often it was."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def __call__(self, data: bytes) -> bytes:
        self.asked.append(data)
        return b"%d" % len(self.asked)


def quick(settings: Settings, **units: Any) -> Settings:
    return msgspec.structs.replace(settings, units=UnitsSettings(**{"claim_s": CLAIM_S, **units}))


async def value_at(k: Kizuna, path: str) -> bytes | None:
    return await k.store.get(f"{k.units.root}/{path}")


async def holds(k: Kizuna, path: str, value: bytes) -> bool:
    return await value_at(k, path) == value


async def ended(k: Kizuna, path: str) -> bool:
    return await value_at(k, path) is None


# -- exactly one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [2, 5])
async def test_of_several_processes_that_serve_one_name_exactly_one_answers(
    settings: Settings, start: Start, ledger: Ledger, processes: int
) -> None:
    # Whoever stood still for half a claim looks before it claims; here everybody is to try.
    settings = quick(settings, claim_s=120, presence_every_s=0.5)
    servers = [start("serve", settings, unit="detector") for _ in range(processes)]
    await eventually(lambda: len(ledger.read("works")) == processes, within_s=WITHIN_S)
    async with connect(settings) as k:
        camera = k.unit("camera")
        answers = await asyncio.gather(*(camera.request("detector", timeout_s=WITHIN_S) for _ in range(500)))
        # The slowest may hear of a request when all are answered.
        await eventually(lambda: have_lost(k, 500 * (processes - 1)), within_s=WITHIN_S)
    for server in servers:
        server.terminate()
    await eventually(lambda: len(ledger.read("ended")) == processes, within_s=WITHIN_S)

    runs = ledger.read("ran")
    assert len(answers) == len(runs) == len({run["id"] for run in runs}) == 500
    ends = ledger.read("ended")
    assert sum(end["served"] for end in ends) == 500
    assert sum(end["claims_lost"] for end in ends) == 500 * (processes - 1)
    assert {int(answer) for answer in answers} <= {server.pid for server in servers}


async def have_lost(k: Kizuna, number: int) -> bool:
    """Whether all processes together say that others were faster that often."""
    told = [process.counts.claims_lost for unit in await k.units.fleet() for process in unit.processes]
    return sum(told) == number


async def test_if_it_dies_before_it_answers_another_one_does_within_the_ttl_of_the_claim(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    settings = quick(settings)
    victim = start("serve", settings, unit="detector", slow_s=600)
    await eventually(lambda: ledger.read("works"), within_s=WITHIN_S)
    other = Counting()
    async with connect(settings) as k:
        asked = [asyncio.create_task(k.unit("camera").request("detector", timeout_s=WITHIN_S)) for _ in range(3)]
        await eventually(lambda: len(ledger.read("ran")) == 3, within_s=WITHIN_S)
        async with k.unit("detector").serving(other):
            victim.kill()
            killed_at = time.monotonic()
            await asyncio.gather(*asked)
            took_s = time.monotonic() - killed_at
    assert len(other.asked) == 3
    # What lies beyond the claim is for a loaded machine.
    assert took_s < CLAIM_S + 2


async def test_a_request_that_has_ended_with_its_server_is_taken_by_nobody(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    settings = quick(settings, claim_s=3)
    victim = start("serve", settings, unit="detector", slow_s=600)
    await eventually(lambda: ledger.read("works"), within_s=WITHIN_S)
    other = Counting()
    async with connect(settings) as k:
        asked = asyncio.create_task(k.unit("camera").request("detector", ttl_s=WITHIN_S, timeout_s=8))
        await eventually(lambda: ledger.read("ran"), within_s=WITHIN_S)
        async with k.unit("detector").serving(other):
            await end_all_requests(k)
            victim.kill()
            with pytest.raises(RequestTimeout) as timeout:
                await asked
    assert timeout.value.claimed is False
    assert other.asked == []


async def end_all_requests(k: Kizuna) -> None:
    """By their time to live, and now."""
    for key in await k.store.call("KEYS", f"{k.units.root}/camera/req/*"):
        await k.store.call("PEXPIRE", key, 1)
    await eventually(lambda: are_over(k))


async def are_over(k: Kizuna) -> bool:
    return not await k.store.call("KEYS", f"{k.units.root}/camera/req/*")


async def test_who_heard_of_a_request_that_another_had_taken_looks_again_when_the_claim_would_have_ended(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    settings = quick(settings)
    victim = start("serve", settings, unit="detector", slow_s=600)
    await eventually(lambda: ledger.read("works"), within_s=WITHIN_S)
    other = Counting()
    async with connect(settings) as k, k.unit("detector").serving(other):
        counts, asked = k.units.counts_of("detector"), []
        # Until the other one was the first to take some of them.
        while len(ledger.read("ran")) < 3 or counts.claims_lost < 3:
            asked.append(asyncio.create_task(k.unit("camera").request("detector", timeout_s=WITHIN_S, ttl_s=WITHIN_S)))
            await asyncio.sleep(0.01)
        victim.kill()
        await asyncio.gather(*asked)
    assert len(other.asked) == len(asked)


@pytest.mark.parametrize("claims", [1.5, 3], ids=["its claim is gone", "all claims are gone"])
async def test_who_wakes_up_after_another_has_answered_does_not_write_its_late_answer(
    settings: Settings, start: Start, ledger: Ledger, tmp_path: Path, claims: float
) -> None:
    settings, go = quick(settings, claim_s=0.6), tmp_path / "go"
    sleeper = start("answer_when_told", settings, unit="detector", go=str(go))
    await eventually(lambda: ledger.read("works"), within_s=WITHIN_S)
    async with connect(settings) as k:
        asked = asyncio.create_task(k.unit("camera").request("detector", id="42", ttl_s=60, timeout_s=WITHIN_S))
        await eventually(lambda: ledger.read("ran"), within_s=WITHIN_S)
        os.kill(sleeper.pid, signal.SIGSTOP)
        stopped_at = time.monotonic()
        async with k.unit("detector").serving(Counting()):
            assert await asked == b"1"
        await asyncio.sleep(max(0.0, stopped_at + claims * 0.6 - time.monotonic()))
        go.touch()
        os.kill(sleeper.pid, signal.SIGCONT)
        (end,) = await eventually(lambda: ledger.read("ended"), within_s=WITHIN_S)

        assert ledger.read("answers")
        assert end["late"] == 1
        assert await value_at(k, "camera/res/detector.42") == b"1"


async def test_a_claim_that_was_taken_once_more_in_the_background_does_not_hide_the_answer_of_another(
    settings: Settings, server: ServerProcess
) -> None:
    go = asyncio.Event()

    async def slow(_: bytes) -> bytes:
        await go.wait()
        return b"late"

    async with connect(quick(settings, claim_s=60)) as k, k.unit("detector").serving(slow):
        asked = asyncio.create_task(k.unit("camera").request("detector", id="42", timeout_s=WITHIN_S))
        (serving,) = k.units._sweeping.servings
        (execution,) = await eventually(lambda: [one for one in serving.running.values() if one.claimed_at])
        # As after a standstill in which another process had the claim, and answered, and in which it ended again.
        execution.claimed_at -= 120
        server.call("SET", f"{k.units.root}/camera/res/detector.42", "in time", "EX", 60)
        assert await asked == b"in time"
        go.set()

        await eventually(lambda: k.units.counts_of("detector").late == 1, within_s=WITHIN_S)
        assert await value_at(k, "camera/res/detector.42") == b"in time"


async def test_a_handler_that_holds_up_its_program_is_not_run_a_second_time_nor_are_those_behind_it(
    settings: Settings, start: Start, ledger: Ledger
) -> None:
    # On a busy machine the renewal may be late, too: it is due three times in the life of a claim.
    settings = quick(settings, claim_s=3)
    start("serve", settings, unit="detector", block_s=4)
    await eventually(lambda: ledger.read("works"), within_s=WITHIN_S)
    other = Counting()
    async with connect(settings) as k:
        asked = [asyncio.create_task(k.unit("camera").request("detector", timeout_s=WITHIN_S)) for _ in range(2)]
        await eventually(lambda: ledger.read("ran"), within_s=WITHIN_S)
        taken = len(await k.store.call("KEYS", f"{k.units.root}/detector/keep/claim.*"))
        async with k.unit("detector").serving(other):
            answers = await asyncio.gather(*asked)
    # What it had not taken when it stood still may be the other's.
    assert len(other.asked) <= 2 - taken
    assert len(ledger.read("ran")) + len(other.asked) == 2
    assert f"{ledger.read('ran')[0]['pid']}".encode() in answers


async def test_what_another_has_answered_while_the_program_stood_still_is_not_served_again(
    settings: Settings, server: ServerProcess
) -> None:
    served = Counting()
    async with connect(quick(settings, claim_s=0.2)) as k, k.unit("detector").serving(served):
        with server.connect() as outsider:
            outsider.call("SET", f"{k.units.root}/camera/req/detector.42", "x", "EX", 60)
            outsider.call("SET", f"{k.units.root}/camera/res/detector.42", "in time", "EX", 60)
        time.sleep(0.5)  # noqa: ASYNC251 - so that the loop of this program stands still
        assert await k.unit("camera").request("detector", b"new") == b"1"

        assert await value_at(k, "camera/res/detector.42") == b"in time"
    assert len(served.asked) == 1


async def test_a_long_handler_keeps_its_claim_and_a_second_server_does_not_take_over(settings: Settings) -> None:
    async def slow(_: bytes) -> bytes:
        await asyncio.sleep(3.5)
        return b"slow"

    other = Counting()
    async with (
        connect(quick(settings, claim_s=2)) as k,
        connect(quick(settings, claim_s=2)) as second,
        k.unit("detector").serving(slow),
    ):
        asked = asyncio.create_task(k.unit("camera").request("detector", timeout_s=WITHIN_S))
        await eventually(lambda: k.store.call("KEYS", f"{k.units.root}/detector/keep/claim.*"))
        async with second.unit("detector").serving(other):
            assert await asked == b"slow"
    assert other.asked == []


# -- an id that is used again --------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2])
async def test_an_id_that_is_used_again_is_answered_again_also_while_the_first_claim_lives(
    settings: Settings, servers: int
) -> None:
    """As who presses the up arrow in redis-cli does; but as fast as can be."""
    counting = Counting()
    async with connect(settings) as k, connect(settings) as second:
        detector, other = k.unit("detector"), second.unit("detector")
        async with (
            detector.serving(counting, pattern=f"{k.units.root}/*/req/*"),
            other.serving(counting, pattern=f"{k.units.root}/*/req/*") if servers == 2 else nullcontext(),
        ):
            for number in range(1, 101):
                await k.store.call("SET", f"{k.units.root}/outsider/req/42", b"%d" % number, "EX", 10)
                await eventually(lambda: holds(k, "outsider/res/42", b"%d" % number), every_s=0.0005)  # noqa: B023
    assert counting.asked == [b"%d" % number for number in range(1, 101)]


async def test_an_id_that_is_used_again_while_its_handler_goes_on_after_the_reply_is_answered_again(k: Kizuna) -> None:
    go, asked = asyncio.Event(), []

    async def reply_first(data: bytes, request: Any) -> None:
        asked.append(data)
        await request.reply(data)
        await go.wait()

    path = f"{k.units.root}/outsider/req/detector.42"
    async with k.unit("detector").serving(reply_first):
        await k.store.call("SET", path, b"first", "EX", 10)
        await eventually(lambda: holds(k, "outsider/res/detector.42", b"first"))
        await k.store.call("SET", path, b"second", "EX", 10)
        await asyncio.sleep(0.05)
        go.set()
        await eventually(lambda: holds(k, "outsider/res/detector.42", b"second"))
    assert asked == [b"first", b"second"]


async def test_an_id_without_an_end_is_answered_again_when_it_is_used_again(settings: Settings) -> None:
    """Its claim is kept, so that it is not served for ever; whoever has that claim knows it as its own."""
    asked = []

    async def echo(data: bytes) -> bytes:
        asked.append(data)
        return data

    # After a standstill of half a claim, the answer that is there would be taken for the answer to this one.
    async with connect(quick(settings, claim_s=2)) as k:
        path = f"{k.units.root}/outsider/req/detector.42"
        async with k.unit("detector").serving(echo):
            for number in range(1, 3):
                await k.store.call("SET", path, b"%d" % number)
                await eventually(lambda: holds(k, "outsider/res/detector.42", b"%d" % number))  # noqa: B023
                await asyncio.sleep(2.1)
                await k.unit("camera").request("detector", b"other")
        await k.store.call("EXPIRE", path, 10)  # for the check of what is left
    assert [data for data in asked if data != b"other"] == [b"1", b"2"]


async def test_an_id_chosen_by_the_caller_that_was_answered_before_returns_that_answer(k: Kizuna) -> None:
    camera, counting = k.unit("camera"), Counting()
    async with k.unit("detector").serving(counting):
        assert await camera.request("detector", b"a", id="42") == b"1"
    # Nobody serves any more; and it is not the last look before the timeout that finds it.
    async with asyncio.timeout(WITHIN_S / 2):
        assert await camera.request("detector", b"b", id="42", timeout_s=WITHIN_S) == b"1"
        assert await k.unit("camera").request("detector", b"c", id="42", timeout_s=WITHIN_S) == b"1"


# -- a request that outlives its answer ----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [("PX", 20_000), ()], ids=["with an end", "without one"])
async def test_a_request_that_outlives_its_answer_is_not_served_a_second_time(
    settings: Settings, ending: tuple[Any, ...]
) -> None:
    first, newcomer = Counting(), Counting()
    async with connect(quick(settings, claim_s=0.2, response_s=2)) as k:
        path = f"{k.units.root}/outsider/req/detector.42"
        async with k.unit("detector").serving(first):
            await k.store.call("SET", path, b"x", *ending)
            await eventually(lambda: first.asked)
            await eventually(lambda: ended(k, "outsider/res/detector.42"))
            await asyncio.sleep(0.25)
            resyncs = k.units.counts_of("detector").resyncs
            await k.store.call("CLIENT", "KILL", "TYPE", "pubsub")
            await eventually(lambda: k.units.counts_of("detector").resyncs > resyncs)
            async with k.unit("detector").serving(newcomer):
                await k.unit("camera").request("detector", b"a sign that all were looked at")
        await k.store.call("EXPIRE", path, 10)  # for the check of what is left
    assert [data for data in first.asked + newcomer.asked if data == b"x"] == [b"x"]


async def test_an_id_that_says_that_its_request_is_short_lived_is_refused_if_it_is_not(k: Kizuna) -> None:
    camera = k.unit("camera")
    async with k.unit("detector").serving(Counting()):
        for id_ in ("~42", "a.~42"):
            with pytest.raises(IllegalName, match="60s at most"):
                await camera.request("detector", id=id_, ttl_s=61)
            assert await camera.request("detector", id=id_, ttl_s=60)
        assert await camera.request("detector", id="a~42", ttl_s=61) == b"3"


async def test_what_was_answered_is_not_served_again_by_a_newcomer(settings: Settings) -> None:
    """Neither while its claim is there, nor afterwards."""
    first, newcomer = Counting(), Counting()
    async with connect(quick(settings, claim_s=0.1)) as k:
        async with k.unit("detector").serving(first):
            for number in range(20):
                await k.unit("camera").request("detector", b"%d" % number, ttl_s=30)
        for _ in range(2):
            async with k.unit("detector").serving(newcomer):
                await k.unit("camera").request("detector", b"new")
            await eventually(lambda: no_claim_left(k))
    assert newcomer.asked == [b"new"] * 2


async def test_what_was_answered_while_it_was_looked_for_is_not_served_again(
    k: Kizuna, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes its time, on a cluster above all; what it says is about the moment at which it began."""
    counting, looked, go = Counting(), asyncio.Event(), asyncio.Event()
    async with k.unit("detector").serving(counting):
        (serving,) = k.units._sweeping.servings
        look = serving.claims.open_among

        async def look_slowly(requests: Any) -> list[bytes]:
            is_open = await look(requests)
            looked.set()
            await go.wait()
            return is_open

        monkeypatch.setattr(serving.claims, "open_among", look_slowly)
        key = f"{k.units.root}/camera/req/detector.42".encode()
        looking = asyncio.create_task(serving.found([key]))
        await looked.wait()
        assert await k.unit("camera").request("detector", b"x", id="42") == b"1"
        await eventually(lambda: not serving.running)
        go.set()
        await looking
        monkeypatch.undo()
    assert counting.asked == [b"x"]


async def no_claim_left(k: Kizuna) -> bool:
    return not await k.store.call("KEYS", f"{k.units.root}/detector/keep/claim.*")


# -- nothing is deleted --------------------------------------------------------------------------------------------


async def test_nothing_is_deleted_explicitly_and_everything_ends_by_its_ttl(fresh_server: ServerProcess) -> None:
    async def fail(data: bytes) -> bytes:
        if data == b"bad":
            raise ValueError("no")
        return data

    async with connect(fresh_server.url) as k:
        camera = k.unit("camera")
        async with k.unit("detector").serving(fail), camera.listen("muf/*/req/*"):
            await asyncio.gather(*(camera.request("detector", b"%d" % number) for number in range(50)))
            with pytest.raises(Exception, match="no"):
                await camera.request("detector", b"bad")
            with pytest.raises(RequestTimeout):
                await camera.request("nobody", b"x", timeout_s=0.1)
            await camera.keep.set("state", b"x")
            await camera.send("res", "42", b"x", unit="other")
    used = {command.removeprefix("cmdstat_") for command in fresh_server.info("commandstats")}
    keys = fresh_server.call("KEYS", "muf/*")

    assert not used & {"del", "unlink", "getdel", "flushdb", "flushall", "persist"}
    assert "set" in used
    assert len(keys) > 100
    # -1 would be one without an end; -2 has ended meanwhile.
    assert all(fresh_server.call("PTTL", key) != -1 for key in keys)


async def test_all_that_a_session_left_is_gone_when_its_time_is_over(settings: Settings) -> None:
    short = UnitsSettings(request_s=3, response_s=3, error_s=3, keep_s=3, claim_s=3, presence_every_s=0.2)
    async with connect(msgspec.structs.replace(settings, units=short)) as k:
        async with k.unit("detector").serving(Counting()):
            await asyncio.gather(*(k.unit("camera").request("detector") for _ in range(20)))
        await k.unit("camera").keep.set("state", b"x")
    async with connect(settings) as k:
        await eventually(lambda: nothing_left(k), within_s=WITHIN_S)


async def nothing_left(k: Kizuna) -> bool:
    return not await k.store.call("KEYS", f"{k.units.root}/*")
