"""The names of all keys, as they stand on the server.

    keys.issue(123).status               poppo:issue:status:123
    keys.issue(123).lock                 poppo:lock:issue:123
    keys.queue("high")                   poppo:queue:high
    keys.channel("mirin", "requests")    poppo:channel:mirin:requests

For those who look at a key themselves, grant it or write about it; the parts of kizuna build their own. With shards
each key stands below the root of its partition, as the parts would choose it. This module does no I/O.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kizuna.coordination.keys import (
    CHANNEL,
    CONFIG,
    FLAG,
    ISSUE_METADATA,
    ISSUE_STATUS,
    ISSUES_COMPLETED_TODAY,
    ISSUES_PROCESSING,
    LOCK,
    METRIC_CURRENT,
    METRIC_HISTORY,
    PROCESS_HEARTBEAT,
    PROCESS_INFO,
    PROCESSES_ACTIVE,
    PROCESSES_ZOMBIES,
    SESSION,
    STATS,
    STATS_OF_DATE,
    TASK_INFO,
    TASK_RESULT,
    TEMP,
)
from kizuna.coordination.queue_names import DEFAULT_GROUP, PRIORITIES, queue_key
from kizuna.errors import IllegalName, SettingsError
from kizuna.store.keys import Key, Roots

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

Name: TypeAlias = str | int
"""Text, or a number: issue 123 and issue "123" are the same."""


class IssueKeys(NamedTuple):
    status: str
    metadata: str
    lock: str


class ProcessKeys(NamedTuple):
    info: str
    heartbeat: str
    lock: str


class TaskKeys(NamedTuple):
    info: str
    result: str


class MetricKeys(NamedTuple):
    current: str
    history: str


class Namespace:
    """Every method raises IllegalName for a name that could leave its place in the key."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def __repr__(self) -> str:
        return f"Namespace({self._roots!r})"

    @cached_property
    def each(self) -> tuple[Namespace, ...]:
        """One namespace for each root: where a set is spread over shards, `shard.issues.processing` of each."""
        if self._roots.shards == 1:
            return (self,)
        return tuple(Namespace(Roots(root)) for root in self._roots.all)

    def issue(self, issue: Name) -> IssueKeys:
        name = str(issue)
        # The partition of its lock, so that one step can look at both.
        root = self._roots.of(f"issue:{name}")
        return IssueKeys(
            status=ISSUE_STATUS.build(root, issue=name),
            metadata=ISSUE_METADATA.build(root, issue=name),
            lock=self.lock("issue", name),
        )

    @property
    def issues(self) -> IssuesKeys:
        return IssuesKeys(self._roots)

    def process(self, process: Name) -> ProcessKeys:
        name = str(process)
        root = self._roots.of(name)
        return ProcessKeys(
            info=PROCESS_INFO.build(root, process=name),
            heartbeat=PROCESS_HEARTBEAT.build(root, process=name),
            lock=self.lock("process", name),
        )

    @property
    def processes(self) -> ProcessesKeys:
        return ProcessesKeys(self._roots)

    def queue(self, priority: str = "normal", *, group: Name = DEFAULT_GROUP) -> str:
        """The queue of the default group has the short name, `queue:high`; others `queue:<group>:high`."""
        check_priority(priority)
        name = str(group)
        return queue_key(self._roots.of(name), name, priority)

    def task(self, task: Name, *, group: Name = DEFAULT_GROUP) -> TaskKeys:
        """With shards, the keys of a task are where those of its group are."""
        name, root = str(task), self._roots.of(str(group))
        return TaskKeys(info=TASK_INFO.build(root, task=name), result=TASK_RESULT.build(root, task=name))

    def lock(self, *parts: Name) -> str:
        name = joined(parts)
        return LOCK.build(self._roots.of(name), lock=name)

    def channel(self, *parts: Name) -> str:
        """Below the plain root also with shards: a channel is no key, and a cluster tells all its servers."""
        return CHANNEL.build(self._roots.root, channel=joined(parts))

    def stats(self, category: Name, period: Name, day: Name | date | None = None) -> str:
        """`stats("issues", "daily", "2025-06-19")`, where the day may be a date; or without one."""
        names = {"category": str(category), "period": str(period)}
        root = self._roots.of(names["category"])
        if day is None:
            return STATS.build(root, **names)
        # Of a date, that is its ISO form.
        return STATS_OF_DATE.build(root, **names, date=str(day))

    def metric(self, metric: Name) -> MetricKeys:
        name = str(metric)
        root = self._roots.of(name)
        return MetricKeys(
            current=METRIC_CURRENT.build(root, metric=name), history=METRIC_HISTORY.build(root, metric=name)
        )

    def config(self, *parts: Name) -> str:
        return self._named(CONFIG, parts)

    def flag(self, *parts: Name) -> str:
        return self._named(FLAG, parts)

    def temp(self, *parts: Name) -> str:
        return self._named(TEMP, parts)

    def session(self, *parts: Name) -> str:
        return self._named(SESSION, parts)

    def _named(self, family: Key, parts: tuple[Name, ...]) -> str:
        name = joined(parts)
        return family.build(self._roots.of(name), name=name)


class IssuesKeys:
    """Sets of issues. With shards there is one for each root: see `Namespace.each`."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    @property
    def processing(self) -> str:
        return _only(ISSUES_PROCESSING, self._roots)

    @property
    def completed_today(self) -> str:
        return _only(ISSUES_COMPLETED_TODAY, self._roots)


class ProcessesKeys:
    """Sets of processes. With shards there is one for each root: see `Namespace.each`."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    @property
    def active(self) -> str:
        return _only(PROCESSES_ACTIVE, self._roots)

    @property
    def zombies(self) -> str:
        return _only(PROCESSES_ZOMBIES, self._roots)


def joined(parts: Iterable[Name]) -> str:
    """`("backup", "daily")` as `backup:daily`."""
    return ":".join(map(str, parts))


def check_priority(priority: str) -> None:
    if priority not in PRIORITIES:
        raise IllegalName("priority", priority, f"only {', '.join(PRIORITIES[:-1])} and {PRIORITIES[-1]} are")


def _only(family: Key, roots: Roots) -> str:
    if roots.shards > 1:
        raise SettingsError(
            f"{family.pattern} is not one key but {roots.shards}, one for each shard; go through keys.each for all"
        )
    return family.build(roots.root)


keys = Namespace(Roots("poppo"))
"""With the original root, and without shards; `k.keys` of a connected system has those of its settings."""
