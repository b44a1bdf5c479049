"""What `kizuna config` and `kizuna flags` have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kizuna.cli.connecting import whoever_types
from kizuna.cli.output import Row, moment, put, say, show

if TYPE_CHECKING:
    from kizuna.coordination.config import Config
    from kizuna.coordination.flags import Flags
    from kizuna.coordination.values.live_values import Change, Entry, LiveValues
    from kizuna.settings import Settings
    from kizuna.store.client import Store

T = TypeVar("T")
V = TypeVar("V")

note_option = click.option("--note", default="", help="Why; for the history.")
expect_option = click.option("--expect", metavar="VALUE", help="Only if this is what is set now; else exit code 4.")
expect_unset_option = click.option("--expect-unset", is_flag=True, help="Only if nothing is set now; else exit code 4.")
most_option = click.option("--most", type=click.IntRange(1), help="End after so many changes.")


class Words(NamedTuple):
    """How a noun tells its values."""

    of_raw: Callable[[bytes], object]
    """A text on the server, as machines are told."""
    of_value: Callable[[Any], object]
    """A value that is in force, as machines are told."""
    for_people: Callable[[Any], str]
    """The same for people."""

    def shown(self, raw: bytes | None, *, as_json: bool) -> object:
        if raw is None:
            return None
        value = self.of_raw(raw)
        return value if as_json else _shortened(self.for_people(value))


def with_config(settings: Settings, use: Callable[[Config], Awaitable[T]]) -> T:
    """Connect, and return what `use` does."""
    from kizuna.coordination.config import Config

    return _connected(settings, Config, use)


def with_flags(settings: Settings, use: Callable[[Flags], Awaitable[T]]) -> T:
    from kizuna.coordination.flags import Flags

    return _connected(settings, Flags, use)


def _connected(settings: Settings, kind: Callable[[Store, str], V], use: Callable[[V], Awaitable[T]]) -> T:
    from kizuna.app import connect
    from kizuna.loop import run

    async def work() -> T:
        async with connect(settings) as k:
            return await use(kind(k.store, whoever_types(settings)))

    return run(work())


def expected_of(expect: str | None, read: Callable[[str], object], *, unset: bool = False) -> Any:
    """What the options say, for `expected`; `read` makes a value of the text."""
    from kizuna.coordination.values.live_values import ANYTHING, NOTHING

    if expect is None:
        return NOTHING if unset else ANYTHING
    if unset:
        raise click.UsageError("--expect and --expect-unset are two different wishes; keep one")
    return read(expect)


async def listed(values: LiveValues, words: Words, pattern: str, *, with_type: bool, as_json: bool) -> list[Row]:
    """Who changed it is known if that was done through kizuna, and nobody else changed it since."""
    raws = await values.read_all(pattern)
    last = await values.last_changes(raws)
    rows: list[Row] = []
    for name, raw in raws.items():
        entry = last.get(name)
        by_us = entry if entry is not None and entry.raw_after == raw else None
        row: dict[str, object] = {"name": name, "value": words.shown(raw, as_json=as_json)}
        if with_type:
            row["type"] = type_of(raw)
        rows.append({**row, "changed": when(by_us, as_json=as_json), "by": by_us.by if by_us else None})
    return rows


async def past(values: LiveValues, words: Words, name: str, *, as_json: bool) -> list[Row]:
    return [
        {
            "change": entry.id,
            "at": when(entry, as_json=as_json),
            "by": entry.by,
            "from": words.shown(entry.raw_before, as_json=as_json),
            "to": words.shown(entry.raw_after, as_json=as_json),
            "note": entry.note,
        }
        for entry in await values.history(name)
    ]


async def reverted(values: LiveValues, name: str, to: str | None, note: str) -> tuple[bool, Any]:
    """Whether that changed anything, and what is set now, None if nothing is."""
    entries = {entry.id: entry for entry in await values.history(name)}
    if to is not None and to not in entries:
        raise click.UsageError(f"{name} has no change {to} in its history; see `history {name}`")
    changed = await values.revert(name, to=None if to is None else entries[to], note=note)
    return changed, await values.read(name, None)


async def watched(values: LiveValues, words: Words, pattern: str, most: int | None, *, as_json: bool) -> None:
    async with values.following():
        changes = values.watch(pattern)
        say("Watching; Ctrl-C ends it.")
        left = most
        while left is None or left > 0:
            change = await anext(changes)
            entry = (await values.last_changes([change.name])).get(change.name)
            show_change(words, change, entry, as_json=as_json)
            left = None if left is None else left - 1


def show_change(words: Words, change: Change, entry: Entry | None, *, as_json: bool) -> None:
    old, new = (None if value is None else words.of_value(value) for value in (change.old, change.new))
    # It may be an earlier one, if somebody else has changed it since.
    by_us = entry if entry is not None and words.shown(entry.raw_after, as_json=True) == new else None
    if as_json:
        at, by = when(by_us, as_json=True), by_us.by if by_us else None
        show({"name": change.name, "old": old, "new": new, "at": at, "by": by}, as_json=True)
        return
    old_text, new_text = ("not set" if value is None else words.for_people(value) for value in (old, new))
    by_text = f"  by {by_us.by}" if by_us else ""
    note = f" ({by_us.note})" if by_us and by_us.note else ""
    put(f"{change.name}: {old_text} -> {new_text}{by_text}{note}")


def tell(changed: bool, name: str, now: str) -> None:
    say(f"{name} is {now} now." if changed else f"{name} was {now} before; nothing has changed.")


def when(entry: Entry | None, *, as_json: bool) -> str | None:
    """For people, in their own time zone."""
    if entry is None:
        return None
    if as_json:
        return entry.at.isoformat(timespec="milliseconds")
    return moment(entry.at.timestamp())


def type_of(raw: bytes) -> str:
    """What JSON calls it."""
    from kizuna.coordination.values.history import plain

    kinds = {bool: "boolean", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return kinds.get(type(plain(raw)), "null")


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
