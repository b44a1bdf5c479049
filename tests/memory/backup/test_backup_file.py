"""The file of the copy: who may read it, how large it becomes, and what happens when it does not work."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.memory.backup.conftest import WITHIN_S, Remember, backup_of, fallback_of, lose, until_complete, until_copied

from kizuna.app import connect
from kizuna.errors import BackupDamaged, BackupFull, BackupNotWritten, Unreachable
from kizuna.memory.backup.copying import ItemCopy
from kizuna.memory.backup.file import file_name
from kizuna.memory.backup.thread import CopyThread
from kizuna.memory.item import Item
from kizuna.memory.memory import Memory
from kizuna.settings import RootsSettings, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.testing import ChaosProxy, eventually

MB = 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def bounded(copied: Settings, **memory: object) -> Settings:
    return msgspec.structs.replace(copied, memory=msgspec.structs.replace(copied.memory, **memory))


def fill(ballast: Path) -> None:
    def write_on() -> None:
        with ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)

    with pytest.raises(OSError, match="No space left"):
        write_on()


def used(m: Memory) -> int:
    return sum(file.stat().st_size for file in backup_of(m).path.parent.iterdir())


async def test_nobody_else_may_read_it(m: Memory) -> None:
    await m.create("note", 1)
    folder = backup_of(m).path.parent

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert len(modes) >= 3
    assert set(modes.values()) == {0o600}


def test_each_memory_has_a_file_of_its_own() -> None:
    one = Settings(store=StoreSettings(url="redis://host:1/0"))
    others = [
        Settings(store=StoreSettings(url="redis://host:2/0")),
        Settings(store=StoreSettings(url="redis://host:1/1")),
        Settings(store=StoreSettings(url="redis://host:1/0"), roots=RootsSettings(memory="other/../root")),
    ]
    names = [file_name(Store(settings)) for settings in (one, *others)]

    assert len(set(names)) == 4
    assert not any("/" in name for name in names)
    # A password, or who we are, leads to the same memory.
    assert names[0] == file_name(Store(Settings(store=StoreSettings(url="redis://me:secret@host:1/0"))))


async def test_what_ends_soonest_goes_first_when_there_is_no_more_room(remember: Remember, copied: Settings) -> None:
    m = await remember(bounded(copied, backup_bytes=MB))
    await until_complete(m)
    for number in range(300):
        await m.create("note", "x" * 10_000, id=f"n{number:03}", ttl_s=1_000 + number)
    await backup_of(m).pending()
    kept = await backup_of(m).keeper.read([f"n{number:03}" for number in range(300)])

    there = [item is not None for item in kept]
    assert 30 < sum(there) < 110
    assert there == sorted(there)
    assert (await backup_of(m).contents()).used_bytes <= MB
    assert not (await backup_of(m).contents()).is_complete
    # With the log that SQLite writes before it writes the file.
    assert used(m) < 8 * MB


async def test_the_journal_is_never_dropped_and_says_when_it_is_full(
    remember: Remember, copied: Settings, other: Memory, network: ChaosProxy
) -> None:
    m = await remember(bounded(copied, backup_bytes=MB))
    await until_complete(m)
    await m.create("note", "x" * 10_000, id="copy", ttl_s=60)
    await lose(network, m)

    async def write_on() -> None:
        for number in range(300):
            await m.create("note", "x" * 10_000, id=f"n{number}")

    with pytest.raises(BackupFull, match="takes no more until the server can be reached again"):
        await write_on()
    taken = await backup_of(m).pending()
    last = await m.get(f"n{taken - 1}")

    assert taken > 20
    assert last is not None
    assert await m.get(f"n{taken}") is None
    await network.accept()
    await eventually(lambda: not fallback_of(m).is_away, within_s=WITHIN_S)
    assert len([item async for item in other.all()]) == taken + 1


async def test_a_full_disk_stops_the_copy_and_not_the_memory(
    small_disk: Path, remember: Remember, copied: Settings, network: ChaosProxy
) -> None:
    m = await remember(bounded(copied, backup_folder=str(small_disk)))
    await until_complete(m)
    await m.create("note", 1, id="early")
    await until_copied(m, "early")
    ballast = small_disk / "ballast"
    fill(ballast)
    for number in range(30):
        item = await m.create("note", "x" * 10_000, id=f"n{number}")
        assert not item.from_backup
    await eventually(lambda: backup_of(m).thread.problem is not None, within_s=WITHIN_S)

    assert "the disk is full; make room on it" in str(backup_of(m).thread.problem)
    assert {one.name: one.value for one in fallback_of(m).measures()}["kizuna_memory_backup_works"] == 0
    await lose(network, m)
    with pytest.raises(BackupNotWritten, match="the disk is full"):
        await m.create("note", "x" * 50_000, id="refused")
    ballast.unlink()
    assert (await m.create("note", "x", id="taken")).from_backup
    await network.accept()
    await eventually(lambda: not fallback_of(m).is_away, within_s=WITHIN_S)
    # What could not be copied is copied now.
    await m.create("note", 1, id="late")
    await until_copied(m, "n29")
    assert backup_of(m).thread.problem is None


@pytest.mark.parametrize("what_comes_next", ["nothing", "a write", "a write of somebody else"])
async def test_what_a_full_disk_did_not_take_is_copied_when_there_is_room(
    small_disk: Path, remember: Remember, copied: Settings, other: Memory, what_comes_next: str
) -> None:
    m = await remember(bounded(copied, backup_folder=str(small_disk)))
    await until_complete(m)
    ballast = small_disk / "ballast"
    fill(ballast)
    ids = [f"n{number}" for number in range(30)]
    for id_ in ids:
        await m.create("note", "x" * 10_000, id=id_)
    await eventually(lambda: backup_of(m).thread.problem is not None, within_s=WITHIN_S)
    assert not (await backup_of(m).contents()).is_complete

    ballast.unlink()
    if what_comes_next == "a write":
        await m.create("note", 1, id="next")
    elif what_comes_next == "a write of somebody else":
        await other.create("note", 1, id="next")

    await until_complete(m)
    assert None not in await backup_of(m).keeper.read(ids)
    assert backup_of(m).thread.problem is None


@pytest.mark.parametrize("when", ["before there was a copy", "by this process", "by somebody else"])
async def test_more_at_once_than_may_wait_is_copied_nevertheless(
    remember: Remember, copied: Settings, settings: Settings, other: Memory, when: str
) -> None:
    direct = msgspec.structs.replace(bounded(copied, fallback_after_s=WITHIN_S), store=settings.store)
    ids = [f"n{number}" for number in range(40)]
    drafts = [{"type": "note", "content": "x" * 1_000_000, "id": id_} for id_ in ids]
    if when == "before there was a copy":
        await other.create_many(drafts)
    m = await remember(direct)
    await until_complete(m)
    if when == "by this process":
        await m.create_many(drafts)
        assert backup_of(m).thread.lost > 0
    elif when == "by somebody else":
        await other.create_many(drafts)

    for id_ in ids:
        await until_copied(m, id_)
    await until_complete(m)


@pytest.mark.parametrize("what", ["garbage", "cut", "foreign", "newer"])
async def test_a_file_that_is_not_ours_or_not_whole_is_left_alone(
    copied: Settings, other: Memory, network: ChaosProxy, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(copied) as k:
        await k.memory.create("note", "x" * 10_000, id="a")
        path = backup_of(k.memory).path
    spoil(path, what)
    spoilt = path.read_bytes()

    with pytest.raises(BackupDamaged) as damaged:
        await CopyThread(path, MB).open()
    async with connect(copied) as k:
        item = await k.memory.get("a")
        assert item is not None
        assert not item.from_backup
        await k.memory.create("note", 1, id="b")
        network.refuse()
        await network.cut()
        (link,) = k.store.topology.primaries()
        await eventually(lambda: link.wire is None)
        with pytest.raises(Unreachable):
            await k.memory.get("a")

    assert str(path) in str(damaged.value)
    assert "memory has no copy" in caplog.messages
    assert path.read_bytes() == spoilt
    assert await other.get("b") is not None


def spoil(path: Path, what: str) -> None:
    if what == "garbage":
        path.write_bytes(b"this is a text, and no database" * 100)
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    elif what == "newer":
        run(path, "PRAGMA user_version = 99")
    else:
        path.unlink()
        run(path, "CREATE TABLE mine (x)")


def run(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql)
    connection.close()


async def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(copied: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with connect(bounded(copied, backup_folder=str(tmp_path / "file" / "below"))) as k:
        assert (await k.memory.create("note", 1)).version == 1
        problem = fallback_of(k.memory).problem
        assert isinstance(problem, BackupNotWritten)
        assert "make the folder writable, or set memory.backup_folder to another" in str(problem)


async def test_a_number_that_no_database_holds_spoils_only_itself(m: Memory) -> None:
    thread = backup_of(m).thread
    good = await m.create("note", 1, id="good")
    numbers = {"version": 10**30, "created_at": 1.0, "updated_at": 1.0, "expires_at": 1e10, "ttl_s": 1.0}
    thread.copy(ItemCopy(Item(id="odd", type="note", context="c", priority=5, raw_content=b"1", raw_metadata=b"{}",
                              more=good.more, **numbers)))  # type: ignore[arg-type]  # fmt: skip

    await until_copied(m, "good")
    assert thread.lost == 1
    assert thread.problem is None
