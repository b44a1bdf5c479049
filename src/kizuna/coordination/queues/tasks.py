"""What a queue is about, as data: tasks, what is known of them, and tasks in the hands of a consumer.

                       ┌───────────── fail, attempts left ─────────────┐
                       v                                               │
    push, delay ──> delayed ── its time has come ──┐                   │
                                                   v                   │
    push ───────────────────────────────────────> waiting ── take ──> running ── done ──> (result)
                                                   ^  ^                │ │
                                requeue ───────────┘  └── lease ended ─┘ └─ fail, none left ──> dead
                                                          or released

It can be cancelled while it is waiting, delayed or running.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import UNSET, Struct

from kizuna.coordination.queue_names import Priority

if TYPE_CHECKING:
    from kizuna.codecs import Codec
    from kizuna.coordination.queues.results import TaskResults

State = Literal["waiting", "delayed", "running", "dead", "cancelled", "done"]


class Push(Struct, frozen=True, kw_only=True):
    """One of many tasks to push; see `Queue.push`."""

    payload: Any
    id: str | None = None
    priority: Priority = "normal"
    delay_s: float = 0
    attempts: int | None = None
    timeout_s: float | None = None
    result_s: float | None = None
    name: str = ""


class Task:
    """A task that was pushed. `known`: it had been there already, and nothing was changed."""

    __slots__ = ("_results", "id", "known", "since")

    def __init__(self, id_: str, known: bool, results: TaskResults, since: int) -> None:
        self.id, self.known = id_, known
        self.since = since
        """As in TaskResults, from before the task was pushed."""
        self._results = results

    @property
    def group(self) -> str:
        return self._results.group

    def result(self, *, timeout_s: float | None = None) -> Coroutine[Any, Any, Any]:
        """Await it for what the task returned, as soon as it is done. TaskFailed, TaskCancelled or TaskUnknown if
        there will be no result; TimeoutError after that time."""
        return self._results.wait(self.id, timeout_s, self.since)

    def __repr__(self) -> str:
        return f"Task({self.id!r}, group={self.group!r})"


class TaskStatus(Struct, frozen=True, kw_only=True):
    """What is known about a task. Times are in seconds since 1970, by the server's clock."""

    id: str
    group: str
    state: State
    priority: str = ""
    name: str = ""
    pushed_at: float | None = None
    started_at: float | None = None
    consumer: str = ""
    failures: int = 0
    """How often it failed."""
    crashes: int = 0
    """How many consumers were lost while they ran it."""
    attempts: int = 0
    """How often it is tried."""
    reason: str = ""
    """Why it failed last."""
    progress: float | None = None
    note: str = ""


class Depth(Struct, frozen=True, kw_only=True):
    """How many tasks a group has, by where they are."""

    high: int
    normal: int
    low: int
    delayed: int
    running: int
    dead: int

    @property
    def waiting(self) -> int:
        return self.high + self.normal + self.low


class Minute(Struct, frozen=True, kw_only=True):
    """What happened in one minute; `at` is when it began, in seconds since 1970."""

    at: int
    pushed: int = 0
    done: int = 0
    failed: int = 0
    crashed: int = 0
    dead: int = 0


class Holder(Protocol):
    """Who has a task, and can settle it."""

    id: str
    codec: Codec

    def finish(self, delivery: Delivery, result: Any = ...) -> Awaitable[None]: ...
    async def fail(
        self, delivery: Delivery, reason: str, *, retry: bool = ..., retry_in_s: float | None = ...
    ) -> State: ...
    async def release(self, delivery: Delivery) -> None: ...
    async def progress(self, delivery: Delivery, fraction: float, note: str = ...) -> None: ...
    async def renew(self) -> None: ...


_NO_MORE = (None,) * 5


class Delivery:
    """A task in our hands, under a lease. One of `done`, `fail` and `release` ends that.

    Each of them raises LeaseLost when the task is no longer ours: then what we did for it does not count.
    """

    __slots__ = (
        "_payload",
        "attempt",
        "holder",
        "id",
        "name",
        "number",
        "priority",
        "raw",
        "result_ms",
        "timeout_ms",
        "unsure",
    )

    def __init__(self, holder: Holder, number: int, fields: list[Any]) -> None:
        """`fields` as hand_out_tasks.lua returns them."""
        id_, raw, priority, *more = fields
        failures, crashes, name, timeout_ms, result_ms = more or _NO_MORE
        self.holder = holder
        self.number = number
        """When it was handed out, in µs: the next one to have the same task has another."""
        self.id: str = id_.decode()
        self.raw: bytes = raw
        """The payload as it is on the server."""
        self.priority: str = priority.decode()
        self.attempt: int = 1 + int(failures or 0) + int(crashes or 0)
        """1 for the first time that it is run."""
        self.name: str = name.decode() if name else ""
        """Which handler it is for."""
        self.timeout_ms: int | None = int(timeout_ms) if timeout_ms else None
        self.result_ms: int | None = int(result_ms) if result_ms else None
        self.unsure = False
        """It may have been finished, and the answer never came."""
        self._payload: Any = UNSET

    @property
    def payload(self) -> Any:
        """Undecodable if it is not in the queue's format."""
        if self._payload is UNSET:
            self._payload = self.holder.codec.decode(self.raw)
        return self._payload

    @property
    def token(self) -> str:
        """With it, another process can settle the task: `Queue.settle`."""
        return f"{self.holder.id}/{self.number}"

    @property
    def timeout_s(self) -> float | None:
        """How long it may run; None if nothing was said."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000

    async def done(self, result: Any = None) -> None:
        """Keep the result, and be rid of the task."""
        await self.holder.finish(self, result)

    async def fail(self, reason: str, *, retry: bool = True, retry_in_s: float | None = None) -> State:
        """Say that it could not be done: it is "delayed" now, to be tried again when the settings say so or after
        `retry_in_s`, or "dead" if it has no attempts left or `retry` is false."""
        return await self.holder.fail(self, reason, retry=retry, retry_in_s=retry_in_s)

    async def release(self) -> None:
        """Hand it back, without counting it as an attempt: it is next in its queue."""
        await self.holder.release(self)

    async def progress(self, fraction: float, note: str = "") -> None:
        """Let others know how far it is: from 0 to 1, and in words."""
        await self.holder.progress(self, fraction, note)

    async def renew(self) -> None:
        """Let the lease begin anew. A Consumer does that by itself."""
        await self.holder.renew()

    def __repr__(self) -> str:
        return f"Delivery({self.id!r}, attempt={self.attempt})"
