"""Tickets that were assigned and never left the index: minimatch's backends write the two one after the other, and may
be killed in between.

    taken ──> assigned ──✗ killed          left to it for pending_s; the assignment ends at about the same time
                 └── half of pending_s later: out of the index, by whoever of ours looks

Were it left there, nothing would show any more that it was assigned when its time is up, and its player would be sent
to a second match.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kizuna.match.shard import MOST_IDS, chunks

if TYPE_CHECKING:
    from kizuna.match.shard import Shard

log = logging.getLogger("kizuna.match")


async def take_out_assigned(shard: Shard) -> None:
    """Those that somebody has had for long. Harmless while he lives: he takes them out himself, a moment later."""
    for ids in chunks(list(await shard.pending(for_s=shard.settings.pending_s / 2)), MOST_IDS):
        assignments = await asyncio.gather(*map(shard.read_assignment, ids))
        assigned = [id_ for id_, assignment in zip(ids, assignments, strict=True) if assignment is not None]
        if assigned:
            await shard.deindex(assigned)
            log.info("assigned tickets left the index", extra={"prefix": shard.prefix, "tickets": len(assigned)})
