"""Backs keys up: what a scan finds goes, with value, type and remaining time, to one file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kizuna.sections import redact_url
from kizuna.store.inspection.backup_file import Footer, new_header
from kizuna.store.inspection.backup_writer import BackupWriter
from kizuna.store.inspection.values import MOST_BYTES, ValueReader
from kizuna.store.scanning import Scan, Wanted

if TYPE_CHECKING:
    from kizuna.store.client import Store

Progress = Callable[[int, int], object]
"""Is told how much is done, of how much in all."""


async def back_up(
    store: Store,
    path: Path,
    wanted: Wanted | Sequence[str],
    *,
    roots: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
    most_bytes: int = MOST_BYTES,
) -> Footer:
    """Write the keys that are wanted to the file, which appears when it is whole and on the disk.

    Programs go on meanwhile: keys are read one after the other, each in one piece unless it is large (see values.py).
    BackupNotWritten if the disk does not take it, any StoreError if the server does not answer; then there is no file.
    """
    scan = Scan(store, wanted)
    await scan.begin()
    header = new_header(
        created_ms=int(await store.time_s() * 1000),
        roots=list(roots),
        patterns=list(scan.wanted.patterns),
        server=redact_url(store.settings.store.url),
    )
    writer = await asyncio.to_thread(BackupWriter, path, header, overwrite=overwrite)
    try:
        reader = ValueReader(store, scan, most_bytes=most_bytes)
        async for keys in scan:
            async for record in reader.read(keys):
                if writer.add(record):
                    # The disk, and not the loop, is what waits for the disk.
                    await asyncio.to_thread(writer.write_block)
            progress(scan.passed, scan.total)
        return await asyncio.to_thread(
            writer.finish, vanished=reader.vanished, strange=reader.strange, moved_slots=scan.moved_slots
        )
    finally:
        await asyncio.to_thread(writer.abandon)
