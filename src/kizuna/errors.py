"""Every exception that kizuna raises on purpose.

    KizunaError
    ├── SettingsError          a setting is unknown, malformed, or contradicts another
    ├── NotInstalled           a part of kizuna was asked for whose libraries are not installed
    ├── IllegalName            a name that could leave its place in a key
    ├── ScriptMismatch         a script was called with other names than its header declares
    ├── ServiceFailed          a service ended although nobody asked it to
    ├── ServiceStuck           a service did not stop in the time it was given
    ├── CannotListen           an address that we were to listen on is taken, or not ours
    ├── ServerNotStarted       the embedded server could not be started
    ├── ServerInUse            the embedded server is still used by others
    ├── UnsafeServer           the server is reachable, but we refuse to keep data on it as it is set up
    ├── NotificationsOff       the server announces no changes, and we may not switch that on
    ├── Undecodable            bytes that are not in the format they should be in
    ├── LockHeld               somebody else holds the lock, and the time to wait for it is over
    ├── LockLost               the lock was held, and is held no longer
    ├── ProcessUnknown         there is no process of that name
    ├── ProcessTaken           another process of that name is at work
    ├── IssueTaken             the issue is not in a state in which it can be checked out
    ├── IssueLost              the issue is not checked out by us, or no longer
    ├── LeaseLost              the task is no longer ours: its lease has ended, or it was cancelled
    ├── TaskUnknown            there is no task of that id, or its result is no longer kept
    ├── TaskFailed             the task was given up; says why
    ├── TaskCancelled          the task was cancelled before it was done
    ├── WrongValue             a value is not of the type that was declared for it
    ├── ValueUnknown           nothing is set under that name, and no default is declared for it
    ├── ValueChanged           the value is no longer the one that was expected; nothing was written
    ├── NotFollowed            values are read from memory, and nobody keeps it up to date
    ├── MessagesGone           messages of a durable channel ended before the reader had done them
    ├── BackupDamaged          a backup file is not whole, or no backup at all
    ├── BackupNotWritten       a backup file could not be written, and there is none
    ├── BackupFull             a copy of memory holds as many writes as it may until the server can be reached again
    ├── RestoreConflict        a key that is to be restored exists already
    ├── RequestFailed          whoever served the request answered with an error; carries its bytes
    ├── RequestTimeout         no reply came in time; says whether somebody had taken the request
    ├── TooLarge               a value is larger than may be sent
    ├── ItemMissing            there is no item of that id, or it has ended
    ├── ItemExists             there is an item of that id already
    ├── ContextMissing         there is no context of that id, or it has ended
    ├── ContextExists          there is a context of that id already
    ├── VersionConflict        somebody else has changed it meanwhile; nothing was written
    ├── OutcomeForgotten       the answer to a write was lost, and nobody can tell any more whether it happened
    ├── EventsGone             events of memory ended before the reader had read them
    ├── CannotSeal             there is no key to seal with, or what is needed for it is not installed
    │   └── ContentSealed      a content that is not sealed was to replace one that is
    ├── CannotOpen             a sealed content was not sealed for this item, or with none of our keys
    ├── TicketMissing          there is no ticket of that id, or it has ended
    ├── BackfillMissing        there is no backfill of that id, or it was deleted
    ├── BackfillExpired        nobody acknowledged the backfill in time; it takes no more players
    ├── TicketsLocked          a backend that works step by step holds the lock of all tickets for too long
    ├── TickFailed             a match function, evaluator or assigner failed; the others' matches were made
    ├── NoGameServer           a program that was to find a game server for a match found none
    ├── FunctionFailed         a match function that somebody else serves did not do its work
    ├── EvaluatorFailed        which of the proposed matches stand could not be decided; none of them does
    └── StoreError             a command did not get its answer
        ├── NotSent            the server has not seen the command: repeating it is safe
        │   ├── Unreachable    nobody answers at the address, or the answer took too long
        │   ├── TlsRefused     the two sides do not trust each other
        │   ├── SignInRefused  wrong user or password; never retried
        │   └── Overloaded     more is in flight than we are willing to buffer
        ├── OutcomeUnknown     the command was sent and the answer never came: look before you repeat
        └── Refused            the server answered with an error
            ├── PermissionDenied   the ACL user may not do this
            ├── OutOfMemory        the server is full
            ├── StorageFull        the server cannot write to its disk
            ├── NotPrimary         this server does not take writes now
            └── ScriptFailed       a Lua script raised; says in which file and line

Each reads as a sentence: what happened, at which server, what to do. Facts are attributes. The arguments go
to `Exception`, so an error survives a trip between processes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Outcome = Literal["not sent", "unknown", "refused"]


class KizunaError(Exception):
    """The root of the tree: catch this to catch everything that kizuna raises on purpose."""


class SettingsError(KizunaError):
    """A setting is unknown, malformed, or contradicts another. Says of each problem where it was set."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class NotInstalled(KizunaError, ImportError):
    def __init__(self, library: str, extra: str) -> None:
        super().__init__(library, extra)
        self.library, self.extra = library, extra

    def __str__(self) -> str:
        return f"there is no {self.library} here; pip install 'kizuna[{self.extra}]' brings it"


class IllegalName(KizunaError):
    def __init__(self, place: str, name: str, reason: str) -> None:
        super().__init__(place, name, reason)
        self.place, self.name, self.reason = place, name, reason

    def __str__(self) -> str:
        return f"{self.name!r} cannot be the {self.place} of a key: {self.reason}"


class ScriptMismatch(KizunaError):
    def __init__(self, script: str, problem: str) -> None:
        super().__init__(script, problem)
        self.script, self.problem = script, problem

    def __str__(self) -> str:
        return f"script {self.script}: {self.problem}"


class ServiceFailed(KizunaError):
    """Raised where the services were started; the service's own exception is the cause."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(service, reason)
        self.service, self.reason = service, reason

    def __str__(self) -> str:
        return f"{self.service} ended by itself: {self.reason}"


class ServiceStuck(KizunaError):
    def __init__(self, service: str, waited_s: float) -> None:
        super().__init__(service, waited_s)
        self.service, self.waited_s = service, waited_s

    def __str__(self) -> str:
        return f"{self.service} was still running {self.waited_s:g}s after it was told to stop"


class CannotListen(KizunaError):
    def __init__(self, address: str, reason: str, settings: str) -> None:
        super().__init__(address, reason, settings)
        self.address, self.reason, self.settings = address, reason, settings

    def __str__(self) -> str:
        return (
            f"cannot listen on {self.address} ({self.reason}); set {self.settings} to what is free, as port 0 always is"
        )


class ServerNotStarted(KizunaError):
    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason, self.hint = reason, hint

    def __str__(self) -> str:
        return f"the embedded server did not start: {self.reason}; {self.hint}"


class ServerInUse(KizunaError):
    def __init__(self, folder: str, users: list[str]) -> None:
        super().__init__(folder, users)
        self.folder, self.users = folder, users

    def __str__(self) -> str:
        who = ", ".join(self.users) or "another process"
        return f"the server on {self.folder} is still used by {who}; end that first, or stop it with --force"


class UnsafeServer(KizunaError):
    def __init__(self, what: str, server: str, hint: str) -> None:
        super().__init__(what, server, hint)
        self.what, self.server, self.hint = what, server, hint

    def __str__(self) -> str:
        return f"{self.what} at {self.server}; {self.hint}"


class NotificationsOff(UnsafeServer):
    """Waiting for changes is impossible here; everything else works."""


class Undecodable(KizunaError):
    def __init__(self, format_: str, reason: str, raw: bytes) -> None:
        super().__init__(format_, reason, raw)
        self.format, self.reason, self.raw = format_, reason, raw

    def __str__(self) -> str:
        start = f"{self.raw[:40]!r}{'…' if len(self.raw) > 40 else ''}"
        return f"{start} is not the {self.format} it should be: {self.reason}"


class LockHeld(KizunaError):
    """`free_in_s` is infinite if an outsider holds it without an end."""

    def __init__(self, name: str, free_in_s: float) -> None:
        super().__init__(name, free_in_s)
        self.name, self.free_in_s = name, free_in_s

    def __str__(self) -> str:
        if self.free_in_s == float("inf"):
            return f"lock {self.name!r} is held by someone else, without an end; `kizuna locks break` takes it away"
        return f"lock {self.name!r} is held by someone else for up to {self.free_in_s:.1f}s more; wait longer for it"


class LockLost(KizunaError):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"lock {self.name!r} was lost: {self.reason}; somebody else may hold it now"


class ProcessUnknown(KizunaError):
    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process

    def __str__(self) -> str:
        return f"no process {self.process!r} is known; `kizuna processes ls` shows who is there"


class ProcessTaken(KizunaError):
    def __init__(self, process: str) -> None:
        super().__init__(process)
        self.process = process

    def __str__(self) -> str:
        return f"another process called {self.process!r} is at work; end it, or set processes.id to something else"


class IssueTaken(KizunaError):
    """`status` is what it has instead, empty if it has none; `by` who has checked it out, if anybody."""

    def __init__(self, issue: str, status: str, by: str) -> None:
        super().__init__(issue, status, by)
        self.issue, self.status, self.by = issue, status, by

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        return f"issue {self.issue} is {self.status or 'not there'}{by}; nothing was changed"


class IssueLost(KizunaError):
    """Who wanted to change the issue has not checked it out, or not any more. `status` and `by` as in IssueTaken."""

    def __init__(self, issue: str, status: str, by: str) -> None:
        super().__init__(issue, status, by)
        self.issue, self.status, self.by = issue, status, by

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        what = self.status or "not there"
        return f"issue {self.issue} is not checked out by us: it is {what}{by}; nothing was changed"


class LeaseLost(KizunaError):
    def __init__(self, task: str, reason: str) -> None:
        super().__init__(task, reason)
        self.task, self.reason = task, reason

    def __str__(self) -> str:
        return f"task {self.task!r} is no longer ours: {self.reason}; what we did for it does not count"


class TaskUnknown(KizunaError):
    def __init__(self, task: str, group: str) -> None:
        super().__init__(task, group)
        self.task, self.group = task, group

    def __str__(self) -> str:
        return f"no task {self.task!r} is known in group {self.group!r}; results are kept for a while only"


class TaskFailed(KizunaError):
    def __init__(self, task: str, reason: str) -> None:
        super().__init__(task, reason)
        self.task, self.reason = task, reason

    def __str__(self) -> str:
        return f"task {self.task!r} was given up: {self.reason}"


class TaskCancelled(KizunaError):
    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task

    def __str__(self) -> str:
        return f"task {self.task!r} was cancelled"


class WrongValue(KizunaError):
    def __init__(self, name: str, value: str, expected: str) -> None:
        super().__init__(name, value, expected)
        self.name, self.value, self.expected = name, value, expected

    def __str__(self) -> str:
        return f"{self.name} cannot be {self.value}; expected {self.expected}"


class ValueUnknown(KizunaError, KeyError):
    def __init__(self, noun: str, name: str) -> None:
        super().__init__(noun, name)
        self.noun, self.name = noun, name

    def __str__(self) -> str:
        return f"{self.noun} {self.name} is not set, and has no default; `kizuna {self.noun} ls` shows what is set"


class ValueChanged(KizunaError):
    """`now` is what it is instead, as it stands on the server; None if it is not set."""

    def __init__(self, name: str, now: str | None) -> None:
        super().__init__(name, now)
        self.name, self.now = name, now

    def __str__(self) -> str:
        is_now = "not set" if self.now is None else self.now
        return f"{self.name} is {is_now} now, which was not expected, and stays so; look, and decide again"


class NotFollowed(KizunaError):
    def __init__(self, noun: str) -> None:
        super().__init__(noun)
        self.noun = noun

    def __str__(self) -> str:
        return f"k.{self.noun} is not followed; enter `async with k.{self.noun}.following():`, or run its follower()"


class MessagesGone(KizunaError):
    """`how_many` is None where that cannot be known."""

    def __init__(self, channel: str, reader: str, how_many: int | None) -> None:
        super().__init__(channel, reader, how_many)
        self.channel, self.reader, self.how_many = channel, reader, how_many

    def __str__(self) -> str:
        gone = "an unknown number" if self.how_many is None else f"{self.how_many}"
        return (
            f"{gone} of the messages of channel {self.channel!r} ended before reader {self.reader!r} had done them; "
            "read on for the next one there is, and keep more of them, or read sooner"
        )


class BackupDamaged(KizunaError):
    def __init__(self, file: str, reason: str) -> None:
        super().__init__(file, reason)
        self.file, self.reason = file, reason

    def __str__(self) -> str:
        return f"{self.file} cannot be read as a backup: {self.reason}"


class BackupNotWritten(KizunaError):
    def __init__(self, file: str, reason: str) -> None:
        super().__init__(file, reason)
        self.file, self.reason = file, reason

    def __str__(self) -> str:
        return f"{self.file} was not written: {self.reason}"


class BackupFull(KizunaError):
    def __init__(self, file: str, largest_bytes: int) -> None:
        super().__init__(file, largest_bytes)
        self.file, self.largest_bytes = file, largest_bytes

    def __str__(self) -> str:
        return (
            f"{self.file} holds all the writes that fit into {self.largest_bytes:,} bytes, and takes no more until the "
            "server can be reached again; nothing was written; raise memory.backup_bytes"
        )


class RestoreConflict(KizunaError):
    """`key` is the first of `count` keys that are in the way."""

    def __init__(self, key: str, count: int) -> None:
        super().__init__(key, count)
        self.key, self.count = key, count

    def __str__(self) -> str:
        more = f" and {self.count - 1:,} more exist" if self.count > 1 else " exists"
        return f"{self.key}{more} already, and nothing was written; say --replace or --skip, or restore to another root"


class RequestFailed(KizunaError):
    """`body` is what was written as the error, as it is."""

    def __init__(self, path: str, body: bytes) -> None:
        super().__init__(path, body)
        self.path, self.body = path, body

    def __str__(self) -> str:
        return f"request {self.path} failed: {self.body.decode(errors='replace') or 'without a word'}"


class RequestTimeout(KizunaError):
    """`claimed` tells whether somebody had taken the request and not answered yet; None where that cannot be known:
    the request was for everybody, or the server could not be asked."""

    def __init__(self, path: str, to: str, waited_s: float, claimed: bool | None) -> None:
        super().__init__(path, to, waited_s, claimed)
        self.path, self.to, self.waited_s, self.claimed = path, to, waited_s, claimed

    def __str__(self) -> str:
        if self.claimed:
            return f"{self.to!r} has taken request {self.path}, and did not answer within {self.waited_s:g}s"
        if self.claimed is None:
            return f"no reply to request {self.path} came within {self.waited_s:g}s"
        hint = f"is {self.to!r} serving? `kizuna units ls` shows who is there"
        return f"nobody took request {self.path} within {self.waited_s:g}s; {hint}"


class TooLarge(KizunaError):
    def __init__(self, what: str, size: int, largest: int, setting: str) -> None:
        super().__init__(what, size, largest, setting)
        self.what, self.size, self.largest, self.setting = what, size, largest, setting

    def __str__(self) -> str:
        return (
            f"{self.what} has {self.size:,} bytes, and {self.largest:,} are the most that is sent; "
            f"send less, or raise {self.setting}"
        )


class ItemMissing(KizunaError, KeyError):
    def __init__(self, item: str) -> None:
        super().__init__(item)
        self.item = item

    def __str__(self) -> str:
        return f"there is no item {self.item!r}, or it has ended; nothing was written"


class ItemExists(KizunaError):
    def __init__(self, item: str) -> None:
        super().__init__(item)
        self.item = item

    def __str__(self) -> str:
        return f"there is an item {self.item!r} already, and it stays as it is; update it, or put another in its place"


class ContextMissing(KizunaError, KeyError):
    def __init__(self, context: str) -> None:
        super().__init__(context)
        self.context = context

    def __str__(self) -> str:
        return f"there is no context {self.context!r}, or it has ended; `kizuna memory contexts` shows which there are"


class ContextExists(KizunaError):
    def __init__(self, context: str) -> None:
        super().__init__(context)
        self.context = context

    def __str__(self) -> str:
        return f"there is a context {self.context!r} already, and it stays as it is; update it, or choose another id"


class VersionConflict(KizunaError):
    """`what` is "item" or "context"."""

    def __init__(self, what: str, id: str, expected: int, actual: int) -> None:  # noqa: A002 - as everywhere
        super().__init__(what, id, expected, actual)
        self.what, self.id, self.expected, self.actual = what, id, expected, actual

    def __str__(self) -> str:
        return (
            f"{self.what} {self.id!r} is at version {self.actual}, not {self.expected}, and stays so; "
            "read it, and decide again"
        )


class OutcomeForgotten(KizunaError):
    """`what` is "item" or "context". A write whose answer was lost was tried again; others have written since, and the
    feed reaches no longer back."""

    def __init__(self, what: str, id: str) -> None:  # noqa: A002 - as everywhere
        super().__init__(what, id)
        self.what, self.id = what, id

    def __str__(self) -> str:
        return (
            f"{self.what} {self.id!r} may have been written, or not: the answer was lost, others have written since, "
            "and the feed of events has forgotten it; read it, and decide again"
        )


class EventsGone(KizunaError):
    def __init__(self, cursor: str) -> None:
        super().__init__(cursor)
        self.cursor = cursor

    def __str__(self) -> str:
        return (
            f"events after {self.cursor} ended before they were read; look at the items themselves, and read on from "
            "cursor 0; read sooner, or raise memory.feed_length"
        )


class CannotSeal(KizunaError):
    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason, self.hint = reason, hint

    def __str__(self) -> str:
        return f"contents cannot be sealed: {self.reason}; {self.hint}"


class ContentSealed(CannotSeal):
    """Nothing was written. `update` of memory seals, and sends it again, if it has keys."""

    def __init__(self, item: str) -> None:
        super().__init__(
            f"the content of item {item!r} is sealed, and there are no keys to seal what replaces it",
            "set memory.seal_keys_file, or say sealed=False",
        )
        self.args = (item,)
        self.item = item


class CannotOpen(KizunaError):
    def __init__(self, item: str, reason: str) -> None:
        super().__init__(item, reason)
        self.item, self.reason = item, reason

    def __str__(self) -> str:
        return f"the sealed content of item {self.item!r} cannot be opened: {self.reason}"


class TicketMissing(KizunaError):
    def __init__(self, ticket: str) -> None:
        super().__init__(ticket)
        self.ticket = ticket

    def __str__(self) -> str:
        return f"ticket id: {self.ticket} not found"


class BackfillMissing(KizunaError):
    def __init__(self, backfill: str) -> None:
        super().__init__(backfill)
        self.backfill = backfill

    def __str__(self) -> str:
        return f"Backfill id: {self.backfill} not found"


class BackfillExpired(KizunaError):
    def __init__(self, what: str, backfill: str) -> None:
        super().__init__(what, backfill)
        self.what, self.backfill = what, backfill

    def __str__(self) -> str:
        return f"can not {self.what} an expired backfill, id: {self.backfill}"


class TicketsLocked(KizunaError):
    """Nothing was done. What a step could not do because of it is done by a later one."""

    def __init__(self, prefix: str, waited_s: float) -> None:
        super().__init__(prefix, waited_s)
        self.prefix, self.waited_s = prefix, waited_s

    def __str__(self) -> str:
        return (
            f"{self.prefix}fetchTicketsLock was held by others for {self.waited_s:g}s; look what the other backends "
            "do, or raise match.lock_wait_s"
        )


class TickFailed(KizunaError):
    """What failed has given its tickets back; everything else of the tick was done. The first failure is the cause."""

    def __init__(self, *failures: str) -> None:
        super().__init__(*failures)
        self.failures = failures

    def __str__(self) -> str:
        return "; ".join(self.failures)


class NoGameServer(KizunaError):
    def __init__(self, match: str, reason: str) -> None:
        super().__init__(match, reason)
        self.match, self.reason = match, reason

    def __str__(self) -> str:
        return f"no game server was found for match {self.match!r}: {self.reason}; its players wait on"


class FunctionFailed(KizunaError):
    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address, self.reason = address, reason

    def __str__(self) -> str:
        return f"the match function at {self.address} failed: {self.reason}"


class EvaluatorFailed(KizunaError):
    """No ticket of the matches that it was to decide about was taken."""

    def __init__(self, evaluator: str, reason: str) -> None:
        super().__init__(evaluator, reason)
        self.evaluator, self.reason = evaluator, reason

    def __str__(self) -> str:
        return f"the evaluator {self.evaluator} failed: {self.reason}"


class StoreError(KizunaError):
    """A command did not get its answer. `outcome` tells whether the server may have run it."""

    outcome: ClassVar[Outcome]

    def __init__(self, what: str, server: str, hint: str) -> None:
        super().__init__(what, server, hint)
        self.what, self.server, self.hint = what, server, hint

    def __str__(self) -> str:
        return f"{self.what} at {self.server} ({self.outcome}); {self.hint}"

    @property
    def code(self) -> str:
        """The first word of the server's error reply; empty if the server did not speak."""
        return ""


class NotSent(StoreError):
    outcome = "not sent"


class Unreachable(NotSent):
    pass


class TlsRefused(NotSent):
    pass


class SignInRefused(NotSent):
    pass


class Overloaded(NotSent):
    pass


class OutcomeUnknown(StoreError):
    outcome = "unknown"


class Refused(StoreError):
    """The server answered with an error: `what` is its text."""

    outcome = "refused"

    @property
    def code(self) -> str:
        return self.what.split(" ", 1)[0]


class PermissionDenied(Refused):
    pass


class OutOfMemory(Refused):
    pass


class StorageFull(Refused):
    pass


class NotPrimary(Refused):
    pass


class ScriptFailed(Refused):
    pass
