"""The state of units while the network breaks, answers get lost, and changes are not announced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kizuna.app import connect
from kizuna.codecs import RAW
from kizuna.errors import NotificationsOff, OutcomeUnknown, PermissionDenied
from kizuna.settings import EventsSettings, RootsSettings, Secret, Settings, StoreSettings, UnitsSettings
from kizuna.store.client import Store
from kizuna.testing import ServerProcess, eventually
from kizuna.units.state import Changes, Keep

if TYPE_CHECKING:
    from kizuna.testing.fixtures import MakeProxy

ROOT = "t-keep"
QUICK = EventsSettings(canary_every_s=0.1, canary_timeout_s=1.5)
ANNOUNCED = {"notify-keyspace-events": "AKE"}


def at(url: str, *, username: str = "", root: str = ROOT, timeout_s: float = 5) -> Settings:
    password = Secret("secret" if username else "")
    return Settings(
        store=StoreSettings(
            url=url,
            username=username,
            password=password,
            timeout_s=timeout_s,
            connect_timeout_s=2,
            reconnect_longest_s=0.2,
        ),
        events=QUICK,
        roots=RootsSettings(system=root, coordination=root, units=root),
        units=UnitsSettings(poll_every_s=0.05),
    )


def keep_of(store: Store) -> Keep:
    return Keep(store, "sensor", 60, RAW, 1000, store.settings.roots.units)


async def told(changes: Changes) -> tuple[str, str, bytes | None]:
    change = await changes.next(timeout_s=15)
    assert change is not None, "nothing was told"
    return change.id, change.kind, change.raw


def write(server: ServerProcess, root: str = ROOT, **values: str) -> None:
    """As an outsider does."""
    for id_, value in values.items():
        server.call("SET", f"{root}/sensor/keep/{id_}", value, "EX", 60)


# -- the connection -----------------------------------------------------------------------------------------


async def test_what_changed_while_nobody_heard_is_told_once_and_what_did_not_is_not(
    fresh_server: ServerProcess,
) -> None:
    server = fresh_server
    async with connect(at(server.url)) as k, keep_of(k.store).watch() as changes:
        write(server, same="1", other="1", ended="1")
        assert {(await told(changes))[0] for _ in range(3)} == {"same", "other", "ended"}
        with server.connect() as conversation:
            # In one go: the connection is gone, the changes are made, and only then can it come back.
            conversation.call("MULTI")
            conversation.call("CLIENT", "KILL", "TYPE", "pubsub")
            conversation.call("SET", f"{ROOT}/sensor/keep/other", "2", "EX", 60)
            conversation.call("SET", f"{ROOT}/sensor/keep/new", "1", "EX", 60)
            conversation.call("DEL", f"{ROOT}/sensor/keep/ended")
            conversation.call("EXEC")

        assert {await told(changes) for _ in range(3)} == {
            ("other", "set", b"2"),
            ("new", "set", b"1"),
            ("ended", "deleted", None),
        }
        assert k.store.events.counts.reconnects == 1
        write(server, marker="1")
        assert await told(changes) == ("marker", "set", b"1")


async def test_a_watch_outlives_a_partition(proxy: MakeProxy, server: ServerProcess, root: str) -> None:
    line = await proxy()
    async with connect(at(line.url, root=root)) as k, keep_of(k.store).watch() as changes:
        write(server, root, temp="1")
        assert await told(changes) == ("temp", "set", b"1")
        line.stall()
        await eventually(lambda: k.store.events.counts.canary_failures)
        write(server, root, temp="2")
        await line.cut()
        line.resume()

        assert await told(changes) == ("temp", "set", b"2")


async def test_a_watch_outlives_a_restart_of_the_server(fresh_server: ServerProcess) -> None:
    async with connect(at(fresh_server.url)) as k, keep_of(k.store).watch() as changes:
        write(fresh_server, temp="1")
        assert await told(changes) == ("temp", "set", b"1")
        await asyncio.to_thread(fresh_server.restart)
        write(fresh_server, temp="2")

        assert await told(changes) == ("temp", "set", b"2")


async def test_a_server_that_does_not_answer_is_waited_for_and_that_is_logged_once(
    proxy: MakeProxy, deaf_server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    line = await proxy(deaf_server)
    async with connect(at(line.url, username="app", timeout_s=2)) as k, keep_of(k.store).watch() as changes:
        waiting = asyncio.create_task(told(changes))
        line.refuse()
        await line.cut()
        await eventually(lambda: "state is not up to date" in caplog.messages)
        write(deaf_server, temp="1")
        # It has tried in vain more than once by now.
        await asyncio.sleep(3)
        await line.accept()

        assert await waiting == ("temp", "set", b"1")
    assert caplog.messages.count("state is not up to date") == 1


# -- answers ------------------------------------------------------------------------------------------------


async def test_a_replacement_that_was_done_and_whose_answer_got_lost_counts_as_done(
    proxy: MakeProxy, server: ServerProcess, root: str
) -> None:
    line = await proxy()
    async with connect(at(line.url, root=root)) as k:
        keep = keep_of(k.store)
        await keep.set("mode", b"old")
        line.drop_replies(1, then="cut")
        await keep.replace("mode", b"new", expected=b"old")
        assert line.connections == 2

        assert await keep.get("mode") == b"new"


async def test_a_replacement_that_never_arrived_is_made_up_for(
    proxy: MakeProxy, server: ServerProcess, root: str
) -> None:
    line = await proxy()
    async with connect(at(line.url, root=root)) as k:
        keep = keep_of(k.store)
        await keep.set("mode", b"old")
        line.stall()
        replacing = asyncio.create_task(keep.replace("mode", b"new", expected=b"old"))
        await eventually(lambda: in_flight(k.store))
        await line.cut()
        line.resume()
        await replacing

    assert server.call("GET", f"{root}/sensor/keep/mode") == b"new"


def in_flight(store: Store) -> int:
    (link,) = store.topology.primaries()
    return 0 if link.wire is None else link.wire.in_flight


async def test_a_replacement_that_somebody_may_have_gone_on_from_is_not_said_to_have_failed(
    proxy: MakeProxy, server: ServerProcess, root: str
) -> None:
    line = await proxy()
    async with connect(at(line.url, root=root)) as k:
        keep = keep_of(k.store)
        await keep.set("mode", b"old")
        line.drop_replies(1)
        replacing = asyncio.create_task(keep.replace("mode", b"new", expected=b"old"))
        await eventually(lambda: server.call("GET", f"{root}/sensor/keep/mode") == b"new")
        write(server, root, mode="theirs")
        await line.cut()

        with pytest.raises(OutcomeUnknown, match="it may have been written, and changed by somebody else since"):
            await replacing
        assert await keep.get("mode") == b"theirs"


# -- changes that are not announced -------------------------------------------------------------------------


@pytest.fixture
def deaf_server() -> Iterator[ServerProcess]:
    """Announces nothing, and its user may not switch that on."""
    with ServerProcess(users={"app": "on >secret ~* &* +@all -config"}) as server:
        yield server


async def test_without_notifications_changes_are_looked_for(deaf_server: ServerProcess) -> None:
    write(deaf_server, found="1", deleted="1")
    async with connect(at(deaf_server.url, username="app")) as k, keep_of(k.store).watch() as changes:
        assert isinstance(changes.polling, NotificationsOff)
        assert {await told(changes) for _ in range(2)} == {("found", "set", b"1"), ("deleted", "set", b"1")}
        write(deaf_server, found="2")
        assert await told(changes) == ("found", "set", b"2")
        deaf_server.call("DEL", f"{ROOT}/sensor/keep/deleted")
        assert await told(changes) == ("deleted", "deleted", None)
        deaf_server.call("SET", f"{ROOT}/sensor/keep/brief", "1", "PX", 1000)
        assert await told(changes) == ("brief", "set", b"1")
        assert await told(changes) == ("brief", "expired", None)


async def test_when_notifications_come_it_hears_again(deaf_server: ServerProcess) -> None:
    async with connect(at(deaf_server.url, username="app")) as k, keep_of(k.store).watch() as changes:
        waiting = asyncio.create_task(told(changes))
        deaf_server.call("CONFIG", "SET", "notify-keyspace-events", "AKE")
        await eventually(lambda: changes.polling is None)

        write(deaf_server, temp="1")
        assert await waiting == ("temp", "set", b"1")


async def test_when_notifications_go_it_looks_and_when_they_come_back_it_hears(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ServerProcess(config=ANNOUNCED, users={"app": "on >secret ~* &* +@all -config"}) as server:
        async with connect(at(server.url, username="app")) as k, keep_of(k.store).watch() as changes:
            assert changes.polling is None
            waiting = asyncio.create_task(told(changes))
            server.call("CONFIG", "SET", "notify-keyspace-events", "")
            await eventually(lambda: changes.polling)
            write(server, temp="1")
            assert await waiting == ("temp", "set", b"1")

            server.call("CONFIG", "SET", "notify-keyspace-events", "AKE")
            await eventually(lambda: changes.polling is None)
            write(server, temp="2")
            assert await told(changes) == ("temp", "set", b"2")
    # Said once, not at each proof that it is still so.
    assert [record.message for record in caplog.records if record.name == "kizuna.units"] == ["polling"]


async def test_where_it_may_not_subscribe_it_looks() -> None:
    channels = f"resetchannels &__keyspace@0__:{ROOT}:canary:*"
    with ServerProcess(config=ANNOUNCED, users={"app": f"on >secret ~* {channels} +@all"}) as server:
        async with connect(at(server.url, username="app")) as k, keep_of(k.store).watch() as changes:
            assert isinstance(changes.polling, PermissionDenied)
            write(server, temp="1")
            assert await told(changes) == ("temp", "set", b"1")


async def test_who_may_not_read_is_refused_at_the_door() -> None:
    with ServerProcess(config=ANNOUNCED, users={"app": f"on >secret ~{ROOT}:* &* +@all"}) as server:
        async with connect(at(server.url, username="app")) as k:
            with pytest.raises(PermissionDenied):
                await keep_of(k.store).watch("temp", changes_only=True).__aenter__()


async def test_without_the_right_to_scan_one_id_can_be_watched() -> None:
    with ServerProcess(config=ANNOUNCED, users={"app": "on >secret ~* &* +@all -scan"}) as server:
        async with connect(at(server.url, username="app")) as k:
            with pytest.raises(PermissionDenied):
                await keep_of(k.store).watch().__aenter__()
            write(server, temp="1")
            async with keep_of(k.store).watch("temp") as changes:
                assert await told(changes) == ("temp", "set", b"1")


async def test_few_rights_are_enough_to_watch() -> None:
    channels = f"resetchannels &__keyspace@0__:{ROOT}:canary:* &__keyspace@0__:{ROOT}/sensor/keep/*"
    commands = "-@all +@connection +info +set +get +mget +pttl +scan +subscribe +psubscribe +unsubscribe +punsubscribe"
    rights = f"on >secret %R~{ROOT}/sensor/keep/* ~{ROOT}:canary:* {channels} {commands}"
    with ServerProcess(config={"notify-keyspace-events": "K$gx"}, users={"app": rights}) as server:
        async with connect(at(server.url, username="app")) as k, keep_of(k.store).watch() as changes:
            assert changes.polling is None
            write(server, temp="1")
            assert await told(changes) == ("temp", "set", b"1")
            server.call("DEL", f"{ROOT}/sensor/keep/temp")
            assert await told(changes) == ("temp", "deleted", None)


async def test_while_it_looks_it_ends_with_the_store_too(deaf_server: ServerProcess) -> None:
    async with connect(at(deaf_server.url, username="app")) as k:
        changes = await keep_of(k.store).watch().__aenter__()

        async def count() -> int:
            return len([change async for change in changes])

        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
    assert await asyncio.wait_for(counting, 15) == 0
