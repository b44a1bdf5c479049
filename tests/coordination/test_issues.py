"""Issues: exactly one of many gets one, and both lists are true to the statuses at any time."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.app import Kizuna
from kizuna.coordination.days import beginning_of, midnights
from kizuna.coordination.issues import COMPLETED, PENDING, PROCESSING, Issues
from kizuna.coordination.issues.lists import Fault
from kizuna.errors import IllegalName, IssueLost, IssueTaken, OutOfMemory, PermissionDenied, SettingsError, WrongValue
from kizuna.settings import Settings
from kizuna.store.client import Store
from kizuna.testing import ServerProcess
from kizuna.testing.fixtures import MakeProxy

ZONES = sorted(available_timezones())


@pytest.fixture
def issues(store: Store) -> Issues:
    return Issues(store, "one")


@pytest.fixture
def others(store: Store) -> Issues:
    return Issues(store, "other")


def at(settings: Settings, url: str) -> Settings:
    return msgspec.structs.replace(settings, store=msgspec.structs.replace(settings.store, url=url))


# checking out


async def test_one_of_many_gets_it_and_the_others_are_told_who(store: Store) -> None:
    everybody = [Issues(store, f"worker-{number}") for number in range(50)]
    outcomes = await asyncio.gather(*(one.checkout(123) for one in everybody), return_exceptions=True)

    (winner,) = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    refusals = [outcome for outcome in outcomes if isinstance(outcome, IssueTaken)]
    assert len(refusals) == 49
    assert {(refusal.issue, refusal.status, refusal.by) for refusal in refusals} == {
        ("123", PROCESSING, f"worker-{winner}")
    }
    assert str(refusals[0]) == f"issue 123 is processing by worker-{winner}; nothing was changed"


async def test_what_is_on_the_server_is_for_everybody_to_read(issues: Issues, server: ServerProcess, root: str) -> None:
    await issues.checkout(123, {"title": "雨漏り", "labels": ["a", "b"]})

    assert server.call("GET", f"{root}:issue:status:123") == b"processing"
    assert server.call("SMEMBERS", f"{root}:issues:processing") == [b"123"]
    assert server.call("HGET", f"{root}:issue:metadata:123", "processId") == b"one"
    assert server.call("HGET", f"{root}:issue:metadata:123", "labels") == b'["a","b"]'
    assert (await issues.metadata(123))["title"] == "雨漏り"
    assert abs(int((await issues.metadata(123))["checkedOutAt"]) / 1000 - datetime.now(UTC).timestamp()) < 60


async def test_only_what_is_expected_is_taken(issues: Issues) -> None:
    await issues.set_status("a", "waiting")
    with pytest.raises(IssueTaken) as taken:
        await issues.checkout("a")
    assert (taken.value.status, taken.value.by) == ("waiting", "")

    checkout = await issues.checkout("a", expect=["waiting"])
    assert checkout.status_before == "waiting"
    with pytest.raises(IssueTaken):
        await issues.checkout("b", expect=["waiting"])
    assert await issues.status("b") is None


async def test_a_repeated_checkout_with_its_claim_is_harmless(issues: Issues, others: Issues) -> None:
    first = await issues.checkout(1, {"title": "x"}, claim="c1")
    again = await issues.checkout(1, {"title": "y"}, claim="c1")

    assert again == first
    assert (await issues.metadata(1))["title"] == "x"
    with pytest.raises(IssueTaken):
        await issues.checkout(1)
    with pytest.raises(IssueTaken):
        await others.checkout(1, claim="c2")


async def test_a_lock_of_somebody_else_refuses_and_our_own_does_not(
    issues: Issues, server: ServerProcess, root: str
) -> None:
    lock = f"{root}:lock:issue:5"
    for value, by in (("7:other/abc-1", "other"), ("7:one-b/abc-1", "one-b"), ("by hand", "by hand")):
        server.call("SET", lock, value, "PX", 60_000)
        with pytest.raises(IssueTaken) as taken:
            await issues.checkout(5)
        assert (taken.value.status, taken.value.by) == ("locked", by)
    assert await issues.status(5) is None

    server.call("SET", lock, "8:one/abc-1", "PX", 60_000)
    await issues.checkout(5)


# what becomes of it


async def test_done_failed_released_and_open_again(issues: Issues) -> None:
    await issues.checkout(1)
    await issues.complete(1, {"pr": 7})
    assert (await issues.status(1), await issues.completed_today()) == (COMPLETED, ["1"])
    assert (await issues.metadata(1)).keys() == {"processId", "checkedOutAt", "endedAt", "lastChange", "pr"}

    await issues.reopen(1)
    assert (await issues.status(1), await issues.completed_today()) == (PENDING, [])
    await issues.checkout(1)
    assert await issues.release(1) == PENDING
    assert (await issues.metadata(1)).keys() == {"lastChange", "pr"}

    await issues.checkout(1)
    await issues.fail(1, "no idea")
    assert (await issues.get(1)).by == "one"
    assert (await issues.metadata(1))["reason"] == "no idea"
    await issues.reopen(1)
    assert "reason" not in await issues.metadata(1)
    assert await issues.processing() == []


async def test_late_ones_are_refused_and_change_nothing(issues: Issues, others: Issues) -> None:
    await issues.checkout(1)
    await issues.give_back("one")
    await others.checkout(1)
    before = await issues.metadata(1)

    for late in (issues.complete(1), issues.fail(1, "x"), issues.release(1)):
        with pytest.raises(IssueLost) as lost:
            await late
        assert (lost.value.status, lost.value.by) == (PROCESSING, "other")
    for change in (issues.set_status(1, PENDING), issues.forget(1), issues.reopen(1)):
        with pytest.raises(IssueTaken):
            await change
    assert str(lost.value) == ("issue 1 is not checked out by us: it is processing by other; nothing was changed")
    assert await issues.metadata(1) == before

    await issues.complete(1, force=True)
    with pytest.raises(IssueLost, match="it is completed; nothing"):
        await others.complete(1)


async def test_a_released_issue_has_the_status_it_had(issues: Issues) -> None:
    await issues.set_status(1, "triaged")
    await issues.checkout(1, expect=["triaged"])
    assert await issues.release(1) == "triaged"

    await issues.checkout(2)
    assert await issues.release(2) == PENDING


async def test_what_the_dead_had_is_given_back_and_nothing_else(issues: Issues, others: Issues) -> None:
    for number in range(30):
        await (issues if number % 2 else others).checkout(number)

    assert await issues.give_back("one") == 15
    assert await issues.give_back("one") == 0
    assert await issues.processing() == [str(number) for number in range(0, 30, 2)]
    assert await issues.status(1) == PENDING


async def test_what_ended_is_forgotten_in_time_and_what_is_reopened_is_not(
    issues: Issues, server: ServerProcess, root: str
) -> None:
    keys = [f"{root}:issue:status:1", f"{root}:issue:metadata:1"]
    await issues.checkout(1)
    assert [server.call("TTL", key) for key in keys] == [-1, -1]
    await issues.complete(1)
    assert all(2_591_000 < server.call("TTL", key) <= 2_592_000 for key in keys)
    await issues.reopen(1)
    assert [server.call("TTL", key) for key in keys] == [-1, -1]
    await issues.forget(1)
    assert [server.call("EXISTS", key) for key in keys] == [0, 0]


async def test_changes_are_told(issues: Issues, store: Store, root: str) -> None:
    async with store.events.listen(f"{root}:channel:events:issue:status") as feed:
        await issues.checkout(1)
        await issues.release(1)
        told = [await feed.next(timeout_s=5) for _ in range(2)]

    assert [json.loads(message.payload) for message in told] == [  # type: ignore[union-attr]
        {"issue": "1", "status": "processing", "by": "one"},
        {"issue": "1", "status": "pending", "by": "one"},
    ]


async def test_metadata_can_be_added_and_removed_by_anybody(issues: Issues, others: Issues) -> None:
    await issues.checkout(1, {"a": "1", "b": 2})
    await others.update_metadata(1, {"a": None, "c": True})

    assert {name: text for name, text in (await issues.metadata(1)).items() if len(name) == 1} == {
        "b": "2",
        "c": "true",
    }
    assert await issues.metadata("unknown") == {}


@pytest.mark.parametrize("name", ["", "a:b", "a b", "*", "a{b}"])
async def test_names_that_could_leave_their_place_are_refused(issues: Issues, name: str) -> None:
    with pytest.raises(IllegalName):
        await issues.checkout(name)


async def test_wrong_words_are_refused_with_a_sentence(issues: Issues) -> None:
    with pytest.raises(WrongValue, match=r"^the status cannot be 'processing'; expected another one: checkout"):
        await issues.set_status(1, PROCESSING)
    for word in ("", "two words", "-", "x" * 65):
        with pytest.raises(WrongValue, match="one word"):
            await issues.set_status(1, word)
    with pytest.raises(WrongValue, match="'processId'"):
        await issues.checkout(1, {"processId": "me"})
    with pytest.raises(WrongValue, match="JSON"):
        await issues.checkout(1, {"a": object()})
    assert await issues.status(1) is None


async def test_a_full_server_takes_no_new_work_but_hears_of_what_is_done(settings: Settings) -> None:
    with ServerProcess(config={"maxmemory": "50mb"}) as server:
        k = Kizuna(at(settings, server.url))
        await k.store.open()
        issues = Issues(k.store, "one")
        await issues.checkout(1)
        server.call("CONFIG", "SET", "maxmemory", 1)

        with pytest.raises(OutOfMemory):
            await issues.checkout(2)
        with pytest.raises(OutOfMemory):
            await issues.set_status(3, PENDING)
        assert [await issues.status(2), await issues.status(3)] == [None, None]
        assert (await issues.metadata(2), await issues.processing()) == ({}, ["1"])

        await issues.complete(1)
        assert (await issues.processing(), await issues.completed_today()) == ([], ["1"])
        await k.aclose()


async def test_a_lost_answer_neither_loses_an_issue_nor_takes_it_twice(
    settings: Settings, proxy: MakeProxy, others: Issues
) -> None:
    chaos = await proxy()
    k = Kizuna(at(settings, chaos.url))
    await k.store.open()
    issues = Issues(k.store, "one")
    await issues.checkout("before")  # the server knows the script
    for step in (issues.checkout, issues.complete, issues.reopen):
        chaos.drop_replies(1, then="cut")
        await step(1)
    chaos.drop_replies(1, then="cut")
    await issues.checkout(1)

    assert (await others.get(1)).by == "one"
    assert await others.processing() == ["1", "before"]
    await k.aclose()


async def test_where_a_key_is_denied_nothing_is_half_done(settings: Settings, root: str) -> None:
    rules = f"on >pw ~{root}:issue:* ~{root}:lock:* &* +@all"
    with ServerProcess(users={"half": rules}) as server:
        k = Kizuna(at(settings, server.url.replace("://", "://half:pw@")))
        await k.store.open()
        issues = Issues(k.store, "one")
        with pytest.raises(PermissionDenied):
            await issues.checkout(1)
        assert (await issues.status(1), await issues.metadata(1)) == (None, {})
        await k.aclose()


# the day


def test_a_zone_that_nobody_knows_is_told(settings: Settings) -> None:
    store = Store(
        msgspec.structs.replace(
            settings, coordination=msgspec.structs.replace(settings.coordination, time_zone="Mars/Base")
        )
    )
    with pytest.raises(SettingsError, match="Mars/Base"):
        Issues(store, "one")


async def test_todays_list_ends_at_midnight_where_the_settings_say(
    settings: Settings, server: ServerProcess, root: str
) -> None:
    for zone in ("Asia/Tokyo", "America/New_York", "Asia/Kathmandu"):
        section = msgspec.structs.replace(settings.coordination, time_zone=zone)
        k = Kizuna(msgspec.structs.replace(settings, coordination=section))
        await k.store.open()
        before = datetime.now(ZoneInfo(zone))
        await Issues(k.store, "one").set_status(zone.replace("/", "-"), COMPLETED)
        ends_ms = int(server.call("TIME")[0]) * 1000 + server.call("PTTL", f"{root}:issues:completed:today")
        await k.aclose()

        ends = datetime.fromtimestamp(ends_ms / 1000, ZoneInfo(zone)) + timedelta(seconds=5)
        assert ends.date() - before.date() == timedelta(days=1) or ends.date() == datetime.now(ZoneInfo(zone)).date()
        assert (ends.hour, ends.minute) == (0, 0)


async def test_yesterdays_are_gone_and_a_clock_that_is_weeks_off_does_no_harm(
    issues: Issues, server: ServerProcess, root: str
) -> None:
    await issues.set_status(1, COMPLETED)
    # What the server does by itself at midnight, whether or not any of us runs.
    server.call("PEXPIREAT", f"{root}:issues:completed:today", 1)
    assert await issues.completed_today() == []

    for days in (-300, 300):
        issues._ahead_s = days * 86_400
        await issues.set_status(2, COMPLETED)
        assert 0 < server.call("TTL", f"{root}:issues:completed:today") <= 86_400
        await issues.forget(2)


@given(zone=st.sampled_from(ZONES), now_s=st.floats(157_766_400, 2_114_380_800))
def test_each_day_begins_when_its_date_does(zone: str, now_s: float) -> None:
    place = ZoneInfo(zone)
    around = midnights(now_s, place)

    assert around == sorted(set(around))
    assert around[0] / 1000 <= now_s < around[-1] / 1000
    for begins_ms, next_ms in pairwise(around):
        first, last = (datetime.fromtimestamp(ms / 1000, place) for ms in (begins_ms, next_ms - 1))
        assert first.date() == last.date()
        assert datetime.fromtimestamp(begins_ms / 1000 - 0.001, place).date() < first.date()


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),  # its clocks went from midnight to one
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("Asia/Tokyo", date(2026, 3, 29), 24),
    ],
)
def test_days_that_are_not_24_hours(zone: str, day: date, hours: float) -> None:
    place = ZoneInfo(zone)
    assert (beginning_of(day + timedelta(days=1), place) - beginning_of(day, place)) / 3_600_000 == hours


def test_a_day_that_was_left_out() -> None:
    """Samoa crossed the date line on 30 December 2011."""
    apia = ZoneInfo("Pacific/Apia")
    around = midnights(datetime(2011, 12, 31, tzinfo=apia).timestamp(), apia)

    assert [datetime.fromtimestamp(ms / 1000, apia).day for ms in around] == [29, 31, 1, 2, 3]


# outsiders


async def test_what_was_written_by_hand_is_found_and_mended(issues: Issues, server: ServerProcess, root: str) -> None:
    await issues.checkout(1)
    await issues.checkout(2)
    await issues.checkout(3)
    await issues.complete(2)
    server.call("SET", f"{root}:issue:status:1", "pending")
    server.call("SREM", f"{root}:issues:completed:today", 2)
    server.call("SET", f"{root}:issue:status:4", "processing")
    server.call("SADD", f"{root}:issues:processing", "5", "not:a name")
    server.call("SADD", f"{root}:issues:completed:today", "3", "6")

    faults = {
        Fault("1", "not processing"),
        Fault("2", "missing in today"),
        Fault("3", "not completed today"),
        Fault("4", "missing in processing"),
        Fault("5", "not processing"),
        Fault("6", "not completed today"),
    }
    assert {fault async for fault in issues.verify()} == faults
    assert {fault async for fault in issues.verify(repair=True)} == faults
    assert [fault async for fault in issues.verify()] == []
    assert await issues.processing() == ["3", "4"]
    assert await issues.completed_today() == ["2"]
    assert {pair async for pair in issues.all()} == {
        ("1", PENDING),
        ("2", COMPLETED),
        ("3", PROCESSING),
        ("4", PROCESSING),
    }


async def test_an_outsider_who_checks_out_by_hand_is_respected(
    issues: Issues, server: ServerProcess, root: str
) -> None:
    server.call("SET", f"{root}:issue:status:9", "processing")
    server.call("HSET", f"{root}:issue:metadata:9", "processId", "shell")
    server.call("SADD", f"{root}:issues:processing", "9")

    with pytest.raises(IssueTaken, match="processing by shell"):
        await issues.checkout(9)
    assert await issues.give_back("shell") == 1
    await issues.checkout(9)
