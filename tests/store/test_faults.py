"""Each thing that can be wrong with a server, a user or a network, and the sentence that says so."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kizuna.app import connect
from kizuna.errors import (
    NotPrimary,
    NotSent,
    OutcomeUnknown,
    OutOfMemory,
    PermissionDenied,
    Refused,
    SignInRefused,
    StorageFull,
    Unreachable,
    UnsafeServer,
)
from kizuna.settings import Settings, StoreSettings
from kizuna.store.client import Store
from kizuna.testing import ChaosProxy, ServerProcess, eventually
from kizuna.testing.servers import free_port

MakeProxy = Callable[..., Awaitable[ChaosProxy]]
PASSWORD = "correct-horse"


def at(url: str, **options: Any) -> Settings:
    return Settings(store=StoreSettings(url=url, **options))


@asynccontextmanager
async def store_at(url: str, **options: Any) -> AsyncIterator[Store]:
    async with connect(at(url, **options)) as k:
        yield k.store


async def refusal_of(url: str, **options: Any) -> Exception:
    """Why no connection is made."""
    with pytest.raises(Exception) as refused:  # noqa: PT011 - the caller looks at it
        async with connect(at(url, **{"timeout_s": 2, **options})):
            pass
    return refused.value


@pytest.fixture(scope="module")
def guarded() -> Iterator[ServerProcess]:
    users = {
        "app": f"on >{PASSWORD} ~mine:* &* +@all -config -rpush",
        "silent": f"on >{PASSWORD} ~* &* -@all +info",
    }
    with ServerProcess(password=PASSWORD, users=users) as server:
        yield server


# -- signing in -------------------------------------------------------------------------------------------------

_SIGN_IN = "set store.username and store.password (or store.password_file)"
_WRONGPASS = "WRONGPASS invalid username-password pair or user is disabled."


@pytest.mark.parametrize(
    "options",
    [
        {"password": "wrong"},
        {"username": "app", "password": "wrong"},
        {"username": "nobody", "password": PASSWORD},
        {"username": "app"},
    ],
)
async def test_a_wrong_user_or_password_is_refused_at_once(guarded: ServerProcess, options: dict[str, str]) -> None:
    began = time.monotonic()
    error = await refusal_of(guarded.url, timeout_s=20, **options)

    assert type(error) is SignInRefused
    assert error.outcome == "not sent"
    assert str(error) == f"{_WRONGPASS} at {guarded.address} (not sent); {_SIGN_IN}"
    assert PASSWORD not in repr(error)
    assert time.monotonic() - began < 20


async def test_a_missing_password_is_refused(guarded: ServerProcess) -> None:
    error = await refusal_of(guarded.url)

    assert type(error) is SignInRefused
    assert str(error).startswith("NOAUTH ")
    assert str(error).endswith(f" at {guarded.address} (not sent); {_SIGN_IN}")


@pytest.mark.parametrize("place", ["url", "settings", "file"])
async def test_user_and_password_are_taken_from_wherever_they_stand(
    guarded: ServerProcess, tmp_path: Path, place: str
) -> None:
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    options: dict[str, Any] = {
        "url": {"url": f"redis://app:{PASSWORD}@{guarded.address}"},
        "settings": {"url": guarded.url, "username": "app", "password": PASSWORD},
        "file": {"url": guarded.url, "username": "app", "password_file": str(secret)},
    }[place]
    from kizuna.settings import load_settings

    async with connect(load_settings({"store": options}, environ={}, cwd=tmp_path)) as k:
        assert await k.store.call("ACL", "WHOAMI") == b"app"


async def test_a_database_that_is_not_there_is_refused(server: ServerProcess) -> None:
    error = await refusal_of(f"redis://{server.address}/999")

    assert type(error) is SignInRefused
    assert str(error) == (
        f"ERR DB index is out of range at {server.address} (not sent); "
        "check the database number in store.url (CONFIG GET databases)"
    )


# -- permission --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("GET", "theirs:1"), "NOPERM No permissions to access a key"),
        (("CONFIG", "GET", "save"), "NOPERM User app has no permissions to run the 'config|get' command"),
        (("EVAL", "return redis.call('GET', 'theirs:1')", 0), "ACL failure in script: No permissions to access a key"),
        (("EVAL", "redis.call('RPUSH', 'mine:l', 'x')", 0), "ACL failure in script: User app has no permissions"),
    ],
)
async def test_what_the_user_may_not_do_is_denied(guarded: ServerProcess, command: Any, what: str) -> None:
    async with store_at(guarded.url, username="app", password=PASSWORD) as store:
        with pytest.raises(PermissionDenied) as denied:
            await store.call(*command)

        assert denied.value.outcome == "refused"
        assert what in str(denied.value)
        assert str(denied.value).endswith(
            f" at {guarded.address} (refused); grant it to this ACL user (ACL SETUSER), or sign in as another"
        )
        assert await store.call("SET", "mine:1", "x", "PX", 1000) == b"OK"


# -- a server in trouble -----------------------------------------------------------------------------------------


async def test_a_full_server_refuses_writes_and_still_reads(fresh_server: ServerProcess) -> None:
    async with store_at(fresh_server.url) as store:
        await store.call("SET", "here", "before")
        fresh_server.call("CONFIG", "SET", "maxmemory", 1)

        with pytest.raises(OutOfMemory) as full:
            await store.call("SET", "more", "x")
        assert full.value.outcome == "refused"
        assert str(full.value) == (
            f"OOM command not allowed when used memory > 'maxmemory'. at {fresh_server.address} (refused); "
            "free memory, raise maxmemory (CONFIG SET maxmemory 4gb), or let data end sooner"
        )
        with pytest.raises(OutOfMemory):
            await store.call("EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, "more")
        assert await store.get("here") == b"before"
        assert await store.call("DEL", "here") == 1


async def test_a_server_that_cannot_save_refuses_writes_and_still_reads(tmp_path: Path) -> None:
    config = {"save": "3600 1", "stop-writes-on-bgsave-error": "yes", "enable-protected-configs": "yes"}
    with ServerProcess(config=config) as server:
        async with store_at(server.url) as store:
            await store.call("SET", "here", "before")
            gone = tmp_path / "gone"
            gone.mkdir()
            server.call("CONFIG", "SET", "dir", str(gone))
            # Nobody, not even root, can write to a folder that is no more.
            gone.rmdir()
            await store.call("BGSAVE")
            await eventually(lambda: server.info("persistence")["rdb_last_bgsave_status"] == "err")

            with pytest.raises(StorageFull) as full:
                await store.call("SET", "more", "x")
            assert full.value.outcome == "refused"
            assert str(full.value).startswith("MISCONF ")
            assert str(full.value).endswith(
                "(refused); make room on the server's disk; it takes writes again by itself"
            )
            assert await store.get("here") == b"before"


async def test_a_replica_refuses_writes_and_nobody_else_suffers(fresh_server: ServerProcess) -> None:
    with ServerProcess(config={"replicaof": f"{fresh_server.host} {fresh_server.port}"}) as replica:
        await eventually(lambda: replica.info("replication")["master_link_status"] == "up")
        async with store_at(replica.url, reconnect_longest_s=0.1) as store:
            reads = 0

            async def read_on() -> None:
                nonlocal reads
                while True:
                    assert await store.call("GET", "nothing") is None
                    reads += 1

            reading = asyncio.create_task(read_on())
            refused = await eventually(lambda: refusal_of_a_write(store))
            assert reads > 0

            assert refused is not None
            assert refused.outcome == "refused"
            assert str(refused) == (
                f"READONLY You can't write against a read only replica. at {replica.address} (refused); "
                "this server is a replica: point store.url at the primary, or at the Sentinels"
            )
            await eventually(lambda: reads > 10 or reading.done())
            assert not reading.done()
            reading.cancel()


async def refusal_of_a_write(store: Store) -> NotPrimary | None:
    """None if the last of its tries was held up beyond its time: what became of that one is then all that is known."""
    try:
        await store.call("SET", "a", "b", timeout_s=2)
    except NotPrimary as refused:
        return refused
    except (NotSent, OutcomeUnknown):
        return None
    raise AssertionError("a replica has taken a write")


async def test_a_server_that_is_promoted_meanwhile_takes_the_write(fresh_server: ServerProcess) -> None:
    with ServerProcess(config={"replicaof": f"{fresh_server.host} {fresh_server.port}"}) as replica:
        async with store_at(replica.url) as store:
            writing = store.call("INCR", "count")
            await eventually(lambda: int(replica.info("stats")["total_error_replies"]) > 0)
            replica.call("REPLICAOF", "NO", "ONE")

            assert await writing == 1


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_a_server_that_throws_keys_away_is_refused(policy: str) -> None:
    with ServerProcess(config={"maxmemory-policy": policy}) as server:
        error = await refusal_of(server.url)

        assert type(error) is UnsafeServer
        assert str(error).endswith(f"at {server.address}; run there: CONFIG SET maxmemory-policy noeviction")


# -- no server ---------------------------------------------------------------------------------------------------


async def test_nobody_at_the_port() -> None:
    port = free_port()
    for host in ("127.0.0.1", "localhost"):  # the second has two addresses on many machines
        error = await refusal_of(f"redis://{host}:{port}")

        assert type(error) is Unreachable
        assert error.outcome == "not sent"
        assert str(error) == (
            f"no connection (Connection refused) at {host}:{port} (not sent); "
            "is the server running there? `kizuna server start` runs the embedded one"
        )


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("no-such-host.invalid", "the host name is not known"),
        ("a" * 70, "this cannot be the name of a host"),
    ],
)
async def test_a_host_that_is_not_known(host: str, what: str) -> None:
    error = await refusal_of(f"redis://{host}:1", connect_timeout_s=0.4)

    assert type(error) is Unreachable
    # A resolver that cannot be asked either may take longer to say so than we wait.
    assert str(error) == f"{what} at {host}:1 (not sent); check store.url" or "no connection" in str(error)


async def test_no_socket_at_the_path(tmp_path: Path) -> None:
    path = tmp_path / "no.sock"
    error = await refusal_of(f"unix://{path}")

    assert type(error) is Unreachable
    assert str(error) == (
        f"no connection (No such file or directory) at {path} (not sent); "
        "there is no such socket; is the server running?"
    )


async def test_something_else_at_the_port() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as web:
        error = await refusal_of(f"redis://127.0.0.1:{web.sockets[0].getsockname()[1]}")

    assert type(error) is Unreachable
    assert "what is not RESP" in str(error)
    assert str(error).endswith("is it Redis or Valkey at this port, and does it want TLS? then use rediss://")


async def test_protected_mode_lets_no_stranger_in() -> None:
    address = _other_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with ServerProcess(config={"bind": f"127.0.0.1 {address}", "protected-mode": "yes"}) as server:
        error = await refusal_of(f"redis://{address}:{server.port}")

        assert type(error) is SignInRefused
        assert "in protected mode" in str(error)
        assert str(error).endswith("(not sent); set a password there, or bind it to this host")


def _other_address() -> str | None:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; only asks which way it would take
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


# -- partition ---------------------------------------------------------------------------------------------------


async def test_a_partition_surfaces_within_the_promise_and_heals(proxy: MakeProxy, scratch: str) -> None:
    through = await proxy()
    async with store_at(through.url, timeout_s=2, connect_timeout_s=2) as store:
        await store.call("SET", f"{scratch}k", "before")
        through.stall()

        began = time.monotonic()
        replies = await asyncio.gather(
            store.call("SET", f"{scratch}k", "during"),
            store.get(f"{scratch}k"),
            store.call("GET", f"{scratch}k", timeout_s=0.2),
            return_exceptions=True,
        )
        assert all(isinstance(reply, OutcomeUnknown) for reply in replies)
        assert time.monotonic() - began < 3.5

        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(Unreachable) as unreachable:
                await store.call("PING")
            assert unreachable.value.outcome == "not sent"
            assert through.address in str(unreachable.value)
            assert time.monotonic() - began < 3.5

        through.resume()
        assert await store.call("PING", timeout_s=20) == b"PONG"


async def test_a_partition_while_connecting_surfaces_too(proxy: MakeProxy) -> None:
    through = await proxy()
    through.stall()
    began = time.monotonic()
    error = await refusal_of(through.url, connect_timeout_s=0.2)

    assert type(error) is Unreachable
    assert str(error) == (
        f"no connection within 0.2s at {through.address} (not sent); "
        "is the address right, and does the network let us through?"
    )
    assert time.monotonic() - began < 3.5


# -- urls --------------------------------------------------------------------------------------------------------


async def test_a_unix_socket_and_a_database_number() -> None:
    with ServerProcess(unix_socket=True) as server:
        async with store_at(f"unix://{server.socket_path}?db=3") as store:
            await store.call("SET", "a", "b")
            assert await store.get("a") == b"b"
            assert b"db=3" in await store.call("CLIENT", "INFO")
            assert b"name=kizuna:%d " % os.getpid() in await store.call("CLIENT", "INFO")
        assert server.call("GET", "a") is None
        async with store_at(f"redis://{server.address}/3") as store:
            assert await store.get("a") == b"b"


async def test_several_connections_share_the_work_and_keep_the_order_of_a_key(
    server: ServerProcess, scratch: str
) -> None:
    async with store_at(server.url, connections=4, client_name=scratch) as store:
        calls = [store.call("RPUSH", f"{scratch}{number % 20}", number) for number in range(1000)]
        await asyncio.gather(*calls)

        for key in range(20):
            items = await store.call("LRANGE", f"{scratch}{key}", 0, -1)
            assert [int(item) for item in items] == list(range(key, 1000, 20))
        clients = (await store.call("CLIENT", "LIST")).decode()
        assert clients.count(f"name={scratch}") == 4
        assert await store.call_each_primary("PING") == {server.address: b"PONG"}


async def test_a_refused_command_is_only_its_callers_trouble(server: ServerProcess) -> None:
    async with store_at(server.url) as store:
        with pytest.raises(Refused, match="unknown command"):
            await store.call("NONSENSE")
        with pytest.raises(Refused, match="wrong number of arguments"):
            await store.call("EVAL", "return 1")
        assert await store.call("PING") == b"PONG"
