"""Issues: who works on which, and what became of it.

                    ┌────────── release, or its process dies ──────────┐
                    v                                                  │
    (nothing) ── pending ── checkout: one of many ──> processing ── complete, fail ──> completed, failed
                    ^                                                                        │
                    └───────────────────────────── reopen ───────────────────────────────────┘

A status is one word, and others than these may be used. Each change is one step on the server, and the same step
changes the lists of issues that are processing and of those completed today: they are true at any time, for anybody.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from kizuna.coordination.fields import texts_of
from kizuna.coordination.issues.lists import IssueLists
from kizuna.coordination.keys import (
    CHANNEL,
    ISSUE_METADATA,
    ISSUE_STATUS,
    ISSUES_COMPLETED_TODAY,
    ISSUES_PROCESSING,
    LOCK,
)
from kizuna.errors import IssueLost, IssueTaken, WrongValue
from kizuna.store.repeating import until_known
from kizuna.store.scanning import members
from kizuna.store.scripts import Script

if TYPE_CHECKING:
    from kizuna.store.client import Store

PROCESSING, COMPLETED, FAILED, CANCELLED, PENDING = "processing", "completed", "failed", "cancelled", "pending"
ENDED = (COMPLETED, FAILED, CANCELLED)
EVENTS = "events:issue:status"
"""The channel on which every change is told, as `{"issue": "123", "status": "completed", "by": "worker-1"}`."""

_STATUS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_OURS = frozenset({"processId", "checkedOutAt", "statusBefore", "endedAt", "lastChange"})

Rule = Literal["checkout", "ours", "free", "force"]

_change_issue = Script.load(__package__, "change_issue")


class Checkout(NamedTuple):
    """It is ours, until we complete, fail or release it, or die."""

    issue: str
    claim: str
    status_before: str
    """Empty if it had none."""


class Issues(IssueLists):
    """`k.issues`. An issue is known by a number or a name; 123 and "123" are the same."""

    def __init__(self, store: Store, process: str) -> None:
        super().__init__(store)
        self.process = process
        self._kept_s = store.settings.kept.ended_issue_s
        self._channel = CHANNEL.build(self._roots.root, channel=EVENTS)

    async def checkout(
        self,
        issue: str | int,
        metadata: Mapping[str, object] | None = None,
        *,
        expect: Iterable[str | None] = (PENDING, None),
        claim: str = "",
    ) -> Checkout:
        """Take the issue, if its status is one of those expected (None: it has none). Of many who try, one gets it.

        The others get IssueTaken; and so does everybody while somebody else holds the lock `issue:<issue>`. Repeated
        with the same `claim`, it is harmless; what was sent and not answered is repeated for you.
        """
        claim = claim or secrets.token_hex(8)
        expected = [_status(word) if word else "" for word in expect]
        _, before, _ = await self._change(issue, PROCESSING, "checkout", metadata or {}, expected, change=claim)
        return Checkout(str(issue), claim, before)

    async def complete(
        self, issue: str | int, metadata: Mapping[str, object] | None = None, *, force: bool = False
    ) -> None:
        """It is done. IssueLost, and nothing is changed, unless it is checked out by us; `force` for any other."""
        await self._change(issue, COMPLETED, "force" if force else "ours", metadata or {})

    async def fail(self, issue: str | int, reason: str = "", *, force: bool = False) -> None:
        """It could not be done. IssueLost as with `complete`."""
        fields = {"reason": reason} if reason else {}
        await self._change(issue, FAILED, "force" if force else "ours", fields)

    async def release(self, issue: str | int, *, force: bool = False) -> str:
        """Give it back. Returns its status, the one it had before it was checked out. IssueLost as with `complete`."""
        status, _, _ = await self._change(issue, "", "force" if force else "ours", {})
        return status

    async def reopen(self, issue: str | int) -> None:
        """Make an issue that has ended pending again. IssueTaken if it has not ended."""
        await self._change(issue, PENDING, "free", {}, ENDED)

    async def set_status(
        self,
        issue: str | int,
        status: str,
        metadata: Mapping[str, object] | None = None,
        *,
        expect: Iterable[str | None] = (),
        force: bool = False,
    ) -> None:
        """Give it any status but processing, which is what `checkout` is for. IssueTaken if somebody else has checked
        it out, or if its status is none of those expected."""
        if status == PROCESSING:
            raise WrongValue("the status", repr(status), "another one: checkout() makes an issue processing")
        expected = [_status(word) if word else "" for word in expect]
        await self._change(issue, _status(status), "force" if force else "free", metadata or {}, expected)

    async def forget(self, issue: str | int, *, force: bool = False) -> None:
        """Remove all that is known about it. IssueTaken if somebody else has checked it out."""
        await self._change(issue, "-", "force" if force else "free", {})

    async def update_metadata(self, issue: str | int, metadata: Mapping[str, object]) -> None:
        """Add to what is known about it; None removes a field. Anybody may."""
        key = ISSUE_METADATA.build(self._root(issue), issue=str(issue))
        texts = texts_of(metadata, ours=_OURS)
        gone = [name for name, value in metadata.items() if value is None]
        kept = [text for name, value in texts.items() if name not in gone for text in (name, value)]
        # What a full server may refuse comes first, so that nothing is half done.
        if kept:
            await self._store.call("HSET", key, *kept)
        if gone:
            await self._store.call("HDEL", key, *gone)

    async def give_back(self, process: str) -> int:
        """Release all that a dead process has checked out. Returns how many there were."""
        given_back = 0
        for root in self._roots.all:
            async for batch in members(self._store, ISSUES_PROCESSING.build(root)):
                for issue in await self._checked_out_by(process, root, batch):
                    given_back += await self._give_back(process, issue)
        return given_back

    # -- inside -----------------------------------------------------------------------------------------

    async def _change(
        self,
        issue: str | int,
        target: str,
        rule: Rule,
        metadata: Mapping[str, object],
        expected: Sequence[str] = (),
        *,
        change: str = "",
        process: str = "",
    ) -> tuple[str, str, str]:
        """Status now, status before, and who has it now."""
        root, name, process = self._root(issue), str(issue), process or self.process
        names: dict[str, Any] = {
            "status": ISSUE_STATUS.build(root, issue=name),
            "metadata": ISSUE_METADATA.build(root, issue=name),
            "processing": ISSUES_PROCESSING.build(root),
            "today": ISSUES_COMPLETED_TODAY.build(root),
            "lock": LOCK.build(root, lock=f"issue:{name}"),
            "issue": name,
            "target": target,
            "process": process,
            "change": change or secrets.token_hex(8),
            "rule": rule,
            "expected": msgspec.json.encode(list(expected)),
            "fields": msgspec.json.encode(texts_of(metadata, ours=_OURS)),
            "ends": int(target in ENDED),
            "kept_s": self._kept_s,
            "channel": self._channel,
        }
        word, *told = await self._run(names)
        texts = [text.decode(errors="replace") for text in told]
        if word == b"done":
            return texts[0], texts[1], texts[2]
        if word == b"locked":
            raise IssueTaken(name, "locked", texts[0].rpartition("/")[0] or texts[0])
        raise (IssueLost if rule == "ours" else IssueTaken)(name, texts[0], texts[1])

    async def _run(self, names: Mapping[str, Any]) -> list[Any]:
        """The change carries its own name, so what may have happened is sent again."""
        for _ in range(2):
            run = partial(_change_issue, self._store, midnights=self._midnights(), **names)
            outcome: list[Any] = await until_known(run)
            if outcome[0] != b"another day":
                return outcome
            self._ahead_s = outcome[1] / 1000 - time.time()
        raise WrongValue("the clock", "days apart from the server's", "one that stands still enough to tell the day")

    async def _checked_out_by(self, process: str, root: str, issues: list[str]) -> list[str]:
        named = [issue for issue in issues if ISSUE_STATUS.takes(issue=issue)]
        keys = [ISSUE_METADATA.build(root, issue=issue) for issue in named]
        holders = await asyncio.gather(*(self._store.call("HGET", key, "processId") for key in keys))
        return [issue for issue, holder in zip(named, holders, strict=True) if holder == process.encode()]

    async def _give_back(self, process: str, issue: str) -> int:
        try:
            await self._change(issue, "", "ours", {}, process=process)
        except IssueLost:
            # It came back to life, or somebody was told to take it by force.
            return 0
        return 1


def _status(word: str) -> str:
    if not _STATUS.fullmatch(word):
        raise WrongValue("the status", repr(word), "one word of letters, digits, '_', '.' and '-', 64 at most")
    return word
