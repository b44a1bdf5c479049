"""Looking at issues: one, those on the lists, or all; and whether the lists are true to the statuses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kizuna.coordination.days import midnights, zone_named
from kizuna.coordination.keys import ISSUE_METADATA, ISSUE_STATUS, ISSUES_COMPLETED_TODAY, ISSUES_PROCESSING
from kizuna.coordination.roots import roots_of
from kizuna.store.scanning import batches_of_names, members
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from datetime import tzinfo

    from kizuna.store.client import Store

_check_issue = Script.load(__package__, "check_issue")

_AT_ONCE = 500


class Issue(NamedTuple):
    issue: str
    status: str
    """Empty if there is none."""
    by: str
    """Who works on it, or did so last."""
    metadata: dict[str, str]


class Fault(NamedTuple):
    """Something that `verify` found."""

    issue: str
    problem: str


class IssueLists:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._roots = roots_of(store)
        self._zone = zone_named(store.settings.coordination.time_zone)
        # By how much the server's clock is ahead of ours, where that is days.
        self._ahead_s = 0.0

    async def status(self, issue: str | int) -> str | None:
        raw = await self._store.get(ISSUE_STATUS.build(self._root(issue), issue=str(issue)))
        return None if raw is None else raw.decode(errors="replace")

    async def metadata(self, issue: str | int) -> dict[str, str]:
        """Empty if nothing is known about it."""
        raw = await self._store.call("HGETALL", ISSUE_METADATA.build(self._root(issue), issue=str(issue)))
        return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in raw.items()}

    async def get(self, issue: str | int) -> Issue:
        """Status and metadata, each as it is when it is read."""
        status, metadata = await self.status(issue), await self.metadata(issue)
        return Issue(str(issue), status or "", metadata.get("processId", ""), metadata)

    async def processing(self) -> list[str]:
        """All that are checked out now."""
        return await self._union(ISSUES_PROCESSING.build(root) for root in self._roots.all)

    async def completed_today(self) -> list[str]:
        """All that were completed since midnight, in `coordination.time_zone`."""
        return await self._union(ISSUES_COMPLETED_TODAY.build(root) for root in self._roots.all)

    async def all(self) -> AsyncIterator[tuple[str, str]]:
        """Each issue that has a status, and that. One that comes or goes meanwhile may be missing, or come twice."""
        async for batch in self._batches():
            for pair in await self._with_status(batch):
                yield pair

    async def verify(self, *, repair: bool = False) -> AsyncIterator[Fault]:
        """Compare the lists with the statuses, which others may have written by hand; with `repair`, mend the lists."""
        async for batch in self._batches():
            for fault in await self._check(batch, repair):
                yield fault
        listed = [*await self.processing(), *await self.completed_today()]
        named = list(dict.fromkeys(listed))
        for start in range(0, len(named), _AT_ONCE):
            batch = named[start : start + _AT_ONCE]
            # Those that have a status were looked at above.
            looked_at = dict(await self._with_status(batch))
            for fault in await self._check([issue for issue in batch if issue not in looked_at], repair):
                yield fault

    # -- inside -----------------------------------------------------------------------------------------

    def _root(self, issue: str | int) -> str:
        # That of its lock, so that one step can look at both.
        return self._roots.of(f"issue:{issue}")

    def _midnights(self) -> bytes:
        return _midnights_around(int((time.time() + self._ahead_s) // 3600), self._zone)

    async def _union(self, keys: Iterable[str]) -> list[str]:
        found: set[str] = set()
        for key in keys:
            async for batch in members(self._store, key):
                # Whatever else outsiders put there is no issue.
                found.update(issue for issue in batch if ISSUE_STATUS.takes(issue=issue))
        return sorted(found, key=in_order)

    async def _batches(self) -> AsyncIterator[list[str]]:
        async for batch in batches_of_names(self._store, self._roots, ISSUE_STATUS):
            yield [names["issue"] for names in batch]

    async def _with_status(self, issues: list[str]) -> list[tuple[str, str]]:
        keys = [ISSUE_STATUS.build(self._root(issue), issue=issue) for issue in issues]
        pairs = zip(issues, await asyncio.gather(*map(self._store.get, keys)), strict=True)
        return [(issue, status.decode(errors="replace")) for issue, status in pairs if status is not None]

    async def _check(self, issues: list[str], repair: bool) -> list[Fault]:
        found = await asyncio.gather(*(self._check_one(issue, repair) for issue in issues))
        return [fault for faults in found for fault in faults]

    async def _check_one(self, issue: str, repair: bool) -> list[Fault]:
        root = self._root(issue)
        wrong = await _check_issue(
            self._store,
            status=ISSUE_STATUS.build(root, issue=issue),
            metadata=ISSUE_METADATA.build(root, issue=issue),
            processing=ISSUES_PROCESSING.build(root),
            today=ISSUES_COMPLETED_TODAY.build(root),
            issue=issue,
            repair=int(repair),
            midnights=self._midnights(),
        )
        return [Fault(issue, problem.decode()) for problem in wrong]


# Worked out once an hour: it takes longer than all else that a change needs.
@lru_cache(maxsize=16)
def _midnights_around(hour: int, zone: tzinfo) -> bytes:
    return msgspec.json.encode(midnights(hour * 3600, zone))


def in_order(issue: str) -> tuple[bool, int, str]:
    """Numbers as numbers, before all names."""
    is_number = issue.isdecimal()
    return not is_number, int(issue) if is_number else 0, issue
