"""Back up, wipe, restore, compare."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.errors import (
    BackupDamaged,
    BackupNotWritten,
    OutOfMemory,
    PermissionDenied,
    RestoreConflict,
    StoreError,
    Unreachable,
)
from kizuna.settings import CoordinationSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.inspection.backup import back_up
from kizuna.store.inspection.backup_file import Footer
from kizuna.store.inspection.backup_reader import BackupReader
from kizuna.store.inspection.restore import Restore, Restored
from kizuna.store.inspection.values import ValueReader
from kizuna.store.keys import RESTORED
from kizuna.store.scanning import Scan
from kizuna.testing import ClusterSetup, ServerProcess, eventually
from kizuna.testing.fixtures import MakeProxy


async def fill(store: Store, at: str) -> None:
    """A key of each type, with bytes that are no text, in names as well as in values."""
    call = store.call
    for written in (
        call("SET", at + "string", b"\x00\xff\r\n"),
        call("SET", at + "empty", b""),
        call("SET", at + "ending", b"soon", "PX", 3_600_000),
        call("SET", at.encode() + b"\xff\x00 \n", b"strange name"),
        call("RPUSH", at + "list", *range(50), b"\xff", b""),
        call("SADD", at + "set", *range(50), b"\xff"),
        call("HSET", at + "hash", b"\xff", b"\x00", "", "", *map(str, range(100))),
        call("PEXPIRE", at + "hash", 7_200_000),
        call("ZADD", at + "zset", "inf", "a", "-inf", "b", "0.1", b"\xff", "1e300", "d", "-12345678901234567", "e"),
        call("XADD", at + "stream", "5-1", "f", "v", "f", b"\xff"),
        call("XADD", at + "stream", "5-2", "", ""),
        call("XADD", at + "stream", "9-0", "gone", "entry"),
        call("XDEL", at + "stream", "9-0"),
        call("XGROUP", "CREATE", at + "stream", "readers", "5-1"),
        call("XGROUP", "CREATE", at + "stream", b"\xff", "0"),
        call("XGROUP", "CREATE", at + "no entries", "g", "0", "MKSTREAM"),
    ):
        await written


async def values_below(store: Store, at: str) -> dict[bytes, Any]:
    """All that a backup is to keep; times apart."""
    found: dict[bytes, Any] = {}
    scan = Scan(store, [at + "*"])
    reader = ValueReader(store, scan)
    async for keys in scan:
        async for record in reader.read(keys):
            name = record.key[len(at) :]
            # What is large comes in parts; how large it is, the server estimates.
            before = found[name][1] if record.part else []
            found[name] = (record.type, before + record.items, record.marks, record.ttl_ms == -1)
    return {name: _in_order(*facts) for name, facts in found.items()}


def _in_order(kind: str, items: list[Any], *rest: Any) -> tuple[Any, ...]:
    # In parts, the server may name a member twice.
    if kind == "set":
        items = sorted(set(items), key=str)
    elif kind == "hash":
        items = sorted((text for pair in set(zip(items[::2], items[1::2], strict=True)) for text in pair), key=str)
    return (kind, items, *rest)


def comparable(found: dict[bytes, Any]) -> dict[bytes, Any]:
    """Without what servers may write differently: the order of what has none, and the digits of a score."""
    return {
        key: (kind, sorted(map(number_or_text, items), key=str), *rest) for key, (kind, items, *rest) in found.items()
    }


def number_or_text(item: bytes | list[bytes]) -> object:
    try:
        return float(item)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return item


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def wipe(store: Store, at: str) -> None:
    async for keys in Scan(store, [at + "*"]):
        for key in keys:
            await store.call("UNLINK", key)


async def saved(store: Store, path: Path, *patterns: str, **options: Any) -> Footer:
    return await back_up(store, path, patterns, **options)


async def restored(store: Store, path: Path, **options: Any) -> Restored:
    return await Restore(store, path, **options).run()


async def ttl(store: Store, key: str) -> int:
    return int(await store.call("PTTL", key))


# one server


async def test_everything_comes_back_as_it_was(store: Store, scratch: str, tmp_path: Path) -> None:
    await fill(store, scratch)
    before = await values_below(store, scratch)
    footer = await saved(store, tmp_path / "b", scratch + "*")
    await wipe(store, scratch)
    assert await values_below(store, scratch) == {}

    result = await restored(store, tmp_path / "b")

    assert await values_below(store, scratch) == before
    assert footer.keys == result.restored == len(before) == 10
    assert 3_500_000 < await ttl(store, scratch + "ending") <= 3_600_000
    assert 7_100_000 < await ttl(store, scratch + "hash") <= 7_200_000
    assert await ttl(store, scratch + "list") == -1


async def test_large_values_go_in_parts(store: Store, scratch: str, tmp_path: Path) -> None:
    await fill(store, scratch)
    many = [str(number) for number in range(2_000)]
    for command in ("RPUSH", "SADD", "HSET", "ZADD"):
        await store.call(command, f"{scratch}large {command}", *many)
    await store.call("SET", scratch + "large string", secrets.token_bytes(50_000))
    await asyncio.gather(*(store.call("XADD", scratch + "stream", f"10-{number}", "n", number) for number in many))
    before = await values_below(store, scratch)
    footer = await saved(store, tmp_path / "b", scratch + "*", most_bytes=5_000)
    assert footer.records > footer.keys + 30
    await wipe(store, scratch)

    result = await restored(store, tmp_path / "b")

    after = await values_below(store, scratch)
    assert comparable(after) == comparable(before)
    assert after[b"list"] == before[b"list"]
    assert after[b"stream"] == before[b"stream"]
    assert result.restored == len(before)
    assert 7_100_000 < await ttl(store, scratch + "hash") <= 7_200_000


binaries = st.binary(max_size=20)
some = {"min_size": 1, "max_size": 8}
ids = st.lists(st.tuples(st.integers(1, 2**63), st.integers(0, 2**63)), unique=True, **some).map(sorted)  # type: ignore[arg-type]
values = st.one_of(
    binaries.map(lambda value: ("SET", value)),
    st.lists(binaries, **some).map(lambda items: ("RPUSH", *items)),  # type: ignore[arg-type]
    st.lists(binaries, **some).map(lambda items: ("SADD", *items)),  # type: ignore[arg-type]
    st.dictionaries(binaries, binaries, **some).map(  # type: ignore[arg-type]
        lambda items: ("HSET", *(part for pair in items.items() for part in pair))
    ),
    st.dictionaries(binaries, st.floats(allow_nan=False), **some).map(  # type: ignore[arg-type]
        lambda items: ("ZADD", *(part for member, score in items.items() for part in (repr(score), member)))
    ),
    st.tuples(ids, binaries, binaries).map(lambda stream: ("XADD", *stream)),
)


async def put(store: Store, key: bytes, command: str, *arguments: Any) -> None:
    if command == "XADD":
        entries, field, value = arguments
        for first, second in entries:
            await store.call("XADD", key, f"{first}-{second}", field, value)
    else:
        await store.call(command, key, *arguments)


@given(
    data=st.dictionaries(binaries, values, max_size=6),
    ttl_ms=st.none() | st.integers(10**6, 10**12),
    most_bytes=st.sampled_from([1, 100, 10**6]),
)
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_values_come_back(
    settings: Settings,
    scratch: str,
    tmp_path: Path,
    data: dict[bytes, tuple[Any, ...]],
    ttl_ms: int | None,
    most_bytes: int,
) -> None:
    async def there_and_back() -> None:
        async with connect(settings) as k:
            await wipe(k.store, scratch)
            for name, value in data.items():
                await put(k.store, scratch.encode() + name, *value)
                if ttl_ms is not None:
                    await k.store.call("PEXPIRE", scratch.encode() + name, ttl_ms)
            before = await values_below(k.store, scratch)
            await saved(k.store, tmp_path / "b", scratch + "*", overwrite=True, most_bytes=most_bytes)
            await wipe(k.store, scratch)
            await restored(k.store, tmp_path / "b")
            after = await values_below(k.store, scratch)
            assert comparable(after) == comparable(before)

    asyncio.run(there_and_back())


async def test_what_stands_beside_the_pattern_is_not_touched(store: Store, scratch: str, tmp_path: Path) -> None:
    await store.call("SET", scratch + "ours:a", 1)
    await store.call("SET", scratch + "oursnot", 2)
    await saved(store, tmp_path / "b", scratch + "ours:*")
    await store.call("SET", scratch + "oursnot", 3)
    await store.call("DEL", scratch + "ours:a")

    result = await restored(store, tmp_path / "b")

    assert result.restored == 1
    assert await store.get(scratch + "oursnot") == b"3"


# what exists already


async def test_a_key_in_the_way_refuses_everything(store: Store, scratch: str, tmp_path: Path) -> None:
    for name in "abc":
        await store.call("SET", scratch + name, "old")
    await saved(store, tmp_path / "b", scratch + "*")
    await store.call("DEL", scratch + "a", scratch + "b")
    await store.call("SET", scratch + "c", "new")

    with pytest.raises(RestoreConflict) as conflict:
        await restored(store, tmp_path / "b")

    assert (conflict.value.key, conflict.value.count) == (scratch + "c", 1)
    assert "exists already, and nothing was written" in str(conflict.value)
    assert await store.call("EXISTS", scratch + "a", scratch + "b") == 0
    assert await store.get(scratch + "c") == b"new"


async def test_keys_in_the_way_are_skipped_or_replaced_as_told(store: Store, scratch: str, tmp_path: Path) -> None:
    await store.call("RPUSH", scratch + "a", 1, 2)
    await store.call("SET", scratch + "b", "old", "PX", 3_600_000)
    await saved(store, tmp_path / "b", scratch + "*", most_bytes=1)
    await store.call("DEL", scratch + "a", scratch + "b")
    await store.call("SET", scratch + "a", "of another type", "PX", 60_000)

    skipped = await restored(store, tmp_path / "b", conflict="skip")
    assert (skipped.restored, skipped.skipped) == (1, 1)
    assert await store.get(scratch + "a") == b"of another type"

    replaced = await restored(store, tmp_path / "b", conflict="replace")
    assert (replaced.restored, replaced.skipped) == (2, 0)
    assert await store.call("LRANGE", scratch + "a", 0, -1) == [b"1", b"2"]
    assert await ttl(store, scratch + "a") == -1


async def test_nobody_ever_sees_half_of_a_value_that_is_replaced(store: Store, scratch: str, tmp_path: Path) -> None:
    key = scratch + "list"
    await store.call("RPUSH", key, *range(3_000))
    await saved(store, tmp_path / "b", key, most_bytes=1_000)
    seen: set[int] = set()

    async def look() -> None:
        while True:
            seen.add(await store.call("LLEN", key))

    looking = asyncio.create_task(look())
    for _ in range(5):
        await restored(store, tmp_path / "b", conflict="replace")
    looking.cancel()

    assert seen == {3_000}


# time


async def test_time_goes_on_where_it_stopped_or_as_if_it_had_not(store: Store, scratch: str, tmp_path: Path) -> None:
    await store.call("SET", scratch + "short", 1, "PX", 4_000)
    await store.call("SET", scratch + "long", 1, "PX", 3_600_000)
    await saved(store, tmp_path / "b", scratch + "*")
    ends_at = int((await store.call("TIME"))[0]) * 1000 + 3_600_000
    await wipe(store, scratch)
    await asyncio.sleep(4.1)

    result = await restored(store, tmp_path / "b", ttl="absolute")
    assert (result.restored, result.expired) == (1, 1)
    now_ms = int((await store.call("TIME"))[0]) * 1000
    assert abs(now_ms + await ttl(store, scratch + "long") - ends_at) < 5_000

    result = await restored(store, tmp_path / "b", conflict="replace")
    assert (result.restored, result.expired) == (2, 0)


# another root


async def test_a_backup_can_go_to_another_root(store: Store, scratch: str, tmp_path: Path) -> None:
    await fill(store, f"{scratch}one:")
    await store.call("SET", f"{{{scratch}one:3}}:queue", "of a shard")
    await saved(store, tmp_path / "b", scratch + "one:*", f"{{{scratch}one:*")

    await restored(store, tmp_path / "b", roots={f"{scratch}one": f"{scratch}two"})

    assert await values_below(store, f"{scratch}two:") == await values_below(store, f"{scratch}one:")
    assert await store.get(f"{{{scratch}two:3}}:queue") == b"of a shard"
    await store.call("DEL", f"{{{scratch}one:3}}:queue", f"{{{scratch}two:3}}:queue")


# trouble


async def test_a_damaged_file_changes_nothing_and_can_be_salvaged(store: Store, scratch: str, tmp_path: Path) -> None:
    path = tmp_path / "b"
    for number in range(60):
        await store.call("SET", f"{scratch}{number}", secrets.token_bytes(20_000))
    await saved(store, path, scratch + "*")
    raw = bytearray(path.read_bytes())
    starts = [at for at in range(len(raw)) if raw[at : at + 4] == b"KZNB"]
    assert len(starts) >= 6
    raw[starts[2] + 100] ^= 1
    path.write_bytes(raw)
    await wipe(store, scratch)

    with pytest.raises(BackupDamaged, match="block 2 is not as it was written"):
        await restored(store, path, conflict="replace")
    assert await values_below(store, scratch) == {}

    result = await restored(store, path, salvage=True)
    assert 0 < result.restored < 60
    assert len(await values_below(store, scratch)) == result.restored
    assert len(result.damage) == 1


async def test_the_rest_of_a_large_value_whose_beginning_is_lost_is_left_out(
    store: Store, scratch: str, tmp_path: Path
) -> None:
    path = tmp_path / "b"
    await store.call("RPUSH", scratch + "list", *(secrets.token_bytes(100_000) for _ in range(10)))
    await saved(store, path, scratch + "*", most_bytes=300_000)
    raw = bytearray(path.read_bytes())
    starts = [at for at in range(len(raw)) if raw[at : at + 4] == b"KZNB"]
    await wipe(store, scratch)
    for start in starts[1:4]:
        broken = bytearray(raw)
        broken[start + 100] ^= 1
        path.write_bytes(broken)

        result = await restored(store, path, salvage=True)

        assert (result.restored, result.incomplete) == (0, 1)
        assert await values_below(store, scratch) == {}


async def test_an_interrupted_restore_goes_on_where_it_stopped(
    store: Store, settings: Settings, root: str, scratch: str, tmp_path: Path
) -> None:
    path = tmp_path / "b"
    for number in range(60):
        await store.call("SET", f"{scratch}{number}", secrets.token_bytes(20_000))
    await store.call("RPUSH", scratch + "list", *(secrets.token_bytes(100_000) for _ in range(10)))
    before = await values_below(store, scratch)
    await saved(store, path, scratch + "*", most_bytes=300_000)
    await wipe(store, scratch)

    class Stopped(Exception):
        pass

    with BackupReader(path) as reader:
        size, blocks = reader.size, len(list(reader.blocks()))
    for share in (0.3, 0.6, 0.8):

        def stop(done: int, total: int, share: float = share) -> None:
            assert total == 2 * size
            if done - size > size * share:
                raise Stopped

        with pytest.raises(Stopped):
            await restored(store, path, resume=True, progress=stop)
        note = [key async for keys in Scan(store, [RESTORED.glob(root)]) for key in keys]
        assert len(note) == 1
        done, begun = map(int, (await store.call("GET", note[0])).split())
        assert 0 <= done < begun < blocks

    with pytest.raises(RestoreConflict):
        await restored(store, path)
    result = await restored(store, path, resume=True)

    assert 0 < result.restored < len(before)
    assert await values_below(store, scratch) == before
    assert [key async for keys in Scan(store, [RESTORED.glob(root)]) for key in keys] == []


async def test_a_restore_can_be_interrupted_anywhere(store: Store, scratch: str, tmp_path: Path) -> None:
    path = tmp_path / "b"
    for number in range(30):
        await store.call("SET", f"{scratch}{number}", secrets.token_bytes(10_000))
    await store.call("RPUSH", scratch + "list", *(secrets.token_bytes(100_000) for _ in range(7)))
    before = await values_below(store, scratch)
    await saved(store, path, scratch + "*")

    class Stopped(Exception):
        pass

    def stopping_after(restore: Restore, batches: int) -> Restore:
        write, written = restore._write_batch, 0

        async def write_batch(batch: Any) -> None:
            nonlocal written
            if written == batches:
                raise Stopped
            written += 1
            await write(batch)

        restore._write_batch = write_batch  # type: ignore[method-assign]
        return restore

    stopped = 0
    for batches in range(100):
        await wipe(store, scratch)
        try:
            await stopping_after(Restore(store, path), batches).run()
        except Stopped:
            stopped += 1
        else:
            break
        await restored(store, path, resume=True)
        assert await values_below(store, scratch) == before

    assert 8 < stopped < 99


async def test_keys_that_vanish_between_being_found_and_being_read_are_counted(
    store: Store, scratch: str, tmp_path: Path
) -> None:
    await store.call("SET", scratch + "here", 1)
    scan = Scan(store, [scratch + "*"])
    reader = ValueReader(store, scan)
    keys = [scratch.encode() + b"here", scratch.encode() + b"gone"]

    assert [record.key async for record in reader.read(keys)] == keys[:1]
    assert reader.vanished == 1


async def test_a_connection_that_is_cut_leaves_an_error_and_no_file(
    settings: Settings, proxy: MakeProxy, store: Store, scratch: str, tmp_path: Path
) -> None:
    await asyncio.gather(*(store.call("SET", f"{scratch}{number}", "x" * 1000) for number in range(3_000)))
    chaos = await proxy()
    through = Settings(store=StoreSettings(url=chaos.url, timeout_s=2), roots=settings.roots)
    async with connect(through) as k:

        def cut(done: int, total: int) -> None:
            chaos.drop_replies(1, then="cut")

        with pytest.raises(StoreError):
            await saved(k.store, tmp_path / "b", scratch + "*", progress=cut)

    assert names_in(tmp_path) == []


async def test_a_scan_does_not_go_on_at_what_may_be_another_server(
    settings: Settings, proxy: MakeProxy, store: Store, scratch: str
) -> None:
    await asyncio.gather(*(store.call("SET", f"{scratch}{number}", 1) for number in range(3_000)))
    chaos = await proxy()
    async with connect(Settings(store=StoreSettings(url=chaos.url), roots=settings.roots)) as k:
        (link,) = k.store.topology.primaries()
        found = aiter(Scan(k.store, [scratch + "*"]))
        await anext(found)
        await chaos.cut()
        await eventually(lambda: link.connections == 2)
        with pytest.raises(Unreachable, match=r"lost while the keys were listed.*begin again"):
            await anext(found)


async def test_who_may_not_read_is_told_so(store: Store, server: ServerProcess, scratch: str, tmp_path: Path) -> None:
    user = f"user-{secrets.token_hex(4)}"
    server.call("ACL", "SETUSER", user, "on", ">secret", "~nothing:*", "&*", "+@all")
    try:
        await store.call("SET", scratch + "a", 1)
        settings = Settings(store=StoreSettings(url=server.url, username=user, password="secret"))  # type: ignore[arg-type]
        async with connect(settings) as k:
            with pytest.raises(PermissionDenied):
                await saved(k.store, tmp_path / "b", scratch + "*")
    finally:
        server.call("ACL", "DELUSER", user)
    assert names_in(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_leaves_an_error_and_no_file(store: Store, scratch: str, small_disk: Path) -> None:
    for number in range(30):
        await store.call("SET", f"{scratch}{number}", secrets.token_bytes(100_000))

    with pytest.raises(BackupNotWritten, match="No space left on device; make room, or write it elsewhere"):
        await saved(store, small_disk / "b", scratch + "*")

    assert names_in(small_disk) == []


async def test_the_server_is_never_asked_for_all_keys_at_once(fresh_server: ServerProcess, tmp_path: Path) -> None:
    async with connect(fresh_server.url) as k:
        await fill(k.store, "poppo:")
        await saved(k.store, tmp_path / "b", "poppo:*")
        await restored(k.store, tmp_path / "b", conflict="replace")

    assert "cmdstat_keys" not in fresh_server.info("commandstats")


# elsewhere


async def test_a_backup_of_valkey_can_be_restored_to_redis(redis_binary: str, tmp_path: Path) -> None:
    with ServerProcess() as valkey, ServerProcess(binary=redis_binary) as redis:
        for one, other, name in ((valkey, redis, "there"), (redis, valkey, "back")):
            async with connect(one.url) as k, connect(other.url) as elsewhere:
                await fill(k.store, f"{name}:")
                await saved(k.store, tmp_path / name, f"{name}:*", most_bytes=200)
                await restored(elsewhere.store, tmp_path / name)
                before, after = await values_below(k.store, f"{name}:"), await values_below(elsewhere.store, f"{name}:")
                assert comparable(after) == comparable(before)


@pytest.fixture
async def of_cluster(cluster: ClusterSetup) -> AsyncIterator[Store]:
    settings = Settings(store=StoreSettings(url=cluster.url), coordination=CoordinationSettings(shards=6))
    async with connect(settings) as k:
        yield k.store
        await k.store.call_each_primary("FLUSHALL")


async def test_on_a_cluster_all_primaries_are_saved_and_restored(of_cluster: Store, tmp_path: Path) -> None:
    store = of_cluster
    for shard in range(6):
        await fill(store, f"{{poppo:{shard}}}:")
    await fill(store, "poppo:")
    before = await values_below(store, "{poppo:")
    footer = await saved(store, tmp_path / "b", "poppo:*", "{poppo:*", most_bytes=200)
    assert footer.keys == 7 * 10

    await restored(store, tmp_path / "b", roots={"poppo": "copy"})
    assert comparable(await values_below(store, "{copy:")) == comparable(before)

    await wipe(store, "{poppo:")
    await wipe(store, "poppo:")
    result = await restored(store, tmp_path / "b")
    assert result.restored == 70
    assert (await values_below(store, "{poppo:")).keys() == before.keys()


async def test_slots_that_moved_meanwhile_are_told(of_cluster: Store, cluster: ClusterSetup) -> None:
    store = of_cluster
    await asyncio.gather(*(store.call("SET", f"key-{number}", number) for number in range(600)))
    slot = cluster.slot_of("key-0")
    owner = cluster.owner_of(slot)
    other = next(server for server in cluster.servers if server is not owner)
    scan = Scan(store, ["key-*"])
    moved = False
    async for _ in scan:
        if not moved:
            await asyncio.to_thread(cluster.move_slot, slot, other)
            moved = True
    assert scan.moved_slots == 1

    scan = Scan(store, ["key-*"])
    assert len({key async for keys in scan for key in keys}) == 600
    assert scan.moved_slots == 0


async def test_a_full_server_keeps_what_it_has_and_the_restore_can_go_on(tmp_path: Path) -> None:
    with ServerProcess(config={"maxmemory-policy": "noeviction"}) as server:
        async with connect(server.url) as k:
            store = k.store
            for number in range(200):
                await store.call("SET", f"poppo:temp:{number}", secrets.token_bytes(10_000), "EX", 600)
            await saved(store, tmp_path / "b", "poppo:*")
            await wipe(store, "poppo:temp:1")
            kept = await values_below(store, "poppo:")
            used = int(server.info("memory")["used_memory"])
            server.call("CONFIG", "SET", "maxmemory", used + 300_000)

            with pytest.raises(OutOfMemory):
                await restored(store, tmp_path / "b", conflict="replace")
            half = await values_below(store, "poppo:")
            assert half.keys() >= kept.keys()
            assert {key: half[key] for key in kept} == kept
            assert len(half) < 200

            server.call("CONFIG", "SET", "maxmemory", 0)
            await restored(store, tmp_path / "b", conflict="replace", resume=True)
            assert len(await values_below(store, "poppo:")) == 200
            assert await store.call("DBSIZE") == 200


async def test_a_value_that_ends_while_it_is_read_in_parts_is_left_out(
    store: Store, scratch: str, tmp_path: Path
) -> None:
    await store.call("RPUSH", scratch + "list", *range(5_000))
    scan = Scan(store, [scratch + "*"])
    reader = ValueReader(store, scan, most_bytes=1_000)
    records = reader.read([scratch.encode() + b"list"])
    first = await anext(records)
    await store.call("DEL", scratch + "list")
    await store.call("SET", scratch + "list", "something else")
    rest = [record async for record in records]

    assert (first.part, first.last) == (0, False)
    assert not any(record.last for record in rest)
    assert reader.vanished == 1
