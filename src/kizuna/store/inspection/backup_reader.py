"""Reads a backup file, block by block, and notices every byte that is not as it was written."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, Self

import msgspec

from kizuna.errors import BackupDamaged
from kizuna.store.inspection.backup_file import (
    BLOCK_BYTES,
    DATA,
    FOOTER,
    FORMAT,
    FRAME_BYTES,
    HEADER,
    SYNC,
    Footer,
    Frame,
    Header,
    Record,
)

_records = msgspec.msgpack.Decoder(list[Record])


class Block(NamedTuple):
    number: int
    records: list[Record]


class BackupReader:
    """BackupDamaged says where the file is not as it was written. With `salvage` that is passed over, and noted in
    `damage`; only blocks that are whole are read."""

    def __init__(self, path: Path, *, salvage: bool = False) -> None:
        self.damage: list[str] = []
        self.footer: Footer | None = None
        """Known when all blocks were read; of a file that was cut off, never."""
        self._path, self._salvage = path, salvage
        try:
            self._file: IO[bytes] = path.open("rb")
        except OSError as error:
            raise BackupDamaged(str(path), os.strerror(error.errno or 0)) from error
        self.size = os.fstat(self._file.fileno()).st_size
        try:
            self._rewind(whole=True)
            self.header = self._read_header()
        except BaseException:
            self.close()
            raise
        self._data_at = self._file.tell()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self) -> int:
        """How many bytes were read by now."""
        return self._file.tell()

    def blocks(self, *, after: int = 0) -> Iterator[Block]:
        """The data blocks in their order, from the one after this number; those before it are not looked into."""
        self._rewind(whole=not after)
        self._pass_header()
        while self.footer is None:
            at = self._file.tell()
            try:
                frame = self._read_frame(at)
                if frame.kind == FOOTER:
                    self.footer = self._read_footer(at, frame)
                elif frame.number <= after:
                    self._file.seek(frame.stored, os.SEEK_CUR)
                else:
                    yield self._read_data(at, frame)
            except BackupDamaged as damage:
                if not self._salvage:
                    raise
                self.damage.append(damage.reason)
                if not self._seek_next_block(at + 1):
                    return

    # -- inside -----------------------------------------------------------------------------------------

    def _rewind(self, *, whole: bool) -> None:
        self._file.seek(0)
        self.footer = None
        self._expected, self._records_read, self._keys_read = 0, 0, 0
        # Of the whole file, if all of it is read.
        self._sum = hashlib.sha256() if whole else None

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except OSError as error:
            raise BackupDamaged(str(self._path), os.strerror(error.errno or 0)) from error

    def _read_header(self) -> Header:
        try:
            frame = self._read_frame(0)
            if frame.kind != HEADER:
                raise self._damaged(0, "it does not begin with a header")
            header = msgspec.json.decode(self._read_plain(0, frame), type=Header)
        except (BackupDamaged, msgspec.MsgspecError) as error:
            return self._without_header(error)
        if header.format != FORMAT:
            raise self._damaged(0, f"it has format {header.format}, and this kizuna reads {FORMAT}")
        return header

    def _without_header(self, error: Exception) -> Header:
        reason = error.reason if isinstance(error, BackupDamaged) else str(error)
        if not self._salvage or not self._seek_next_block(0):
            raise BackupDamaged(str(self._path), f"it does not begin like one: {reason}") from error
        self.damage.append(f"the header is lost: {reason}")
        return Header(format=FORMAT, id="", created_ms=0, roots=[], patterns=[], server="")

    def _pass_header(self) -> None:
        head = self._read(self._data_at)
        self._expected = 1
        if self._sum is not None:
            self._sum.update(head)

    def _read_frame(self, at: int) -> Frame:
        raw = self._read(FRAME_BYTES)
        if not raw:
            raise self._damaged(at, "the file ends before its footer; it was cut off")
        try:
            frame = Frame.decode(raw)
        except ValueError as error:
            raise self._damaged(at, str(error)) from None
        if frame.stored > self.size - self._file.tell():
            raise self._damaged(at, f"the file ends within block {frame.number}; it was cut off")
        if frame.number != self._expected and not self._salvage:
            raise self._damaged(at, f"block {frame.number} stands where block {self._expected} should be")
        self._expected = frame.number + 1
        self._sum_up(frame, raw)
        return frame

    def _read_plain(self, at: int, frame: Frame) -> bytes:
        stored = self._read(frame.stored)
        if zlib.crc32(stored) != frame.crc:
            raise self._damaged(at, f"block {frame.number} is not as it was written")
        self._sum_up(frame, stored)
        unpacker = zlib.decompressobj()
        try:
            # No more than was announced: a file from elsewhere cannot fill our memory.
            plain = unpacker.decompress(stored, frame.plain + 1)
        except zlib.error as error:
            raise self._damaged(at, f"block {frame.number} cannot be unpacked ({error})") from error
        if len(plain) != frame.plain or not unpacker.eof:
            raise self._damaged(at, f"block {frame.number} has another length than it says")
        return plain

    def _read_data(self, at: int, frame: Frame) -> Block:
        if frame.kind != DATA:
            raise self._damaged(at, f"block {frame.number} is of a kind that is not known")
        try:
            records = _records.decode(self._read_plain(at, frame))
        except msgspec.MsgspecError as error:
            raise self._damaged(at, f"block {frame.number} does not hold records ({error})") from error
        self._records_read += len(records)
        self._keys_read += sum(record.last for record in records)
        return Block(frame.number, records)

    def _read_footer(self, at: int, frame: Frame) -> Footer:
        try:
            footer = msgspec.json.decode(self._read_plain(at, frame), type=Footer)
        except msgspec.MsgspecError as error:
            raise self._damaged(at, f"the footer cannot be read ({error})") from error
        if self._read(1):
            raise self._damaged(at, "there is something behind the footer")
        if self._sum is not None and not self._agrees(footer):
            raise self._damaged(at, "the blocks are not those that the footer sums up")
        return footer

    def _agrees(self, footer: Footer) -> bool:
        assert self._sum is not None  # noqa: S101 - asked only if all was read
        read = (self._keys_read, self._records_read, self._sum.hexdigest())
        return read == (footer.keys, footer.records, footer.sha256)

    def _sum_up(self, frame: Frame, raw: bytes) -> None:
        if self._sum is not None and frame.kind != FOOTER:
            self._sum.update(raw)

    def _seek_next_block(self, start: int) -> bool:
        """Go to where a block seems to begin, at or after this place; False if there is none."""
        self._sum = None
        while (at := self._find_sync(start)) is not None:
            self._file.seek(at)
            if self._is_block_here(at):
                return True
            start = at + 1
        return False

    def _find_sync(self, start: int) -> int | None:
        self._file.seek(start)
        tail = b""
        while chunk := self._read(BLOCK_BYTES):
            window = tail + chunk
            if (found := window.find(SYNC)) >= 0:
                return self._file.tell() - len(window) + found
            tail = window[1 - len(SYNC) :]
        return None

    def _is_block_here(self, at: int) -> bool:
        try:
            return Frame.decode(self._read(FRAME_BYTES)).kind in (DATA, FOOTER)
        except ValueError:
            return False
        finally:
            self._file.seek(at)

    def _damaged(self, at: int, reason: str) -> BackupDamaged:
        return BackupDamaged(str(self._path), f"{reason} (at byte {at:,})")
