"""Programs that run for one payload each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kizuna.coordination.handlers import Failed
from kizuna.coordination.programs import Program
from kizuna.testing import eventually


async def test_a_program_gets_the_payload_and_the_facts() -> None:
    program = Program(["sh", "-c", 'cat; printf " %s" "$KIZUNA_FACT"'])

    assert await program.run(b"\xffpayload", {"KIZUNA_FACT": "two words"}) == b"\xffpayload two words"
    program.close()


async def test_a_program_need_not_read_what_it_is_given() -> None:
    program = Program(["true"])

    assert await program.run(b"x" * 1_000_000, {}) == b""
    program.close()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; echo why >&2; exit 3", "the program ended with exit code 3: first\nwhy"),
        ("exit 1", "the program ended with exit code 1"),
        ("kill -TERM $$", "the program was ended by SIGTERM"),
        ("kill -40 $$", "the program was ended by signal 40"),
    ],
)
async def test_how_a_program_failed_is_told(script: str, reason: str) -> None:
    program = Program(["sh", "-c", script])

    with pytest.raises(Failed) as failed:
        await program.run(b"", {})

    assert str(failed.value) == reason
    program.close()


async def test_who_stops_waiting_kills_it_with_its_children(tmp_path: Path) -> None:
    program = Program(
        ["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child.new; mv {tmp_path}/child.new {tmp_path}/child; wait"]
    )
    running = asyncio.create_task(program.run(b"", {}))
    child = tmp_path / "child"
    await eventually(child.exists, within_s=20)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await eventually(lambda: has_ended(child.read_text().strip()))
    program.close()


def has_ended(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
