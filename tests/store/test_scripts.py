from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kizuna.app import connect
from kizuna.errors import OutcomeUnknown, OutOfMemory, PermissionDenied, Refused, ScriptFailed, ScriptMismatch
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.keys import Key, key_slot
from kizuna.store.scripts import Part, Script
from kizuna.testing import ClusterSetup, ServerProcess

SCRATCH = Key("scratch:{<test>}:<name>", "string", "removed", "what a test of scripts writes")

MakeKey = Callable[[str], str]
Row = dict[str, Any]


def script(name: str) -> Script:
    return Script(name, (Path(__file__).parent / "lua" / f"{name}.lua").read_text())


take_lock = script("take_lock")
push_jobs = script("push_jobs")
delete_keys = script("delete_keys")
fail = script("fail")
keep_silent = script("keep_silent")
check_amounts = script("check_amounts")


@pytest.fixture
async def key(store: Store, root: str) -> AsyncIterator[MakeKey]:
    """Names keys, and deletes them after the test."""
    made: set[str] = set()

    def make(name: str) -> str:
        key = SCRATCH.build(root, test="scripts", name=name)
        made.add(key)
        return key

    yield make
    await delete_keys.rows(store, [{"doomed": key} for key in made])


def jobs(key: MakeKey, count: int) -> list[Row]:
    return [{"job": key(f"job-{i}"), "name": f"job-{i}", "payload": b"\0\xff%d" % i} for i in range(count)]


async def calls(store: Store, command: str) -> int:
    """How often the server has run this command."""
    stats: bytes = await store.call("INFO", "commandstats")
    found = [line for line in stats.decode().splitlines() if line.startswith(f"cmdstat_{command}:calls=")]
    return int(found[0].split("=")[1].split(",")[0]) if found else 0


async def test_a_script_gets_its_names_and_returns_its_words(store: Store, key: MakeKey) -> None:
    lock: Row = {"holder": key("holder"), "fence": key("fence")}

    assert await take_lock(store, **lock, token="me", lease_ms=10_000) == [b"taken", 1]
    outcome, free_in_ms = await take_lock(store, **lock, token=b"you", lease_ms=10_000)

    assert outcome == b"held"
    assert 0 < free_in_ms <= 10_000
    assert await store.get(lock["holder"]) == b"me"


async def test_a_script_is_known_to_the_server_after_its_first_call(store: Store, key: MakeKey) -> None:
    await store.call("SCRIPT", "FLUSH")
    before = await calls(store, "eval")

    for _ in range(3):
        await fail(store, text=key("text"), way="")

    assert await store.call("SCRIPT", "EXISTS", fail.sha) == [1]
    assert await calls(store, "eval") == before + 1


async def test_a_flush_of_all_scripts_goes_unnoticed(store: Store, key: MakeKey) -> None:
    rows = jobs(key, 3)

    assert await push_jobs.rows(store, rows, queue=key("queue"), lease_ms=10_000) == [1, 2, 3]
    await store.call("SCRIPT", "FLUSH")
    assert await delete_keys.rows(store, [{"doomed": row["job"]} for row in rows]) == [1, 1, 1]
    await store.call("SCRIPT", "FLUSH")

    assert await push_jobs.rows(store, rows, queue=key("queue"), lease_ms=10_000) == [4, 5, 6]


async def test_calls_that_wait_together_survive_a_flush_together(store: Store, key: MakeKey) -> None:
    await store.call("SCRIPT", "FLUSH")

    replies = await asyncio.gather(*(fail(store, text=key("text"), way=str(i)) for i in range(50)))

    assert replies == [b"%d" % i for i in range(50)]


async def test_a_call_that_is_cancelled_hurts_no_other(store: Store, key: MakeKey) -> None:
    for steps in range(4):
        cancelled = asyncio.ensure_future(fail(store, text=key("text"), way="cancelled"))
        staying = asyncio.ensure_future(fail(store, text=key("text"), way="staying"))
        for _ in range(steps):
            await asyncio.sleep(0)
        cancelled.cancel()

        assert await staying == b"staying"
        await asyncio.wait([cancelled])


@pytest.mark.parametrize("count", [1, 100, 1000])
async def test_rows_are_handled_in_order_with_one_result_each(store: Store, key: MakeKey, count: int) -> None:
    rows = jobs(key, count)

    assert await push_jobs.rows(store, rows, queue=key("queue"), lease_ms=10_000) == list(range(1, count + 1))
    assert await push_jobs.rows(store, rows[-1:], queue=key("queue"), lease_ms=10_000) == [None]

    queued = await store.call("LRANGE", key("queue"), 0, -1)
    assert queued == [str(row["name"]).encode() for row in rows]
    assert await store.get(str(rows[-1]["job"])) == rows[-1]["payload"]


async def test_no_rows_need_no_call(store: Store) -> None:
    before = await calls(store, "evalsha")

    assert await push_jobs.rows(store, [], queue="q", lease_ms=1) == []

    assert await calls(store, "evalsha") == before


async def test_rows_awaited_together_behind_the_first_become_one_call(store: Store, key: MakeKey) -> None:
    await push_jobs.rows(store, jobs(key, 1), queue=key("queue"), lease_ms=10_000)
    before = await calls(store, "evalsha")

    lengths = await asyncio.gather(
        *(push_jobs.row(store, queue=key("queue"), lease_ms=10_000, **row) for row in jobs(key, 100))
    )

    assert lengths == [None, *range(2, 101)]
    assert await calls(store, "evalsha") == before + 2


async def test_a_wrong_row_fails_alone(store: Store, key: MakeKey) -> None:
    rows = jobs(key, 3)
    rows[1]["payload"] = None

    lengths = await asyncio.gather(
        *(push_jobs.row(store, queue=key("queue"), lease_ms=10_000, **row) for row in rows), return_exceptions=True
    )

    assert [lengths[0], lengths[2]] == [1, 2]
    assert isinstance(lengths[1], ScriptMismatch)


async def test_an_error_that_is_returned_for_one_row_is_that_rows_alone(store: Store) -> None:
    even, negative, odd = await asyncio.gather(
        *(check_amounts.row(store, amount=amount) for amount in (2, -1, 3)), return_exceptions=True
    )

    assert (even, odd) == (b"even", b"odd")
    assert isinstance(negative, Refused)
    assert negative.code == "NEGATIVE"

    together = await check_amounts.rows(store, [{"amount": 2}, {"amount": -1}])
    assert together[0] == b"even"
    assert isinstance(together[1], Refused)


async def test_a_flush_of_all_scripts_gives_nobody_more_time(fresh_server: ServerProcess) -> None:
    async with connect(Settings(store=StoreSettings(url=fresh_server.url))) as k:
        await check_amounts.row(k.store, amount=1)
        fresh_server.call("SCRIPT", "FLUSH")
        fresh_server.call("CLIENT", "PAUSE", 60_000, "ALL")
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await check_amounts.rows(k.store, [{"amount": 1}], timeout_s=4)

    # Twice the time, if it was given anew.
    assert time.monotonic() - began < 5


async def test_a_script_runs_on_every_primary_of_a_cluster(cluster: ClusterSetup, root: str) -> None:
    async with connect(Settings(store=StoreSettings(url=cluster.url))) as kizuna:
        store = kizuna.store
        tags = [f"{root}-{number}" for number in range(12)]
        keys = [SCRATCH.build(root, test=tag, name="text") for tag in tags]
        assert len({cluster.owner_of(key_slot(key)).port for key in keys}) == 3

        for _ in range(2):
            assert await asyncio.gather(*(fail(store, text=key, way=key) for key in keys)) == [
                key.encode() for key in keys
            ]
            await store.call_each_primary("SCRIPT", "FLUSH")
        await asyncio.gather(*(store.call("SET", key, "x") for key in keys))
        assert await asyncio.gather(*(delete_keys.row(store, doomed=key) for key in keys)) == [1] * 12


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("error", "fail.lua:7: the way is shut"),
        ("type", "fail.lua:9: WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("nil", "fail.lua:12: attempt to index local 'nothing' (a nil value)"),
    ],
)
async def test_an_error_names_the_file_and_the_line(store: Store, key: MakeKey, way: str, text: str) -> None:
    await store.call("SET", key("text"), "x")
    await store.call("SCRIPT", "FLUSH")

    for _ in ("sent whole", "known by its hash"):
        with pytest.raises(ScriptFailed) as failed:
            await fail(store, text=key("text"), way=way)

        assert failed.value.what == text
        assert str(failed.value).endswith("look at that line; what the script wrote before it stays written")


async def test_an_error_that_a_script_returns_is_passed_on_as_it_is(store: Store, key: MakeKey) -> None:
    with pytest.raises(Refused) as refused:
        await fail(store, text=key("text"), way="coded")

    assert (refused.value.code, refused.value.what) == ("SHUT", "SHUT the way is shut")


async def test_a_script_that_is_no_lua_says_where(store: Store) -> None:
    broken = Script("broken", "-- Is no Lua.\n\nlocal x = = 1\n")

    with pytest.raises(ScriptFailed, match=r"^broken.lua:3: unexpected symbol near '=' at "):
        await broken(store)


async def test_a_wrong_number_of_results_is_noticed(store: Store) -> None:
    with pytest.raises(ScriptMismatch) as few:
        await keep_silent.rows(store, [{"value": "a"}, {"value": "nil"}], answer="few")
    with pytest.raises(ScriptMismatch) as word:
        await keep_silent.rows(store, [{"value": "a"}], answer="word")

    assert str(few.value) == ("script keep_silent: it returned 1 results for 2 rows (a nil ends a list: return false)")
    assert "it returned b'word' for 1 rows" in str(word.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"holder": "a", "fence": "b", "token": "c", "leese_ms": 1}, "no 'leese_ms'; did you mean 'lease_ms'?"),
        ({"holder": "a", "fence": "b", "token": "c", "lease_ms": 1, "tokn": 1}, "no 'tokn'; did you mean 'token'?"),
        ({"holder": "a", "fence": "b", "token": "c", "lease_ms": 1, "x": 1}, "no 'x'; it has fence, holder, "),
        ({"holder": "a", "token": "c"}, "fence, lease_ms missing"),
        ({"holder": "a", "fence": "b", "token": None, "lease_ms": 1}, "token is None; only str, bytes, int and"),
        ({"holder": "a", "fence": "b", "token": True, "lease_ms": 1}, "token is True; only str, bytes, int and"),
    ],
)
def test_a_call_that_does_not_fit_the_header_is_refused(given: Row, problem: str) -> None:
    with pytest.raises(ScriptMismatch) as refused:
        take_lock.command(given)

    assert problem in str(refused.value)
    assert str(refused.value).startswith("script take_lock: ")


def test_rows_that_do_not_fit_the_header_are_refused() -> None:
    fixed: Row = {"queue": "q", "lease_ms": 1}
    row: Row = {"job": "j", "name": "n", "payload": "p"}

    with pytest.raises(ScriptMismatch, match=r"it declares no 'pay_load'; did you mean 'payload'\?"):
        push_jobs.command(fixed, [row, {"job": "j", "name": "n", "pay_load": "p"}])
    with pytest.raises(ScriptMismatch, match="it runs on rows"):
        push_jobs.command(fixed)
    with pytest.raises(ScriptMismatch, match="it has no rows"):
        fail.command({"text": "t", "way": "w"}, [row])


def test_the_command_has_fixed_names_first_and_then_row_after_row() -> None:
    fixed: Row = {"lease_ms": 5, "queue": "q"}
    rows: list[Row] = [{"payload": "p1", "job": "j1", "name": "n1"}, {"name": "n2", "payload": 2.5, "job": "j2"}]

    command = push_jobs.command(fixed, rows)

    assert command == ("EVALSHA", push_jobs.sha, 3, "q", "j1", "j2", 5, "n1", "p1", "n2", 2.5)
    assert push_jobs.keys_of(fixed, rows[1]) == ("q", "j2")


def test_the_prelude_does_not_move_the_lines() -> None:
    text = (Path(__file__).parent / "lua" / "push_jobs.lua").read_text()

    assert push_jobs.source.splitlines()[1:] == text.splitlines()[1:]
    assert push_jobs.source.endswith(text)


def test_scripts_are_loaded_from_beside_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop" / "lua").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "lua" / "sell.lua").write_text("-- Sell.\n-- KEYS till  the money\nreturn till\n")
    monkeypatch.syspath_prepend(tmp_path)

    sell = Script.load("shop", "sell")

    assert (sell.name, sell.signature.keys, sell.has_rows) == ("sell", ("till",), False)


# parts and families


PRICES = "-- What things cost.\n\nlocal function price_of(thing)\n  return redis.call('HGET', prices, thing)\nend\n"
SELL = """\
-- Sell something.
-- USES prices  what things cost
-- ARGV root    what all keys begin with
-- ARGV thing   what is sold

if thing == "nothing" then
  error("there is nothing to sell")
end
return {price_of(thing), sold_of .. thing, things_of_shop .. "corner"}
"""
FAMILIES = {
    "PRICES": Key("shop:prices", "hash", "never", "what things cost"),
    "SOLD": Key("shop:sold:<thing>", "string", "never", "how often it was sold"),
    "THINGS_OF_SHOP": Key("shop:things:<shop...>", "set", "never", "what there is"),
    "UNUSED": Key("shop:unused", "hash", "never", "what nobody mentions"),
}


async def test_a_script_uses_parts_and_the_families_below_its_root(store: Store, scratch: str) -> None:
    sell = Script("sell", SELL, [Part("prices", PRICES)], FAMILIES)
    root = scratch.removesuffix(":")
    await store.call("HSET", f"{root}:shop:prices", "pear", 3)

    assert await sell(store, root=root, thing="pear") == [
        b"3",
        f"{root}:shop:sold:pear".encode(),
        f"{root}:shop:things:corner".encode(),
    ]
    assert "unused" not in sell.source


async def test_an_error_says_in_which_part_or_line_it_was(store: Store, scratch: str) -> None:
    sell = Script("sell", SELL, [Part("prices", PRICES)], FAMILIES)
    root = scratch.removesuffix(":")
    await store.call("SET", f"{root}:shop:prices", "not a hash")

    with pytest.raises(ScriptFailed, match=r"^sell.lua:7: there is nothing to sell"):
        await sell(store, root=root, thing="nothing")
    with pytest.raises(ScriptFailed, match=r"^parts/prices.lua:4: .*WRONGTYPE"):
        await sell(store, root=root, thing="pear")


def test_parts_are_loaded_from_beside_the_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "market" / "lua" / "parts").mkdir(parents=True)
    (tmp_path / "market" / "__init__.py").touch()
    (tmp_path / "market" / "lua" / "sell.lua").write_text(SELL)
    (tmp_path / "market" / "lua" / "parts" / "prices.lua").write_text(PRICES)
    monkeypatch.syspath_prepend(tmp_path)

    assert (
        Script.load("market", "sell", FAMILIES).source
        == Script("sell", SELL, [Part("prices", PRICES)], FAMILIES).source
    )


async def test_a_script_may_want_fewer_rows_in_a_call(store: Store, key: MakeKey) -> None:
    few = Script("push_jobs", (Path(__file__).parent / "lua" / "push_jobs.lua").read_text(), most_rows=16)
    await few.rows(store, jobs(key, 1), queue=key("queue"), lease_ms=10_000)
    before = await calls(store, "evalsha")

    await asyncio.gather(*(few.row(store, queue=key("queue"), lease_ms=10_000, **row) for row in jobs(key, 34)))

    # One leaves at once, and then 16, 16 and the last.
    assert await calls(store, "evalsha") == before + 4


async def test_rows_that_were_begun_are_in_the_line_before_they_are_awaited(store: Store, key: MakeKey) -> None:
    begun = push_jobs.begin_rows(store, jobs(key, 2), {"queue": key("queue"), "lease_ms": 10_000})
    length = store.call("LLEN", key("queue"))

    assert await length == 2
    assert await begun == [1, 2]


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("return 1", "its first line should be a comment that says what it does"),
        ("-- KEYS", "line 1 should be [ROW] KEYS or ARGV, or USES, a name, and its meaning"),
        ("-- KEYS a-b  meaning", "line 1 should be [ROW] KEYS or ARGV, or USES, a name, and its meaning"),
        ("-- ARGV token", "line 1 should be [ROW] KEYS or ARGV, or USES, a name, and its meaning"),
        ("-- ROW token  meaning", "line 1 should be [ROW] KEYS or ARGV, or USES, a name, and its meaning"),
        ("-- KEYS a  one\n-- ARGV a  two", "line 2 declares 'a', which is taken"),
        ("-- ARGV end  a word of Lua", "line 1 declares 'end', which is taken"),
        ("-- ARGV class  a word of Python", "line 1 declares 'class', which is taken"),
        ("-- ARGV timeout_s  an argument of every call", "line 1 declares 'timeout_s', which is taken"),
    ],
)
def test_a_header_that_is_no_signature_is_refused(header: str, problem: str) -> None:
    with pytest.raises(ScriptMismatch) as refused:
        Script("bad", header)

    assert refused.value.problem == problem


SHA = "a" * 40


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("ERR user_script:3: boom script: on @user_script:3.", "fail.lua:3: boom"),
        (f"ERR user_script:3: boom script: {SHA}, on @user_script:3.", "fail.lua:3: boom"),
        (f"WRONGTYPE Operation script: {SHA}, on @user_script:12.", "fail.lua:12: WRONGTYPE Operation"),
        (f"ERR Error running script (call to f_{SHA}): @user_script:7: user_script:7: boom", "fail.lua:7: boom"),
        (
            f"ERR Error running script (call to f_{SHA}): @user_script: 7: Unknown Redis command called from Lua",
            "fail.lua:7: Unknown Redis command called from Lua",
        ),
        (f"ERR f_{SHA}:12: boom", "fail.lua:12: boom"),
        ("ERR Error compiling script (new function): user_script:2: no symbol", "fail.lua:2: no symbol"),
    ],
)
def test_every_generation_of_servers_is_understood(said: str, meant: str) -> None:
    failure = fail.failure(Refused(said, "localhost:6379", "hint"))

    assert isinstance(failure, ScriptFailed)
    assert (failure.what, failure.server) == (meant, "localhost:6379")


def test_reasons_that_lie_outside_the_script_stay_what_they_are() -> None:
    busy = Refused("BUSY Valkey is busy running a script", "localhost:6379", "hint")
    denied = PermissionDenied("ERR ACL failure in script script: on @user_script:3.", "localhost:6379", "hint")
    before_redis_7 = f"ERR Error running script (call to f_{SHA}): @user_script: 7: -OOM command not allowed"

    assert fail.failure(busy) is busy
    assert fail.failure(denied) is denied
    assert isinstance(fail.failure(Refused(before_redis_7, "localhost:6379", "hint")), OutOfMemory)
