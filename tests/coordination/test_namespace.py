"""The names of keys, as the namespace was first written down."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import date

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import kizuna
from kizuna import keys
from kizuna.app import connect
from kizuna.catalogue import family_of
from kizuna.coordination.namespace import Namespace
from kizuna.errors import IllegalName, SettingsError
from kizuna.settings import CoordinationSettings, RootsSettings, Settings
from kizuna.store.keys import Roots, key_slot

NAMES = {
    "poppo:issue:status:123": keys.issue(123).status,
    "poppo:issue:metadata:123": keys.issue(123).metadata,
    "poppo:lock:issue:123": keys.issue(123).lock,
    "poppo:issues:processing": keys.issues.processing,
    "poppo:issues:completed:today": keys.issues.completed_today,
    "poppo:process:info:issue-123-poppo": keys.process("issue-123-poppo").info,
    "poppo:process:heartbeat:issue-123-poppo": keys.process("issue-123-poppo").heartbeat,
    "poppo:lock:process:issue-123-poppo": keys.process("issue-123-poppo").lock,
    "poppo:processes:active": keys.processes.active,
    "poppo:processes:zombies": keys.processes.zombies,
    "poppo:queue:high": keys.queue("high"),
    "poppo:queue:normal": keys.queue(),
    "poppo:queue:low": keys.queue("low"),
    "poppo:queue:images:high": keys.queue("high", group="images"),
    "poppo:task:info:task-123": keys.task("task-123").info,
    "poppo:task:result:task-123": keys.task("task-123").result,
    "poppo:stats:issues:daily:2025-06-19": keys.stats("issues", "daily", "2025-06-19"),
    "poppo:stats:performance:hourly": keys.stats("performance", "hourly"),
    "poppo:metrics:cpu:current": keys.metric("cpu").current,
    "poppo:metrics:memory:history": keys.metric("memory").history,
    "poppo:config:claude:timeout": keys.config("claude", "timeout"),
    "poppo:config:github:ratelimit": keys.config("github", "ratelimit"),
    "poppo:flags:maintenance": keys.flag("maintenance"),
    "poppo:flags:debug:enabled": keys.flag("debug", "enabled"),
    "poppo:channel:mirin:requests": keys.channel("mirin", "requests"),
    "poppo:channel:mirin:responses": keys.channel("mirin", "responses"),
    "poppo:channel:events:issue:status": keys.channel("events", "issue", "status"),
    "poppo:lock:process:migration": keys.lock("process", "migration"),
    "poppo:lock:backup:daily": keys.lock("backup", "daily"),
    "poppo:temp:report:42": keys.temp("report", 42),
    "poppo:session:user-7": keys.session("user-7"),
}


@pytest.mark.parametrize(("expected", "built"), NAMES.items())
def test_every_name_is_the_original_one_and_in_a_declared_family(expected: str, built: str) -> None:
    assert built == expected
    assert family_of(built) is not None


def test_a_day_may_be_a_date() -> None:
    assert keys.stats("issues", "daily", date(2025, 6, 19)) == "poppo:stats:issues:daily:2025-06-19"


@pytest.mark.parametrize("name", ["", "a b", "1*", "{x}", "a:b", "a\nb", "\ud800"])
def test_a_name_that_could_leave_its_place_is_refused(name: str) -> None:
    for build in (keys.issue, keys.process, keys.task, keys.metric):
        with pytest.raises(IllegalName):
            build(name)


def test_names_of_many_parts_may_have_no_empty_one() -> None:
    for build in (keys.channel, keys.lock, keys.config, keys.flag, keys.temp, keys.session):
        assert build("a", 1, "b:c").endswith(":a:1:b:c")
        with pytest.raises(IllegalName, match="empty"):
            build("a", "")
        with pytest.raises(IllegalName, match="empty"):
            build()


def test_a_priority_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(IllegalName) as refused:
        keys.queue("urgent")

    assert str(refused.value) == "'urgent' cannot be the priority of a key: only high, normal and low are"


def test_with_shards_every_key_stands_below_the_root_of_its_partition() -> None:
    roots = Roots("poppo", 8)
    sharded = Namespace(roots)

    for number in range(50):
        assert sharded.process(number).info == f"{roots.of(str(number))}:process:info:{number}"
        # An issue and its lock are looked at in one step.
        with_lock = roots.of(f"issue:{number}")
        assert sharded.issue(number).status == f"{with_lock}:issue:status:{number}"
        assert sharded.issue(number).lock == f"{with_lock}:lock:issue:{number}"
        assert sharded.config("a", number) == f"{roots.of(f'a:{number}')}:config:a:{number}"
        # All of a group is touched together.
        group = {sharded.queue("low", group=number), *sharded.task("t", group=number)}
        assert len({key_slot(key) for key in group}) == 1


def test_with_shards_a_set_is_one_key_for_each_and_asking_for_one_says_so() -> None:
    sharded = Namespace(Roots("poppo", 3))

    with pytest.raises(SettingsError, match=r"issues:processing is not one key but 3, .* keys\.each for all"):
        _ = sharded.issues.processing
    assert [shard.issues.processing for shard in sharded.each] == [
        "{poppo:0}:issues:processing",
        "{poppo:1}:issues:processing",
        "{poppo:2}:issues:processing",
    ]
    assert [shard.processes.zombies for shard in keys.each] == ["poppo:processes:zombies"]


async def test_a_connected_system_has_the_names_of_its_settings(settings: Settings, root: str) -> None:
    async with connect(settings) as k:
        assert k.keys.issue(1).status == f"{root}:issue:status:1"


async def test_the_parts_write_the_keys_that_are_named_here_also_with_shards(settings: Settings) -> None:
    sharded = Settings(store=settings.store, roots=settings.roots, coordination=CoordinationSettings(shards=4))
    async with connect(sharded) as k, k.locks.hold("backup:daily"):
        day = await k.stats.today()
        registration = await k.processes.register()
        await k.issues.checkout(123)
        await k.queue().push({}, id="t-1", priority="high")
        await k.queue("images").push({}, id="t-2", priority="low")
        await k.stats.count("issues", "completed")
        await k.metrics.record("cpu", 0.5)
        await k.config.set("claude:timeout", 30)
        await k.flags.turn_on("debug:enabled")
        await k.temp.set("report:42", 1)
        await k.sessions.set("user-7", 1)
        named = [
            k.keys.issue(123).status, k.keys.issue(123).metadata, k.keys.process(k.process).info,
            k.keys.process(k.process).heartbeat, k.keys.queue("high"), k.keys.queue("low", group="images"),
            k.keys.task("t-1").info, k.keys.task("t-2", group="images").info, k.keys.lock("backup", "daily"),
            k.keys.stats("issues", "daily", day), k.keys.stats("issues", "hourly"), k.keys.metric("cpu").current,
            k.keys.metric("cpu").history, k.keys.config("claude", "timeout"), k.keys.flag("debug", "enabled"),
            k.keys.temp("report", 42), k.keys.session("user-7"),
        ]  # fmt: skip
        there = await asyncio.gather(*(k.store.call("EXISTS", key) for key in named))
        active = [await k.store.call("SMEMBERS", shard.processes.active) for shard in k.keys.each]
        await registration.leave()

    assert dict(zip(named, there, strict=True)) == dict.fromkeys(named, 1)
    assert sorted(active, key=len) == [[], [], [], [k.process.encode()]]
    assert k.channels.channel("mirin", "requests").full_name == k.keys.channel("mirin", "requests")


def test_the_public_helper_has_the_default_root_and_loads_little() -> None:
    assert RootsSettings().coordination == "poppo"
    assert kizuna.keys is keys
    program = "import sys; from kizuna import keys; keys.issue(1); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"msgspec", "asyncio", "redis", "click", "kizuna.store.client"} & set(loaded)


@hypothesis_settings(deadline=None)
@given(
    issue=st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.integers(),
    shards=st.integers(1, 5),
)
def test_whatever_is_built_is_parsed_back(issue: str | int, shards: int) -> None:
    from kizuna.coordination.keys import ISSUE_STATUS

    roots = Roots("poppo", shards)
    try:
        key = Namespace(roots).issue(issue).status
    except IllegalName:
        return
    assert ISSUE_STATUS.parse(roots.of(f"issue:{issue}"), key) == {"issue": str(issue)}
