"""Who is there: every unit that tells it, and every one that is known by its keys alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from kizuna.store.scanning import Scan
from kizuna.units.paths import CLAIM, PRESENCE, Path, read_path
from kizuna.units.presence import LIVES, Presence, Quantiles, Rates
from kizuna.units.reading import without_errors

if TYPE_CHECKING:
    from kizuna.store.client import Store

# Presences that are read in one go.
_AT_ONCE = 100


class SeenProcess(Presence, frozen=True, kw_only=True):
    """A process that is this unit."""

    seen_s: float | None = None
    """How long ago it told so; None if it did not tell how often it does."""


class Keys(msgspec.Struct, kw_only=True):
    """How many there are now of each kind."""

    requests: int = 0
    replies: int = 0
    errors: int = 0
    kept: int = 0
    claims: int = 0
    """Requests that it works on, or has answered a moment ago."""


class KnownUnit(msgspec.Struct, kw_only=True):
    """An outsider, who only writes keys, has no processes that we know of."""

    name: str
    processes: list[SeenProcess] = []
    keys: Keys

    @property
    def is_there(self) -> bool:
        """Rather than having been: of who only asked, and is gone, there is nothing but what it was answered."""
        keys = self.keys
        return bool(self.processes) or keys.requests + keys.kept + keys.claims > 0

    @property
    def serves(self) -> list[str]:
        return sorted({pattern for process in self.processes for pattern in process.serves})

    @property
    def listens(self) -> list[str]:
        return sorted({pattern for process in self.processes for pattern in process.listens})

    @property
    def rates(self) -> Rates:
        """Of all its processes together."""
        requests, served = (
            round(sum((getattr(process.rates, what) for process in self.processes), 0.0), 2)
            for what in ("requests", "served")
        )
        return Rates(requests=requests, served=served)

    @property
    def latency_ms(self) -> Quantiles | None:
        """Of the process where it takes longest."""
        return _longest([process.latency_ms for process in self.processes])

    @property
    def handling_ms(self) -> Quantiles | None:
        return _longest([process.handling_ms for process in self.processes])

    @property
    def seen_s(self) -> float | None:
        """How long ago one of them was heard of."""
        return min((process.seen_s for process in self.processes if process.seen_s is not None), default=None)

    @property
    def polling(self) -> str | None:
        """Why one of them has to look for what it should be told."""
        return next((process.polling for process in self.processes if process.polling is not None), None)


async def look_at_all(store: Store, root: str) -> list[KnownUnit]:
    """What comes or goes meanwhile may be missing, and the server may count a key twice while its tables grow."""
    counts: dict[str, Counter[str]] = {}
    presences: dict[bytes, Path] = {}
    async for keys in Scan(store, [f"{root}/*/*/*"], type="string"):
        for key in keys:
            path = read_path(key, root)
            if path is not None:
                _count(counts.setdefault(path.unit, Counter()), path)
                if path.status == "keep" and path.id.startswith(PRESENCE):
                    presences[key] = path
    units = {name: KnownUnit(name=name, processes=[], keys=Keys(**count)) for name, count in sorted(counts.items())}
    for path, process in await _read_all(store, presences):
        units[path.unit].processes.append(process)
    for unit in units.values():
        unit.processes.sort(key=lambda process: process.process)
    # A presence that ended while we looked leaves nothing to be told.
    return [unit for unit in units.values() if unit.processes or any(msgspec.structs.astuple(unit.keys))]


_KINDS = {"req": "requests", "res": "replies", "err": "errors", "keep": "kept"}


def _count(counter: Counter[str], path: Path) -> None:
    if path.status == "keep" and path.id.startswith(CLAIM):
        counter["claims"] += 1
    elif path.status != "keep" or not path.id.startswith(PRESENCE):
        counter[_KINDS[path.status]] += 1


async def _read_all(store: Store, presences: dict[bytes, Path]) -> list[tuple[Path, SeenProcess]]:
    found: list[tuple[Path, SeenProcess]] = []
    keys = list(presences)
    for start in range(0, len(keys), _AT_ONCE):
        chunk = keys[start : start + _AT_ONCE]
        # On a cluster they are on different servers, so each is asked for by itself.
        replies = without_errors(await store.call_all([(command, key) for key in chunk for command in ("GET", "PTTL")]))
        found += _processes([presences[key] for key in chunk], replies)
    return found


def _processes(paths: Sequence[Path], replies: Sequence[object]) -> Iterator[tuple[Path, SeenProcess]]:
    for path, raw, left_ms in zip(paths, replies[::2], replies[1::2], strict=True):
        # Neither is there if it has just ended.
        if isinstance(raw, bytes) and isinstance(left_ms, int):
            yield path, _seen(path, raw, left_ms)


def _seen(path: Path, raw: bytes, left_ms: int) -> SeenProcess:
    presence = _read(path, raw)
    told_s = None if presence.every_s is None or left_ms < 0 else LIVES * presence.every_s - left_ms / 1000
    seen_s = None if told_s is None else max(0.0, round(told_s, 3))
    return SeenProcess(**msgspec.structs.asdict(presence), seen_s=seen_s)


def _read(path: Path, raw: bytes) -> Presence:
    """Whatever stands there, somebody says that this process is there."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Presence(process=path.id.removeprefix(PRESENCE))


def _longest(quantiles: Sequence[Quantiles | None]) -> Quantiles | None:
    return max((each for each in quantiles if each is not None), key=lambda each: each.p99, default=None)


_decode = msgspec.json.Decoder(Presence).decode
