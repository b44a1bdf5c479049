"""Changing values, and who changed what: one script does both, and its stream keeps the last changes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kizuna.errors import WrongValue
from kizuna.store.repeating import until_known
from kizuna.store.replies import paired
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import Key, Roots

change_value = Script.load(__package__, "change_value")

KEPT_CHANGES = 100
LONGEST_NOTE = 1000


class Expected(NamedTuple):
    """What must be there for a change to happen: anything, nothing, or this text."""

    expects: str = "anything"
    text: bytes = b""

    @classmethod
    def exactly(cls, raw: bytes | None) -> Expected:
        return cls("nothing") if raw is None else cls("text", raw)


class Entry(msgspec.Struct, frozen=True):
    """One change: who, when by the server's clock, from what, to what, and why if that was said.

    `raw_before` and `raw_after` are the texts on the server, None where nothing was set.
    """

    id: str
    by: str
    note: str
    raw_before: bytes | None
    raw_after: bytes | None

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(int(self.id.partition("-")[0]) / 1000, UTC)

    @property
    def before(self) -> Any:
        return None if self.raw_before is None else plain(self.raw_before)

    @property
    def after(self) -> Any:
        return None if self.raw_after is None else plain(self.raw_after)


class Ledger:
    def __init__(self, store: Store, process: str, family: Key, history: Key, roots: Roots) -> None:
        self._store, self._process = store, process
        self._family, self._history, self._roots = family, history, roots

    async def change(self, name: str, to: bytes | None, expected: Expected, note: str) -> tuple[str, bytes | None]:
        """`changed`, `same`, or `unexpected` with what is there instead. Repeated when it is not known whether it
        happened: it happens once."""
        if len(note) > LONGEST_NOTE:
            raise WrongValue("a note", f"{len(note)} characters long", f"at most {LONGEST_NOTE}")
        root = self._roots.of(name)
        arguments: dict[str, Any] = {
            "value": self._family.build(root, name=name),
            "history": self._history.build(root, name=name),
            "change": secrets.token_hex(8),
            "action": "unset" if to is None else "set",
            "to": b"" if to is None else to,
            "expects": expected.expects,
            "expected": expected.text,
            "process": self._process,
            "note": note,
            "keep": KEPT_CHANGES,
        }
        outcome, *more = await until_known(lambda: change_value(self._store, **arguments))
        word = bytes(outcome).decode().replace("repeated", "changed")
        return word, more[0] if word == "unexpected" else None

    async def entries(self, name: str, count: int = KEPT_CHANGES) -> list[Entry]:
        """The last changes, the newest first."""
        key = self._history.build(self._roots.of(name), name=name)
        return [_entry(*found) for found in await self._store.call("XREVRANGE", key, "+", "-", "COUNT", count)]

    async def last_of(self, names: Iterable[str]) -> dict[str, Entry]:
        """The last change of each that has one."""
        listed = list(names)
        last = await asyncio.gather(*(self.entries(name, 1) for name in listed))
        return {name: entries[0] for name, entries in zip(listed, last, strict=True) if entries}


def plain(raw: bytes) -> Any:
    """What JSON makes of it; or else, for a bare word that is none, the text itself."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode(errors="backslashreplace")


def _entry(raw_id: bytes, flat: list[bytes]) -> Entry:
    fields = paired(flat)
    return Entry(
        id=raw_id.decode(),
        by=fields.get(b"by", b"").decode(errors="replace"),
        note=fields.get(b"note", b"").decode(errors="replace"),
        raw_before=fields.get(b"from"),
        raw_after=fields.get(b"to"),
    )
