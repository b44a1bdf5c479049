"""The file of a backup: every byte counts."""

from __future__ import annotations

import random
import secrets
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kizuna.errors import BackupDamaged, BackupNotWritten
from kizuna.store.inspection.backup_file import BLOCK_BYTES, FRAME_BYTES, Frame, Record, ValueType, new_header
from kizuna.store.inspection.backup_reader import BackupReader
from kizuna.store.inspection.backup_writer import BackupWriter

HEADER = new_header(created_ms=1_750_000_000_000, roots=["poppo"], patterns=["poppo:*"], server="redis://db")

records = st.builds(
    Record,
    key=st.binary(),
    type=st.sampled_from(get_args(ValueType)),
    ttl_ms=st.integers(-1, 10**12),
    read_at_ms=st.integers(0, 10**13),
    part=st.integers(0, 1000),
    last=st.booleans(),
    items=st.lists(st.binary() | st.lists(st.binary(), max_size=3), max_size=5),
    marks=st.lists(st.binary(), max_size=3),
)


def plain(number: int, size: int = 20) -> Record:
    value: list[bytes | list[bytes]] = [random.Random(number).randbytes(size)]
    return Record(b"key-%d" % number, "string", -1, 0, 0, True, value, [])


def write(path: Path, blocks: list[list[Record]]) -> bytes:
    writer = BackupWriter(path, HEADER, overwrite=True)
    for block in blocks:
        for record in block:
            writer.add(record)
        writer.write_block()
    writer.finish()
    return path.read_bytes()


def read(path: Path, *, salvage: bool = False, after: int = 0) -> list[list[Record]]:
    with BackupReader(path, salvage=salvage) as reader:
        return [block.records for block in reader.blocks(after=after)]


@given(blocks=st.lists(st.lists(records, min_size=1, max_size=4), max_size=4))
@settings(max_examples=50, deadline=None)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, blocks: list[list[Record]]) -> None:
    path = tmp_path_factory.mktemp("backup") / "b"
    write(path, blocks)

    assert read(path) == blocks


def test_the_footer_counts(tmp_path: Path) -> None:
    write(tmp_path / "b", [[plain(1), plain(2)], [plain(3)]])
    with BackupReader(tmp_path / "b") as reader:
        list(reader.blocks())
        assert reader.header == HEADER
        assert reader.footer is not None
        assert (reader.footer.keys, reader.footer.records, reader.footer.blocks) == (3, 3, 2)


def test_wire_format_of_a_frame() -> None:
    raw = bytes.fromhex("4b5a4e42 44 00000001 00000002 00000003 00000004 00000005 a8a75e48")
    frame = Frame(ord("D"), 1, 2, 3, 4, 5)

    assert frame.encode() == raw
    assert Frame.decode(raw) == frame
    assert len(raw) == FRAME_BYTES


def test_a_flipped_bit_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "b"
    raw = bytearray(write(path, [[plain(1), plain(2)], [plain(3)]]))
    for at in range(len(raw)):
        raw[at] ^= 1 << at % 8
        path.write_bytes(raw)
        with pytest.raises(BackupDamaged) as damaged:
            read(path)
        assert str(damaged.value).startswith(f"{path} cannot be read as a backup: ")
        raw[at] ^= 1 << at % 8
    path.write_bytes(raw)
    assert len(read(path)) == 2


def test_a_file_that_was_cut_off_is_noticed_wherever_that_was(tmp_path: Path) -> None:
    path = tmp_path / "b"
    raw = write(path, [[plain(1), plain(2)], [plain(3)]])
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(BackupDamaged):
            read(path)


def test_what_stands_behind_the_end_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_bytes(write(path, [[plain(1)]]) + b"x")

    with pytest.raises(BackupDamaged, match="something behind the footer"):
        read(path)


def test_blocks_of_two_backups_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "b"
    one, other = write(path, [[plain(1)]]), write(path, [[plain(2)]])
    at = one.index(b"KZNB", 4)
    one_ends, other_ends = one.rindex(b"KZNB"), other.rindex(b"KZNB")
    path.write_bytes(one[:at] + other[at:other_ends] + one[one_ends:])

    with pytest.raises(BackupDamaged, match="not those that the footer sums up"):
        read(path)


def test_the_damage_is_named_with_its_block_and_place(tmp_path: Path) -> None:
    path = tmp_path / "b"
    raw = bytearray(write(path, [[plain(1)], [plain(2)], [plain(3)]]))
    at = [place for place in range(len(raw)) if raw[place : place + 4] == b"KZNB"][2]
    raw[at + FRAME_BYTES + 3] ^= 1
    path.write_bytes(raw)

    with pytest.raises(BackupDamaged, match=rf"block 2 is not as it was written \(at byte {at}\)"):
        read(path)


@pytest.mark.parametrize("length", [1, 20, 90])
def test_salvage_reads_every_whole_block_around_the_damage(tmp_path: Path, length: int) -> None:
    path = tmp_path / "b"
    blocks = [[plain(number)] for number in range(5)]
    raw = write(path, blocks)
    starts = [at for at in range(len(raw)) if raw[at : at + 4] == b"KZNB"]
    for first in range(0, len(raw), 3):
        last = min(first + length, len(raw)) - 1
        touched = {at for at, end in zip(starts, [*starts[1:], len(raw)], strict=True) if at <= last and first < end}
        path.write_bytes(raw[:first] + bytes(byte ^ 0xFF for byte in raw[first : last + 1]) + raw[last + 1 :])

        whole = [block for block, at in zip(blocks, starts[1:-1], strict=True) if at not in touched]
        assert read(path, salvage=True) == whole


@given(noise=st.binary(max_size=300))
@settings(max_examples=50, deadline=None)
def test_what_is_no_backup_is_called_that(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("backup") / "b"
    path.write_bytes(noise)

    for salvage in (False, True):
        with pytest.raises(BackupDamaged, match="does not begin like one"):
            read(path, salvage=salvage)


def test_reading_can_begin_behind_any_block(tmp_path: Path) -> None:
    blocks = [[plain(number)] for number in range(4)]
    write(tmp_path / "b", blocks)

    assert read(tmp_path / "b", after=2) == blocks[2:]
    assert read(tmp_path / "b", after=4) == []


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    import msgspec

    BackupWriter(tmp_path / "b", msgspec.structs.replace(HEADER, format=2)).finish()

    with pytest.raises(BackupDamaged, match="format 2, and this kizuna reads 1"):
        read(tmp_path / "b")


def test_a_file_that_is_not_there_or_may_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(BackupDamaged, match="No such file"):
        read(tmp_path / "b")
    with pytest.raises(BackupNotWritten, match="No such file"):
        BackupWriter(tmp_path / "nowhere" / "b", HEADER)
    with pytest.raises(BackupNotWritten, match="name too long"):
        BackupWriter(tmp_path / ("b" * 300), HEADER)
    with pytest.raises(BackupDamaged, match="Is a directory"):
        read(tmp_path)


def test_a_file_is_not_overwritten_unless_told_to(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_bytes(b"precious")

    with pytest.raises(BackupNotWritten, match="there is such a file already"):
        BackupWriter(path, HEADER)
    assert path.read_bytes() == b"precious"
    BackupWriter(path, HEADER, overwrite=True).finish()
    assert read(path) == []


def test_nothing_is_left_of_a_backup_that_was_abandoned(tmp_path: Path) -> None:
    writer = BackupWriter(tmp_path / "b", HEADER)
    writer.add(plain(1))
    writer.abandon()

    assert list(tmp_path.iterdir()) == []


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    write(tmp_path / "b", [])

    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600


def test_blocks_are_closed_when_they_are_large_enough(tmp_path: Path) -> None:
    writer = BackupWriter(tmp_path / "b", HEADER)
    enough = [writer.add(plain(number, 50_000)) for number in range(BLOCK_BYTES // 50_000 + 1)]
    writer.abandon()

    assert enough == [False] * (len(enough) - 1) + [True]


def test_every_backup_has_an_id_of_its_own() -> None:
    facts = {"created_ms": 0, "roots": [], "patterns": [], "server": secrets.token_hex(2)}

    assert new_header(**facts).id != new_header(**facts).id  # type: ignore[arg-type]
