"""What readers are told when events may have been missed: by whatever it was, and within the canary's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest

from kizuna.app import connect
from kizuna.errors import KizunaError, NotificationsOff, OutcomeUnknown, PermissionDenied, SignInRefused
from kizuna.settings import EventsSettings, RootsSettings, Secret, Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.store.events import Change, LookAgain, Message
from kizuna.testing import ServerProcess, eventually

if TYPE_CHECKING:
    from kizuna.testing.fixtures import MakeProxy

QUICK = EventsSettings(canary_every_s=0.1, canary_timeout_s=1.5)
_NOTICED_WITHIN_S = QUICK.canary_every_s + QUICK.canary_timeout_s
MakeServer = Callable[..., ServerProcess]


@pytest.fixture
def notifying() -> Iterator[MakeServer]:
    """Starts servers with these flags and users."""
    started: list[ServerProcess] = []

    def start(flags: str, **users: str) -> ServerProcess:
        server = ServerProcess(config={"notify-keyspace-events": flags}, users=users)
        started.append(server.start())
        return server

    yield start
    for server in started:
        server.close()


def quick(url: str, *, username: str = "", password: str = "", timeout_s: float = 2) -> Settings:
    store = StoreSettings(
        url=url,
        username=username,
        password=Secret(password),
        timeout_s=timeout_s,
        connect_timeout_s=1,
        reconnect_longest_s=0.2,
    )
    return Settings(store=store, events=QUICK, roots=RootsSettings(system="t-faults"))


def as_app(server: ServerProcess) -> Settings:
    return quick(server.url, username="app", password="secret")


# -- the connection ---------------------------------------------------------------------------------------


async def test_a_partition_is_noticed_by_the_canary_and_everybody_looks_again_after_it(
    proxy: MakeProxy, server: ServerProcess, scratch: str
) -> None:
    line = await proxy()
    async with connect(quick(line.url)) as kizuna:
        events = kizuna.store.events
        async with events.watch(f"{scratch}*") as feed, events.waiters(f"{scratch}*") as waiters:
            waiter = waiters.waiter(f"{scratch}a")
            line.stall()
            await eventually(lambda: events.counts.canary_failures, within_s=2 + _NOTICED_WITHIN_S)
            server.call("SET", f"{scratch}a", "missed")
            line.resume()

            told = await feed.next(timeout_s=5)
            assert told == LookAgain(f"listening at {line.address} began anew")
            async with asyncio.timeout(5):
                assert await waiter == told
            server.call("SET", f"{scratch}b", "heard")
            assert await feed.next(timeout_s=5) == Change(f"{scratch}b", "set")
            assert events.counts.reconnects >= 1


async def test_an_idle_partition_is_found_although_nobody_sends_anything(proxy: MakeProxy, scratch: str) -> None:
    line = await proxy()
    async with connect(quick(line.url)) as kizuna, kizuna.store.events.watch(f"{scratch}*") as feed:
        line.drop_replies()
        await eventually(lambda: kizuna.store.events.counts.canary_failures)
        line.deliver_replies()

        assert isinstance(await feed.next(timeout_s=5), LookAgain)


async def test_a_killed_connection_comes_back_and_says_so(fresh_server: ServerProcess) -> None:
    async with connect(quick(fresh_server.url)) as kizuna:
        events = kizuna.store.events
        async with events.watch("a*") as feed, events.listen("news") as news:
            assert fresh_server.call("CLIENT", "KILL", "TYPE", "pubsub") == 1

            assert isinstance(await feed.next(timeout_s=5), LookAgain)
            assert isinstance(await news.next(timeout_s=5), LookAgain)
            fresh_server.call("SET", "ab", "")
            fresh_server.call("PUBLISH", "news", "again")
            assert await feed.next(timeout_s=5) == Change("ab", "set")
            assert await news.next(timeout_s=5) == Message("news", b"again")


async def test_a_restarted_server_is_heard_again_with_flags_that_it_had_lost(notifying: MakeServer) -> None:
    server = notifying("")
    async with connect(quick(server.url)) as kizuna, kizuna.store.events.watch("a*") as feed:
        server.call("SET", "a1", "")
        assert await feed.next(timeout_s=5) == Change("a1", "set")

        await asyncio.to_thread(server.restart)
        assert isinstance(await feed.next(timeout_s=5), LookAgain)
        server.call("SET", "a2", "")
        assert await feed.next(timeout_s=5) == Change("a2", "set")


async def test_a_subscriber_that_the_server_drops_for_being_slow_looks_again(notifying: MakeServer) -> None:
    server = notifying("AKE")
    server.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0")
    server.call("CONFIG", "SET", "min-string-size-avoid-copy-reply", 2**31 - 1)
    async with connect(quick(server.url)) as kizuna, kizuna.store.events.listen("news") as news:
        with server.connect() as conversation:
            # Blocking on purpose: while this runs, nobody here reads.
            while conversation.call("PUBLISH", "news", "x" * 100_000):
                pass

        async with asyncio.timeout(10):
            while not isinstance(await news.next(), LookAgain):
                pass
        server.call("PUBLISH", "news", "again")
        assert await news.next(timeout_s=5) == Message("news", b"again")


async def test_a_flapping_network_leaves_one_look_again_and_not_a_hundred(fresh_server: ServerProcess) -> None:
    async with connect(quick(fresh_server.url)) as kizuna, kizuna.store.events.watch("a*") as feed:
        for times in range(1, 4):
            fresh_server.call("CLIENT", "KILL", "TYPE", "pubsub")
            await eventually(lambda: kizuna.store.events.counts.reconnects == times)  # noqa: B023 - awaited here

        assert isinstance(await feed.next(timeout_s=5), LookAgain)
        assert await feed.next(timeout_s=0) is None


async def test_entering_while_the_server_is_away_waits_for_it(fresh_server: ServerProcess) -> None:
    async with connect(quick(fresh_server.url)) as kizuna:
        fresh_server.kill()
        entering = asyncio.create_task(_first_change(kizuna.store, "a*"))
        await asyncio.to_thread(fresh_server.start)

        await eventually(lambda: fresh_server.call("PUBSUB", "NUMPAT") == 1)
        await eventually(lambda: fresh_server.call("SET", "a1", "") and entering.done())
        assert await entering == Change("a1", "set")


async def test_entering_on_a_connection_that_is_cut_off_goes_on_with_the_next(
    proxy: MakeProxy, server: ServerProcess, scratch: str
) -> None:
    line = await proxy()
    async with connect(quick(line.url, timeout_s=10)) as kizuna, kizuna.store.events.watch(f"{scratch}a*"):
        line.stall()
        entering = asyncio.create_task(_first_change(kizuna.store, f"{scratch}b*"))
        await eventually(lambda: kizuna.store.events.counts.canary_failures)
        line.resume()

        await eventually(lambda: server.call("SET", f"{scratch}b", "") and entering.done())
        assert await entering == Change(f"{scratch}b", "set")


async def test_a_connection_on_which_nobody_can_enter_is_left_although_the_canary_has_time(
    proxy: MakeProxy, server: ServerProcess, scratch: str
) -> None:
    line = await proxy()
    patient = EventsSettings(canary_every_s=0.05, canary_timeout_s=60)
    async with connect(Settings(store=StoreSettings(url=line.url, timeout_s=2), events=patient)) as kizuna:
        events = kizuna.store.events
        async with events.listen(f"{scratch}a"):
            line.drop_replies(1)
            # From the canary's next reply on, the connection is silent.
            await eventually(lambda: line._replies_to_drop == 0)
            with pytest.raises(OutcomeUnknown):
                await events.listen(f"{scratch}b").__aenter__()

            async with events.listen(f"{scratch}b") as feed:
                server.call("PUBLISH", f"{scratch}b", "heard")
                assert await feed.next(timeout_s=5) == Message(f"{scratch}b", b"heard")


async def test_while_the_server_is_a_replica_entering_waits_until_it_is_a_primary(fresh_server: ServerProcess) -> None:
    async with connect(quick(fresh_server.url, timeout_s=10)) as kizuna, kizuna.store.events.watch("a*") as feed:
        fresh_server.call("REPLICAOF", fresh_server.host, 1)
        entering = asyncio.create_task(_first_change(kizuna.store, "b*", kinds=("hset",)))
        await eventually(lambda: b"events" not in fresh_server.call("CLIENT", "LIST", "TYPE", "PUBSUB"))
        fresh_server.call("REPLICAOF", "NO", "ONE")

        assert isinstance(await feed.next(timeout_s=5), LookAgain)
        await eventually(lambda: fresh_server.call("HSET", "b1", "f", "v") == 0 and entering.done())
        assert await entering == Change("b1", "hset")


# -- the flags --------------------------------------------------------------------------------------------


async def test_missing_flags_are_set_and_those_of_others_stay(notifying: MakeServer) -> None:
    server = notifying("El")
    async with connect(quick(server.url)) as kizuna, kizuna.store.events.watch("a*", kinds=("set", "expired")) as feed:
        assert _flags(server) == set("KEl$x")
        async with kizuna.store.events.watch("b*", kinds=("hset",)):
            assert _flags(server) == set("KEl$xh")
        server.call("SET", "a1", "")
        assert await feed.next(timeout_s=5) == Change("a1", "set")


@pytest.mark.parametrize("left", ["", "K$", "E$gx"])
async def test_flags_that_somebody_turns_off_are_set_again_and_everybody_looks_again(
    notifying: MakeServer, left: str
) -> None:
    server = notifying("AK")
    async with connect(quick(server.url)) as kizuna, kizuna.store.events.watch("a*", kinds=("set", "del")) as feed:
        server.call("CONFIG", "SET", "notify-keyspace-events", left)

        assert await feed.next(timeout_s=5) == LookAgain(f"{server.address} had not announced changes for a while")
        assert set("K$g") <= _flags(server)
        server.call("SET", "a1", "")
        assert await feed.next(timeout_s=5) == Change("a1", "set")


async def test_where_we_may_neither_see_nor_set_the_flags_the_error_names_the_command(notifying: MakeServer) -> None:
    server = notifying("", app="on >secret ~* &* +@all -config")
    async with connect(as_app(server)) as kizuna:
        with pytest.raises(NotificationsOff) as off:
            async with kizuna.store.events.watch("a*", kinds=("set", "expired")):
                pass

    assert str(off.value) == (
        f"changes of keys are not announced at {server.address}; run `CONFIG SET notify-keyspace-events K$x` there, "
        "and put it into the server's configuration, or let this user do so (+config)"
    )


async def test_where_we_may_see_the_flags_the_error_shows_them_and_keeps_them(notifying: MakeServer) -> None:
    server = notifying("El", app="on >secret ~* &* +@all -config +config|get")
    async with connect(as_app(server)) as kizuna:
        with pytest.raises(NotificationsOff) as off:
            async with kizuna.store.events.watch("a*", kinds=("hset",)):
                pass

    assert str(off.value) == (
        f"changes of keys are not announced (notify-keyspace-events is 'lE') at {server.address}; run `CONFIG SET "
        "notify-keyspace-events KE$hl` there, and put it into the server's configuration, or let this user do so "
        "(+config)"
    )


async def test_a_missing_letter_stops_only_those_who_need_it(notifying: MakeServer) -> None:
    server = notifying("K$", app="on >secret ~* &* +@all -config +config|get")
    async with connect(as_app(server)) as kizuna, kizuna.store.events.watch("a*") as feed:
        with pytest.raises(NotificationsOff):
            async with kizuna.store.events.watch("a*", kinds=("expired",)):
                pass
        server.call("SET", "a1", "")
        assert await feed.next(timeout_s=5) == Change("a1", "set")


async def test_without_any_right_to_config_the_canary_alone_is_proof(notifying: MakeServer) -> None:
    server = notifying("K$g", app="on >secret ~* &* +@all -config")
    async with connect(as_app(server)) as kizuna, kizuna.store.events.watch("a*", kinds=("set", "del")) as feed:
        server.call("SET", "a1", "")
        assert await feed.next(timeout_s=5) == Change("a1", "set")
        assert kizuna.store.events.counts.canary_failures == 0


@pytest.mark.parametrize(("kinds", "asked"), [(("set", "del"), 0), (("set", "expired"), 1)])
async def test_who_may_not_see_the_flags_asks_for_them_once_and_only_if_the_canary_is_no_proof(
    notifying: MakeServer, kinds: tuple[str, ...], asked: int
) -> None:
    server = notifying("AK", app="on >secret ~* &* +@all -config")
    async with connect(as_app(server)) as kizuna, kizuna.store.events.watch("a*", kinds=kinds):
        for listener in kizuna.store.events._listeners.values():
            for _ in range(3):
                await listener.prove()

    refused = [dict(zip(raw[::2], raw[1::2], strict=True)) for raw in server.call("ACL", "LOG")]
    assert [(entry[b"object"], entry[b"count"]) for entry in refused] == [(b"config|get", 1)] * asked


async def test_reading_fails_while_notifications_are_off_for_good_and_goes_on_when_they_are_back(
    notifying: MakeServer,
) -> None:
    server = notifying("K$", app="on >secret ~* &* +@all -config")
    async with connect(as_app(server)) as kizuna:
        events = kizuna.store.events
        async with events.watch("a*") as feed, events.waiters("a*") as waiters, events.listen("news") as news:
            waiter = waiters.waiter("a1")
            server.call("CONFIG", "SET", "notify-keyspace-events", "")

            with pytest.raises(NotificationsOff, match="CONFIG SET notify-keyspace-events"):
                await feed.next(timeout_s=5)
            assert events.counts.canary_failures > 0
            with pytest.raises(NotificationsOff):
                await waiter
            with pytest.raises(NotificationsOff):
                waiters.waiter("a1")
            server.call("PUBLISH", "news", "hears all the same")
            assert await news.next(timeout_s=5) == Message("news", b"hears all the same")

            server.call("CONFIG", "SET", "notify-keyspace-events", "K$")
            await eventually(lambda: events.counts.look_agains)
            assert isinstance(await feed.next(timeout_s=5), LookAgain)
            server.call("SET", "a1", "")
            assert await feed.next(timeout_s=5) == Change("a1", "set")


async def test_a_full_server_that_refuses_the_canary_is_heard_all_the_same(notifying: MakeServer) -> None:
    server = notifying("AKE")
    server.call("SET", "a1", "")
    async with connect(quick(server.url)) as kizuna, kizuna.store.events.watch("a*", kinds=("del",)) as feed:
        server.call("CONFIG", "SET", "maxmemory", 1)
        for listener in kizuna.store.events._listeners.values():
            await listener.prove()
        server.call("DEL", "a1")

        assert await feed.next(timeout_s=5) == Change("a1", "del")
        assert kizuna.store.events.counts.canary_failures == 0


# -- taps -------------------------------------------------------------------------------------------------


class Told:
    """What a tap calls."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.look_agains: list[LookAgain] = []
        self.troubles: list[KizunaError] = []
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def tap(self, store: Store, pattern: str) -> AbstractAsyncContextManager[None]:
        look, trouble = self.look_agains.append, self.troubles.append
        return store.events.tap(pattern, self.keys.extend, on_look_again=look, on_trouble=trouble, on_close=self.close)


async def test_a_tap_is_called_with_each_key_in_order_and_for_its_kinds_only(server: ServerProcess, root: str) -> None:
    told = Told()
    async with connect(quick(server.url)) as kizuna:
        async with told.tap(kizuna.store, f"{root}/*"):
            with server.connect() as outsider:
                for number in range(50):
                    outsider.call("SET", f"{root}/a/req/{number}", "", "EX", 10)
                outsider.call("DEL", f"{root}/a/req/0")
                outsider.call("SET", b"%s/a/req/\xff" % root.encode(), "", "EX", 10)
                await eventually(lambda: len(told.keys) == 51)
                outsider.call("DEL", b"%s/a/req/\xff" % root.encode())
            assert told.closed == 0
        assert told.closed == 1
        server.call("SET", f"{root}/a/req/late", "", "EX", 10)
        assert await kizuna.store.get(f"{root}/a/req/late") == b""

    assert told.keys == [f"{root}/a/req/{n}".encode() for n in range(50)] + [b"%s/a/req/\xff" % root.encode()]
    assert (told.look_agains, told.troubles) == ([], [])


async def test_a_tap_is_told_to_look_again_after_a_reconnect_and_hears_on(fresh_server: ServerProcess) -> None:
    told = Told()
    async with connect(quick(fresh_server.url)) as kizuna, told.tap(kizuna.store, "a*"):
        fresh_server.call("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: told.look_agains)
        fresh_server.call("SET", "a1", "")

        await eventually(lambda: told.keys == [b"a1"])
        assert told.look_agains == [LookAgain(f"listening at {fresh_server.address} began anew")]
        assert told.troubles == []


async def test_a_tap_is_told_of_trouble_that_waiting_does_not_mend_and_of_its_end(notifying: MakeServer) -> None:
    server, told = notifying("K$", app="on >secret ~* &* +@all -config"), Told()
    async with connect(as_app(server)) as kizuna, told.tap(kizuna.store, "a*"):
        server.call("CONFIG", "SET", "notify-keyspace-events", "")
        await eventually(lambda: told.troubles)
        assert isinstance(told.troubles[0], NotificationsOff)
        assert told.look_agains == []

        server.call("CONFIG", "SET", "notify-keyspace-events", "K$")
        await eventually(lambda: told.look_agains)
        troubles = len(told.troubles)
        server.call("SET", "a1", "")
        await eventually(lambda: told.keys == [b"a1"])
        assert len(told.troubles) == troubles


async def test_a_tap_where_nothing_is_announced_is_refused_at_the_door(notifying: MakeServer) -> None:
    server, told = notifying("", app="on >secret ~* &* +@all -config"), Told()
    async with connect(as_app(server)) as kizuna:
        with pytest.raises(NotificationsOff):
            async with told.tap(kizuna.store, "a*"):
                pass

    assert (told.keys, told.look_agains, told.troubles) == ([], [], [])


async def test_a_tap_is_called_once_for_what_is_told_at_once(server: ServerProcess, root: str) -> None:
    calls: list[list[bytes]] = []
    async with connect(quick(server.url)) as kizuna:
        tap = kizuna.store.events.tap(
            f"{root}/*", calls.append, on_look_again=lambda _: None, on_trouble=lambda _: None
        )
        async with tap, asyncio.timeout(10):
            writes = [("SET", f"{root}/a/req/{number}", "", "PX", 10_000) for number in range(200)]
            await kizuna.store.call_all(writes)
            await eventually(lambda: sum(map(len, calls)) == 200)

    assert [key for keys in calls for key in keys] == [f"{root}/a/req/{number}".encode() for number in range(200)]
    assert len(calls) < 100


async def test_a_tap_on_messages_is_called_with_each_and_hears_on_after_a_reconnect(
    fresh_server: ServerProcess,
) -> None:
    told: list[tuple[bytes, bytes]] = []
    async with connect(quick(fresh_server.url)) as kizuna:
        events = kizuna.store.events
        async with events.tap_messages("news.*", lambda channel, payload: told.append((channel, payload))):
            for number in range(3):
                fresh_server.call("PUBLISH", f"news.{number}", b"\xff")
            await eventually(lambda: told == [(b"news.%d" % number, b"\xff") for number in range(3)])
            fresh_server.call("CLIENT", "KILL", "TYPE", "pubsub")
            await eventually(lambda: events.counts.reconnects)
            assert fresh_server.call("PUBLISH", "news.again", "") == 1
            await eventually(lambda: told[-1] == (b"news.again", b""))
        fresh_server.call("PUBLISH", "news.late", "")
        assert await kizuna.store.call("PING") == b"PONG"
        assert told[-1] == (b"news.again", b"")


async def test_a_tap_on_messages_that_we_may_not_hear_is_refused_at_the_door(notifying: MakeServer) -> None:
    rights = "on >secret ~* resetchannels &__keyspace@0__:t-faults:canary:* +@all"
    server = notifying("AKE", app=rights)
    async with connect(as_app(server)) as kizuna:
        with pytest.raises(PermissionDenied):
            async with kizuna.store.events.tap_messages("news.*", lambda *_: None):
                pass


async def test_one_server_that_is_heard_again_does_not_hide_that_another_is_not(server: ServerProcess) -> None:
    """As on a cluster, where each primary announces its own keys."""
    told = Told()
    async with connect(quick(server.url)) as kizuna, told.tap(kizuna.store, "a*"):
        [subscription] = kizuna.store.events._subscriptions
        [tap] = subscription.sinks
        tap.fail("one flags", NotificationsOff("off", "one", "switch it on"))
        tap.look_again("listening at another began anew")
        assert [error.server for error in told.troubles if isinstance(error, NotificationsOff)] == ["one", "one"]

        tap.recover("one flags")
        tap.look_again("one had not announced changes for a while")
        assert len(told.troubles) == 2
        assert len(told.look_agains) == 2


async def test_a_tap_hears_no_more_when_the_store_is_closed(server: ServerProcess) -> None:
    told = Told()
    kizuna = await connect(quick(server.url))
    async with told.tap(kizuna.store, "a*"):
        await kizuna.aclose()
        assert told.closed == 1
    assert told.troubles == []


# -- rights -----------------------------------------------------------------------------------------------


async def test_a_channel_that_we_may_not_hear_is_refused_at_the_door(notifying: MakeServer) -> None:
    rights = "on >secret ~* resetchannels &__keyspace@0__:t-faults:canary:* &news +@all"
    server = notifying("AKE", app=rights)
    async with connect(as_app(server)) as kizuna:
        with pytest.raises(PermissionDenied, match="grant it to this ACL user"):
            async with kizuna.store.events.watch("secrets:*"):
                pass
        async with kizuna.store.events.listen("news") as news:
            server.call("PUBLISH", "news", "x")
            assert await news.next(timeout_s=5) == Message("news", b"x")


async def test_rights_to_a_key_suffice_to_watch_that_key(notifying: MakeServer) -> None:
    rights = "on >secret ~t-faults:canary:* ~a* resetchannels &__keyspace@0__:* +@all"
    server = notifying("AKE", app=rights)
    async with connect(as_app(server)) as kizuna, kizuna.store.events.watch("a1") as feed:
        await kizuna.store.call("SET", "a1", "")
        assert await feed.next(timeout_s=5) == Change("a1", "set")


async def test_rights_that_were_taken_away_fail_those_who_read(notifying: MakeServer) -> None:
    server = notifying("AKE", app="on >secret ~* &* +@all")
    async with connect(as_app(server)) as kizuna, kizuna.store.events.watch("a*") as feed:
        # The server cuts off who listens to what is no longer allowed.
        server.call("ACL", "SETUSER", "app", "resetchannels", "&__keyspace@0__:t-faults:canary:*")

        with pytest.raises(PermissionDenied):
            await feed.next(timeout_s=5)


async def test_a_password_that_no_longer_fits_is_not_tried_again_and_again(notifying: MakeServer) -> None:
    server = notifying("AKE", app="on >secret ~* &* +@all")
    async with connect(as_app(server)) as kizuna, kizuna.store.events.watch("a*") as feed:
        server.call("ACL", "SETUSER", "app", "resetpass", ">another")
        server.call("CLIENT", "KILL", "TYPE", "pubsub")

        with pytest.raises(SignInRefused):
            await feed.next(timeout_s=5)
        refused = _refused_sign_ins(server)
        assert refused >= 1
        for listener in kizuna.store.events._listeners.values():
            await listener.prove()
        assert _refused_sign_ins(server) == refused


async def _first_change(store: Store, pattern: str, *, kinds: tuple[str, ...] = ("set",)) -> object:
    async with store.events.watch(pattern, kinds=kinds) as feed:
        return await feed.next(timeout_s=5)


def _flags(server: ServerProcess) -> set[str]:
    return set(server.call("CONFIG", "GET", "notify-keyspace-events")[1].decode())


def _refused_sign_ins(server: ServerProcess) -> int:
    return int(server.info("stats").get("acl_access_denied_auth", 0))
