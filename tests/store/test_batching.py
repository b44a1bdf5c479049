"""What is awaited together travels together, and nobody can tell by the results."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.errors import KizunaError, OutcomeUnknown, PermissionDenied, ScriptFailed
from kizuna.settings import Settings, StoreSettings
from kizuna.store.batching import MOST_BYTES
from kizuna.store.client import Store
from kizuna.store.keys import key_slot
from kizuna.store.scripts import MOST_ROWS, Script
from kizuna.testing import ClusterSetup, ServerProcess

APPEND = Script(
    "append",
    """-- Append to texts.
--
-- ARGV between   what stands between the pieces
-- ROW KEYS text  what is appended to
-- ROW ARGV more  the piece
--
-- Returns for each row the text with it

local texts = {}
for i = 1, rows do
  local text, more = row(i)
  if more == "fail" then error("no such piece") end
  redis.call("APPEND", text, more .. between)
  texts[i] = redis.call("GET", text)
end
return texts
""",
)


def append(
    store: Store, text: str, more: str | bytes, *, between: Any = "", timeout_s: float | None = None
) -> asyncio.Future[Any]:
    return store.batch_row(APPEND, {"between": between}, {"text": text, "more": more}, timeout_s=timeout_s)


async def calls(store: Store, command: str) -> int:
    """How often the server has run this command."""
    stats: bytes = await store.call("INFO", "commandstats")
    found = [line for line in stats.decode().splitlines() if line.startswith(f"cmdstat_{command}:calls=")]
    return int(found[0].split("=")[1].split(",")[0]) if found else 0


@pytest.fixture
async def alone(fresh_server: ServerProcess) -> Any:
    """A store on a server where nobody else counts."""
    async with connect(Settings(store=StoreSettings(url=fresh_server.url))) as k:
        yield k.store


async def test_gets_that_are_awaited_together_are_one_mget(alone: Store) -> None:
    await alone.call("MSET", *(part for number in range(50) for part in (f"k{number}", number)))

    values = await asyncio.gather(*(alone.get(f"k{number}") for number in range(51)))

    assert values == [*(str(number).encode() for number in range(50)), None]
    assert await calls(alone, "mget") == 1
    assert await calls(alone, "get") == 0


async def test_one_get_alone_is_a_get(alone: Store) -> None:
    await alone.call("SET", "k", "v")
    assert await alone.get("k") == b"v"
    assert await alone.get(b"k") == b"v"
    assert await calls(alone, "get") == 2


async def test_of_a_key_with_another_type_a_lone_get_is_refused_and_one_of_many_finds_nothing(alone: Store) -> None:
    """As the server has it: GET refuses what MGET calls absent."""
    await alone.call("RPUSH", "list", "x")
    with pytest.raises(KizunaError, match="WRONGTYPE"):
        await alone.get("list")
    both = [alone.get("list"), alone.get("other")]
    assert await asyncio.gather(*both) == [None, None]


async def test_of_rows_that_are_awaited_together_the_first_leaves_at_once_and_the_others_are_one_call(
    alone: Store,
) -> None:
    await append(alone, "warm", "up")
    before = await calls(alone, "evalsha")

    texts = await asyncio.gather(*(append(alone, "text", str(number)) for number in range(10)))

    assert texts == [b"0123456789"[: number + 1] for number in range(10)]
    assert await calls(alone, "evalsha") == before + 2


async def test_more_rows_than_a_call_takes_become_several_in_order(alone: Store) -> None:
    await append(alone, "warm", "up")
    before = await calls(alone, "evalsha")

    texts = await asyncio.gather(*(append(alone, f"t{number}", "x") for number in range(2 * MOST_ROWS + 2)))

    assert texts == [b"x"] * (2 * MOST_ROWS + 2)
    assert await calls(alone, "evalsha") == before + 1 + 3


async def test_large_rows_do_not_all_leave_in_one_call(alone: Store) -> None:
    await append(alone, "warm", "up")
    before = await calls(alone, "evalsha")
    large = b"x" * (MOST_BYTES // 4)

    texts = await asyncio.gather(*(append(alone, f"t{number}", large) for number in range(10)))

    assert texts == [large] * 10
    assert await calls(alone, "evalsha") == before + 1 + 3


async def test_rows_with_other_fixed_arguments_are_other_calls(store: Store, scratch: str) -> None:
    betweens = [1, 1.0, "1", b"1", 2]
    texts = await asyncio.gather(
        *(append(store, f"{scratch}{number}", "x", between=between) for number, between in enumerate(betweens))
    )

    assert texts == [b"x1", b"x1.0", b"x1", b"x1", b"x2"]


async def test_a_failing_row_tells_everybody_in_its_call_and_nobody_else(store: Store, scratch: str) -> None:
    replies: tuple[Any, ...] = await asyncio.gather(
        append(store, f"{scratch}first", "leaves at once"),
        append(store, f"{scratch}a", "before"),
        append(store, f"{scratch}b", "fail"),
        append(store, f"{scratch}c", "after"),
        append(store, f"{scratch}d", "other call", between="-"),
        store.get(f"{scratch}e"),
        return_exceptions=True,
    )

    assert replies[0] == b"leaves at once"
    errors = replies[1:4]
    assert all(isinstance(error, ScriptFailed) for error in errors)
    assert all("append.lua:12: no such piece" in str(error) for error in errors)
    assert len({id(error) for error in errors}) == 3
    assert list(replies[4:]) == [b"other call-", None]


async def test_rows_that_may_not_be_read_tell_each_awaiter() -> None:
    users = {"app": "on >pw ~mine:* &* +@all"}
    with ServerProcess(users=users) as guarded:
        settings = Settings(store=StoreSettings(url=guarded.url, username="app", password="pw"))  # type: ignore[arg-type]
        async with connect(settings) as k:
            replies = await asyncio.gather(
                k.store.get("theirs:1"), k.store.get("mine:1"), k.store.get("theirs:2"), return_exceptions=True
            )
            assert all(isinstance(reply, PermissionDenied) for reply in replies)


async def test_rows_that_cannot_be_sent_fail_and_nobody_hangs(store: Store, scratch: str) -> None:
    with pytest.raises(UnicodeEncodeError):
        await append(store, f"{scratch}a", "\ud800")

    replies: tuple[Any, ...] = await asyncio.gather(
        append(store, f"{scratch}b", "y"),
        append(store, f"{scratch}a", "\ud800"),
        append(store, f"{scratch}b", "x"),
        return_exceptions=True,
    )

    assert replies[0] == b"y"
    assert all(isinstance(reply, UnicodeEncodeError) for reply in replies[1:])
    assert await append(store, f"{scratch}b", "x") == b"yx"


async def test_cancelled_rows_and_gets_hurt_nobody_else(store: Store, scratch: str) -> None:
    await store.call("SET", f"{scratch}k", "v")
    rows = [append(store, f"{scratch}text", str(number)) for number in range(10)]
    gets = [store.get(f"{scratch}k") for _ in range(10)]
    await asyncio.sleep(0)
    for task in (*rows[::2], *gets[::2]):
        task.cancel()
    await asyncio.wait([*rows, *gets])

    assert all(task.cancelled() for task in (*rows[::2], *gets[::2]))
    assert [task.result() for task in gets[1::2]] == [b"v"] * 5
    assert all(task.result().endswith(str(2 * place + 1).encode()) for place, task in enumerate(rows[1::2]))


async def test_who_is_in_a_hurry_does_not_make_the_others_hurry(fresh_server: ServerProcess) -> None:
    async with connect(Settings(store=StoreSettings(url=fresh_server.url))) as k:
        fresh_server.pause()
        hasty = asyncio.gather(
            k.store.get("a", timeout_s=0.1), append(k.store, "t", "x", timeout_s=0.1), return_exceptions=True
        )
        patient = asyncio.gather(k.store.get("a", timeout_s=10), append(k.store, "u", "x", timeout_s=10))

        assert all(isinstance(reply, OutcomeUnknown) for reply in await hasty)
        fresh_server.resume()
        assert list(await patient) == [None, b"x"]


async def test_closing_lets_batches_end(server: ServerProcess, scratch: str) -> None:
    k = await connect(Settings(store=StoreSettings(url=server.url)))
    row, value = append(k.store, f"{scratch}t", "x"), k.store.get(f"{scratch}other")
    await k.aclose()

    assert await row == b"x"
    assert await value is None


async def test_what_concerns_all_keys_comes_after_what_was_asked_before(alone: Store) -> None:
    await alone.call("SET", "k", "v")
    value, row, _ = await asyncio.gather(alone.get("k"), append(alone, "t", "x"), alone.call("FLUSHALL"))

    assert (value, row) == (b"v", b"x")
    assert await alone.call("DBSIZE") == 0


# -- every mix ---------------------------------------------------------------------------------------------------

keys = st.sampled_from(["a", "b", "c"])
steps = st.one_of(
    st.tuples(st.just("SET"), keys, st.sampled_from("xyz")),
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("GET"), keys),
    st.tuples(st.just("append"), keys, st.sampled_from("xyz")),
    st.tuples(st.just("append with a comma"), keys, st.sampled_from("xyz")),
    st.tuples(st.just("DEL"), keys),
    st.tuples(st.just("MSET"), st.sampled_from("xyz")),
    st.tuples(st.just("pause")),
)


def in_sequence(texts: dict[str, bytes], step: tuple[str, ...]) -> Any:
    """What the step returns if it is done after all the steps before, and before all after it."""
    name, *rest = step
    if name == "SET":
        texts[rest[0]] = rest[1].encode()
        return b"OK"
    if name in ("get", "GET"):
        return texts.get(rest[0])
    if name.startswith("append"):
        between = "," if "comma" in name else ""
        texts[rest[0]] = texts.get(rest[0], b"") + (rest[1] + between).encode()
        return texts[rest[0]]
    if name == "DEL":
        return int(texts.pop(rest[0], None) is not None)
    if name == "MSET":
        texts.update(dict.fromkeys("abc", rest[0].encode()))
        return b"OK"
    return None


def begin(store: Store, root: str, step: tuple[str, ...]) -> asyncio.Future[Any]:
    name, *rest = step
    key = f"{{{root}}}{rest[0]}" if rest else ""
    if name == "SET":
        return store.call("SET", key, rest[1])
    if name == "get":
        return store.get(key)
    if name.startswith("append"):
        return append(store, key, rest[1], between="," if "comma" in name else "")
    if name == "MSET":
        return store.call("MSET", *(part for other in "abc" for part in (f"{{{root}}}{other}", rest[0])))
    return store.call(name, key)


@pytest.mark.parametrize("options", [{}, {"in_flight_bytes": 64 * 1024}, {"connections": 3}, {"cluster": True}])
@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(steps, max_size=40))
def test_every_mix_gives_what_one_after_the_other_gives(
    server: ServerProcess, cluster: ClusterSetup, options: dict[str, Any], plan: list[tuple[str, ...]]
) -> None:
    async def run() -> None:
        url = cluster.url if "cluster" in options else server.url
        others = {name: value for name, value in options.items() if name != "cluster"}
        root, texts = f"mix-{secrets.token_hex(4)}", dict[str, bytes]()
        async with connect(Settings(store=StoreSettings(url=url, **others))) as k:
            begun, expected = [], []
            for step in plan:
                if step[0] == "pause":
                    await asyncio.sleep(0)
                    continue
                begun.append(begin(k.store, root, step))
                expected.append(in_sequence(texts, step))
            assert await asyncio.gather(*begun) == expected
            await k.store.call("DEL", *(f"{{{root}}}{key}" for key in "abc"))

    asyncio.run(run())


# -- cluster -----------------------------------------------------------------------------------------------------


async def test_on_a_cluster_what_travels_together_is_of_one_slot(cluster: ClusterSetup) -> None:
    root = secrets.token_hex(4)
    async with connect(Settings(store=StoreSettings(url=cluster.url))) as k:
        names = [f"{root}-{number}" for number in range(30)]
        assert len({key_slot(name) for name in names}) > 5

        texts = await asyncio.gather(*(append(k.store, name, name) for name in names))
        values = await asyncio.gather(*(k.store.get(name) for name in names))

        assert texts == values == [name.encode() for name in names]
        for name in names:
            await k.store.call("DEL", name)
