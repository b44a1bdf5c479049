"""Mends what a verification found: each item and context by one script, that makes all about it agree with its hash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kizuna.memory import keys
from kizuna.memory.raw_names import sent
from kizuna.memory.scripts import script
from kizuna.memory.server_contexts import ServerContexts
from kizuna.memory.settling import settle, settle_these_contexts
from kizuna.memory.shard_items import ShardItems
from kizuna.memory.sweeping import end_due
from kizuna.memory.verifying.report import Finding, Index

if TYPE_CHECKING:
    from kizuna.memory.shard import Shard
    from kizuna.memory.verifying.inspecting import Inspector
    from kizuna.store.client import Store
    from kizuna.store.keys import Roots

drop_members = script("drop_members")

# What settling is told of the index in which an item was found, by the field that this is an index of.
_FOUND_IN = {"type": "type_", "contextId": "context", "priority": "priority"}


class Mender:
    def __init__(self, store: Store, roots: Roots, inspector: Inspector) -> None:
        self._store, self._inspector = store, inspector
        self._server = ServerContexts(store, roots)

    async def mend(self, findings: Sequence[Finding]) -> None:
        """As far as a program should. Harmless when repeated, and for what is in order."""
        for finding in findings:
            if finding.kind == "in two shards":
                await self._drop_older(finding)
            elif finding.kind == "outdated":
                await self._raise_again(finding)
        for index, alike in _by_index(findings):
            await self._settle(index, alike)
        for found_in, alike in _by_index(findings):
            if found_in is not None:
                await self._drop(found_in, alike)
        for root in dict.fromkeys(finding.root for finding in findings):
            # Work that was begun, before or by us, until it is done.
            await end_due(self._server, self._server.shard_at(root))

    async def _settle(self, index: Index | None, findings: Sequence[Finding]) -> None:
        by_root: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        for finding in findings:
            by_root[finding.of, finding.root].append(sent(finding.id))
        for (of, root), ids in by_root.items():
            shard = self._server.shard_at(root)
            if of == "item":
                found_in = {_FOUND_IN[index.field]: sent(index.name)} if index and index.field in _FOUND_IN else {}
                await settle(self._server, shard, ids, again=True, **found_in)
            elif of == "context":
                type_ = sent(index.name) if index and index.field == "type" else ""
                await settle_these_contexts(self._server, shard, ids, type_=type_, again=True)

    async def _drop(self, index: Index, findings: Sequence[Finding]) -> None:
        ids = [sent(finding.id) for finding in findings]
        await self._inspector.rows(drop_members, ids, self._inspector.about(index))

    async def _raise_again(self, finding: Finding) -> None:
        """So that the sweep below ends what is older."""
        generation = finding.key.removeprefix(finding.root + keys.ITEMS_OF_GENERATION.beginning)
        await self._store.call("SADD", keys.GENERATIONS_RAISED.build(finding.root), sent(generation))

    async def _drop_older(self, finding: Finding) -> None:
        """Of two items of one id in two shards, the one of the higher version counts; of two alike, both stay."""
        versions: dict[Shard, int] = {}
        for root in (finding.root, finding.there):
            shard = self._server.shard_at(root)
            version = await self._store.call("HGET", shard.item(finding.id), "version")
            versions[shard] = int(version) if version and version.isdigit() else 0
        older, newer = sorted(versions, key=lambda shard: versions[shard])
        if versions[older] < versions[newer]:
            items = ShardItems(self._store, older, self._server.policy, self._server.doubts, None)
            await items.remove(finding.id, versions[older], "moved")


def _by_index(findings: Iterable[Finding]) -> list[tuple[Index | None, list[Finding]]]:
    batches: dict[Index | None, list[Finding]] = defaultdict(list)
    for finding in findings:
        batches[finding.index].append(finding)
    return list(batches.items())
