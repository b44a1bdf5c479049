"""The append-only file of the embedded server, cut off or damaged: what is lost, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from kizuna.app import connect
from kizuna.errors import ServerNotStarted
from kizuna.settings import EmbeddedSettings, Settings

WRITES = 100


def on(folder: Path) -> Settings:
    return Settings(embedded=EmbeddedSettings(folder=str(folder), port=0, linger_s=0.2))


async def append_only_file(folder: Path) -> Path:
    """That of a server which was told some writes, and is gone."""
    async with connect(on(folder)) as k:
        for number in range(WRITES):
            await k.store.call("SET", f"key-{number}", b"x" * 100)
    return max((folder / "data").rglob("*.aof"), key=lambda path: path.stat().st_size)


async def test_of_a_file_that_was_cut_off_only_the_last_write_is_lost(server_folder: Path) -> None:
    file = await append_only_file(server_folder)
    file.write_bytes(file.read_bytes()[:-20])

    async with connect(on(server_folder)) as k:
        assert await k.store.call("DBSIZE") == WRITES - 1
        assert await k.store.call("SET", "key-99", "again") == b"OK"


async def test_a_file_that_is_damaged_in_the_middle_is_refused_with_the_servers_words(server_folder: Path) -> None:
    file = await append_only_file(server_folder)
    content = file.read_bytes()
    command = content.index(b"*3", len(content) // 2)
    file.write_bytes(content[:command] + b"\0\0" + content[command + 2 :])

    with pytest.raises(ServerNotStarted) as refused:
        await connect(on(server_folder))

    assert "Bad file format reading the append only file" in str(refused.value)
    assert f"look at {server_folder / 'server.log'}" in str(refused.value)
    # Nothing was thrown away on the way: whoever mends the file still has it all.
    assert file.stat().st_size == len(content)
