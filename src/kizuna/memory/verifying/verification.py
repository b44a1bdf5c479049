"""Proves that all indexes are exact, or says what is off; and mends it, if told to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kizuna.memory import keys
from kizuna.memory.raw_names import sent
from kizuna.memory.verifying.inspecting import Inspector
from kizuna.memory.verifying.known_keys import WORK, KnownKey, glob_of, known_key_of
from kizuna.memory.verifying.mending import Mender
from kizuna.memory.verifying.report import Finding, Index, Report
from kizuna.store.scanning import Scan

if TYPE_CHECKING:
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

GRACE_S = 5.0
"""What has ended may wait so long for a sweeper; after that, somebody should know."""
_LOOK_AGAIN_AFTER_S = 1.0
# What fits into one report. Whoever has more to mend, mends these first.
_MOST = 10_000


async def verify(
    store: Store,
    roots: Roots,
    repair: bool = False,
    *,
    grace_s: float = GRACE_S,
    look_again_after_s: float = _LOOK_AGAIN_AFTER_S,
) -> Report:
    """Go through every key of memory below the roots, in steps that nobody else notices.

    What was off, and is still off a second later, is a finding: items that others wrote are given that long to be
    settled, and work that was begun, to go on. Raises StoreError; then nothing is known.
    """
    verification = _Verification(store, roots, grace_s)
    await verification.look_at_all()
    if not verification.suspicions:
        return verification.report
    await asyncio.sleep(look_again_after_s)
    verification.report.findings = await verification.still_off(verification.suspicions)
    if repair:
        await verification.repair()
    return verification.report


class _Verification:
    def __init__(self, store: Store, roots: Roots, grace_s: float) -> None:
        self.report = Report()
        self.suspicions: list[Finding] = []
        self._store, self._roots = store, roots
        self._inspector = Inspector(store, roots, grace_s=grace_s)

    async def look_at_all(self) -> None:
        async for found in Scan(self._store, [glob_of(self._roots)]):
            all_known = [known for key in found if (known := known_key_of(self._roots, key))]
            wrong = await self._inspector.types(all_known)
            self._suspect(wrong)
            in_the_way = {finding.key for finding in wrong}
            await self._look_at_ids(all_known)
            for known in all_known:
                if known.family not in (keys.ITEM, keys.CONTEXT) and known.key not in in_the_way:
                    await self._look_into(known)

    async def still_off(self, findings: Sequence[Finding]) -> list[Finding]:
        """Those that are there at another look, as it finds them."""
        before = {_sign(finding) for finding in findings}
        found = [finding for batch in [*_by_check(findings)] for finding in await self._check(batch)]
        # Of work, whatever has gone on meanwhile is not left over.
        return [*{_sign(finding): finding for finding in found if _sign(finding) in before}.values()]

    async def repair(self) -> None:
        off = self.report.findings
        mender = Mender(self._store, self._roots, self._inspector)
        await mender.mend([finding for finding in off if finding.can_be_mended])
        left = await self.still_off(off)
        signs = {_sign(finding) for finding in left}
        self.report.findings = left
        self.report.repaired = [finding for finding in off if _sign(finding) not in signs]

    async def _look_at_ids(self, all_known: Iterable[KnownKey]) -> None:
        for family, count in ((keys.ITEM, "items"), (keys.CONTEXT, "contexts")):
            by_root: dict[str, list[bytes]] = defaultdict(list)
            for known in all_known:
                if known.family is family:
                    by_root[known.root].append(known.name)
            for root, ids in by_root.items():
                setattr(self.report, count, getattr(self.report, count) + len(ids))
                look = self._inspector.items if family is keys.ITEM else self._inspector.contexts
                self._suspect(await look(root, ids))

    async def _look_into(self, known: KnownKey) -> None:
        if known.family in WORK:
            self._suspect(await self._inspector.work(known))
        elif index := known.as_index():
            self.report.indexes += 1
            async for ids in self._inspector.scan(index.key, index.type):
                self.report.members += len(ids)
                self._suspect(await self._inspector.members(index, ids))

    def _suspect(self, findings: Sequence[Finding]) -> None:
        taken = findings[: max(0, _MOST - len(self.suspicions))]
        self.suspicions += taken
        self.report.not_looked_at += len(findings) - len(taken)

    async def _check(self, findings: Sequence[Finding]) -> list[Finding]:
        """Look again at what is alike: all in one root, and found in one way."""
        first = findings[0]
        ids = [sent(id_) for id_ in dict.fromkeys(finding.id for finding in findings)]
        if first.of in ("key", "work"):
            known = known_key_of(self._roots, sent(first.key))
            if known is None:
                return []
            return await (self._inspector.types([known]) if first.of == "key" else self._inspector.work(known))
        if first.index is not None:
            return await self._inspector.members(first.index, ids)
        look = self._inspector.items if first.of == "item" else self._inspector.contexts
        return await look(first.root, ids)


def _by_check(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    batches: dict[tuple[str, str, Index | None, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        alone = finding.key if finding.of in ("key", "work") else ""
        batches[finding.root, finding.of, finding.index, alone].append(finding)
    return batches.values()


def _sign(finding: Finding) -> tuple[str, ...]:
    """By which it is known again."""
    left = finding.there if finding.of == "work" else ""
    return finding.kind, finding.key, finding.id, left
