"""Assigners that need no Python: a connection by a pattern, or one that a program finds."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from kizuna.coordination.handlers import Failed
from kizuna.coordination.programs import Program
from kizuna.errors import KizunaError, NoGameServer, WrongValue
from kizuna.match import values
from kizuna.match.matches import Group, Match
from kizuna.match.tickets import Assignment

PLACEHOLDERS = ("match", "profile", "number")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# What a program prints is a connection, or a small table, and no page.
_LONGEST_OUTPUT_BYTES = 64 * 1024


class Template:
    """Text with {match}, {profile} and {number} in it. WrongValue for any other placeholder."""

    def __init__(self, text: str) -> None:
        unknown = [name for name in _PLACEHOLDER.findall(text) if name not in PLACEHOLDERS]
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise WrongValue("a placeholder", f"{{{unknown[0]}}}", f"one of {known}")
        self._text = text

    def fill(self, match: Match, number: int) -> str:
        known = {"match": match.id, "profile": match.profile, "number": str(number)}
        return _PLACEHOLDER.sub(lambda found: known[found[1]], self._text)


class ByTemplate:
    """An assigner: the connection of each match is the template; {number} counts the matches of this process."""

    def __init__(self, connection: str) -> None:
        self._connection, self._numbers = Template(connection), count(1)

    def __call__(self, matches: Sequence[Match]) -> list[Group]:
        return [match.assigned(self._connection.fill(match, next(self._numbers))) for match in matches]


class ByProgram:
    """An assigner that asks a program about each match: it gets the match as JSON, and prints the connection, or a
    table with `connection` and `extensions`. Where it fails, the players of that match wait on, and no others."""

    def __init__(self, program: str, arguments: Sequence[str], *, timeout_s: float, at_once: int) -> None:
        self._program, self._arguments = program, [Template(argument) for argument in arguments]
        self._timeout_s, self._numbers = timeout_s, count(1)
        self._places = asyncio.Semaphore(at_once)

    async def __call__(self, matches: Sequence[Match]) -> list[Group | Exception]:
        return await asyncio.gather(*map(self._found, matches))

    async def _found(self, match: Match) -> Group | Exception:
        async with self._places:
            try:
                return match.assigned(assignment_of(await self._ask(match)))
            except (Failed, KizunaError, OSError, TimeoutError, ValueError) as error:
                reason = str(error) or f"it took more than {self._timeout_s:g}s"
                return NoGameServer(match.id, reason)

    async def _ask(self, match: Match) -> bytes:
        number = next(self._numbers)
        program = Program([self._program, *(argument.fill(match, number) for argument in self._arguments)])
        try:
            async with asyncio.timeout(self._timeout_s):
                return await program.run(json.dumps(match_as_dict(match)).encode(), {"KIZUNA_MATCH_ID": match.id})
        finally:
            program.close()


def assignment_of(output: bytes) -> Assignment:
    """What a program has printed. WrongValue if that says no connection, or has extensions of no plain type."""
    text = output[: _LONGEST_OUTPUT_BYTES + 1].decode(errors="backslashreplace").strip()
    table: Any = _table_of(text) if text.startswith("{") else {"connection": text}
    connection, extensions = table.get("connection"), table.get("extensions", {})
    if len(output) > _LONGEST_OUTPUT_BYTES or not _is_a_line(connection) or not isinstance(extensions, Mapping):
        raise _wrong(text)
    return Assignment(connection, extensions)


def match_as_dict(match: Match) -> dict[str, Any]:
    """For programs and for JSON."""
    return {
        "id": match.id,
        "profile": match.profile,
        "function": match.function,
        "score": None if match.score is None else values.shown_number(match.score),
        "extensions": values.shown(match.extensions),
        "tickets": [ticket.as_dict() for ticket in match.tickets],
        "backfill": match.backfill.as_dict() if match.backfill else None,
        "allocate": match.allocate,
    }


def _table_of(text: str) -> Any:
    try:
        table = json.loads(text)
    except ValueError:
        raise _wrong(text) from None
    return table if isinstance(table, dict) else {}


def _is_a_line(connection: object) -> bool:
    return isinstance(connection, str) and bool(connection) and connection.isprintable()


def _wrong(text: str) -> WrongValue:
    return WrongValue(
        "what the program prints", repr(text[:100]), "a connection, or JSON with connection and extensions"
    )
