"""A disk that is full: writes are refused with a sentence, everything else goes on, and it heals by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kizuna.app import connect
from kizuna.errors import OutcomeUnknown, StorageFull, Unreachable
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.events import Message
from kizuna.store.health.examination import examine
from kizuna.store.health.info import check_health
from kizuna.testing import ServerProcess, eventually


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def at(server: ServerProcess) -> Settings:
    return Settings(store=StoreSettings(url=server.url, timeout_s=2))


async def fill(store: Store) -> None:
    for number in range(1_000):
        await store.call("SET", f"filler {number}", b"x" * 100_000)


async def test_a_full_disk_refuses_writes_only_and_heals_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 2_000_000)
    with ServerProcess(small_disk, persistent=True) as server:
        async with connect(at(server)) as k:
            await k.store.call("SET", "early", "bird")
            with pytest.raises(StorageFull) as full:
                await fill(k.store)

            assert "MISCONF Errors writing to the AOF file: No space left on device" in str(full.value)
            assert "make room on the server's disk; it takes writes again by itself" in str(full.value)
            assert await k.store.get("early") == b"bird"
            assert (await check_health(k.store)).status == "healthy"
            async with k.store.events.listen("news") as news:
                await k.store.call("PUBLISH", "news", "still heard")
                assert await news.next(timeout_s=5) == Message("news", b"still heard")
            failing = {check.check for check in await examine(at(server)) if check.verdict == "fail"}
            assert failing == {"persistence"}

            ballast.unlink()

            async def writes() -> bool:
                try:
                    return bool(await k.store.call("SET", "late", "bird") == b"OK")
                except StorageFull:
                    return False

            await eventually(writes)


async def test_a_server_that_promises_to_keep_everything_stops_when_it_cannot(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 2_000_000)
    config: dict[str, str | int] = {"appendfsync": "always"}
    with ServerProcess(small_disk, persistent=True, config=config) as server:
        async with connect(at(server)) as k:
            with pytest.raises((OutcomeUnknown, Unreachable)):
                await fill(k.store)
            await eventually(lambda: not server.alive)
            with pytest.raises(Unreachable, match="is the server running there"):
                await k.store.call("PING")

        assert "Can't recover from AOF write error when the AOF fsync policy is 'always'" in server.log()
