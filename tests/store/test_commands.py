"""What a shared connection refuses, and which keys a command has, by the server's own word."""

from __future__ import annotations

import pytest

from kizuna.errors import Refused
from kizuna.store.client import Store
from kizuna.store.commands import check_shared, keys_of
from kizuna.store.wire import Command
from kizuna.testing import ServerProcess

REFUSED: dict[str, list[Command]] = {
    "would make everybody on this connection wait; use a connection of its own (k.redis())": [
        ("BLPOP", "a", 0),
        ("brpop", "a", 0),
        (b"BLPOP", "a", 0),
        ("BLMOVE", "a", "b", "LEFT", "LEFT", 0),
        ("BZPOPMIN", "a", 0),
        ("XREAD", "BLOCK", 0, "STREAMS", "a", "$"),
        ("XREAD", "COUNT", 1, b"block", 0, "STREAMS", "a", "$"),
        ("XREADGROUP", "GROUP", "g", "me", "BLOCK", 0, "STREAMS", "a", ">"),
        ("WAIT", 1, 0),
        ("WAITAOF", 1, 0, 0),
    ],
    "changes the connection that everybody shares; use a connection of its own (k.redis())": [
        ("MULTI",),
        ("EXEC",),
        ("WATCH", "a"),
        ("SELECT", 1),
        ("AUTH", "secret"),
        ("HELLO", 2),
        ("RESET",),
        ("QUIT",),
        ("ASKING",),
        ("READONLY",),
        ("CLIENT", "REPLY", "OFF"),
        ("CLIENT", b"tracking", "ON"),
        ("client", "SETNAME", "me"),
        ("CLIENT", "NO-TOUCH", "ON"),
    ],
    "turns the shared connection into a listener; use store.events": [
        ("SUBSCRIBE", "a"),
        ("PSUBSCRIBE", "a*"),
        ("SSUBSCRIBE", "a"),
        ("MONITOR",),
        ("SYNC",),
    ],
}


@pytest.mark.parametrize(
    ("command", "sentence"), [(command, sentence) for sentence, commands in REFUSED.items() for command in commands]
)
async def test_what_would_harm_the_others_is_refused_before_it_is_sent(
    store: Store, command: Command, sentence: str
) -> None:
    with pytest.raises(Refused) as refused:
        await store.call(*command)

    word = command[0]
    name = (word.decode() if isinstance(word, bytes) else str(word)).upper()
    assert str(refused.value) == f"{name} {sentence} at this process (refused); nothing was sent"
    assert await store.call("PING") == b"PONG"


@pytest.mark.parametrize(
    "command",
    [
        ("XREAD", "STREAMS", "block", "0"),
        ("XREAD", "COUNT", "1", "STREAMS", "BLOCK", "0"),
        ("CLIENT", "ID"),
        ("CLIENT",),
        ("GET", "blpop"),
    ],
)
def test_what_harms_nobody_is_not_refused(command: Command) -> None:
    check_shared(command)


@pytest.mark.parametrize(
    "command",
    [
        ("GET", "a"),
        ("SET", "a", "1", "EX", "10"),
        (b"set", b"a", b"1"),
        ("DEL", "a", "b", "c"),
        ("UNLINK", "a", "b"),
        ("EXISTS", "a", "b"),
        ("TOUCH", "a", "b"),
        ("MGET", "a", "b", "c"),
        ("MSET", "a", "1", "b", "2"),
        ("MSETNX", "a", "1", "b", "2"),
        ("HSET", "a", "f", "v"),
        ("EXPIRE", "a", "10"),
        ("LMPOP", "2", "a", "b", "LEFT"),
        ("ZMPOP", "2", "a", "b", "MIN"),
        ("LMOVE", "a", "b", "LEFT", "RIGHT"),
        ("RPOPLPUSH", "a", "b"),
        ("SMOVE", "a", "b", "m"),
        ("RENAME", "a", "b"),
        ("COPY", "a", "b"),
        ("LCS", "a", "b"),
        ("SINTER", "a", "b"),
        ("SINTERCARD", "2", "a", "b", "LIMIT", "1"),
        ("SUNIONSTORE", "a", "b", "c"),
        ("SDIFFSTORE", "a", "b"),
        ("ZUNIONSTORE", "a", "2", "b", "c", "WEIGHTS", "1", "2"),
        ("ZINTERSTORE", "a", "1", "b"),
        ("ZDIFFSTORE", "a", "2", "b", "c"),
        ("ZUNION", "2", "a", "b", "WITHSCORES"),
        ("ZINTERCARD", "2", "a", "b"),
        ("ZRANGESTORE", "a", "b", "0", "-1"),
        ("ZADD", "a", "1", "m"),
        ("PFCOUNT", "a", "b"),
        ("PFMERGE", "a", "b", "c"),
        ("BITOP", "AND", "a", "b", "c"),
        ("BITCOUNT", "a"),
        ("GEOSEARCHSTORE", "a", "b", "FROMLONLAT", "1", "1", "BYRADIUS", "1", "km"),
        ("GEORADIUS", "a", "1", "1", "1", "km", "STORE", "b"),
        ("SORT", "a", "BY", "nosort", "STORE", "b"),
        ("SORT", "a"),
        ("XADD", "a", "*", "f", "v"),
        ("XREAD", "COUNT", "1", "STREAMS", "a", "b", "0", "0"),
        ("XREADGROUP", "GROUP", "g", "me", "STREAMS", "a", ">"),
        ("XGROUP", "CREATE", "a", "g", "$"),
        ("XINFO", "STREAM", "a"),
        ("XACK", "a", "g", "1-1"),
        ("XAUTOCLAIM", "a", "g", "me", "0", "0"),
        ("OBJECT", "ENCODING", "a"),
        ("MEMORY", "USAGE", "a"),
        ("EVAL", "return 1", "2", "a", "b", "argument"),
        ("EVALSHA", "0" * 40, "1", "a"),
        ("EVAL", "return 1", "0", "argument"),
        ("FCALL", "f", "1", "a", "argument"),
        ("DUMP", "a"),
        ("RESTORE", "a", "0", "x"),
        ("TYPE", "a"),
        ("SPUBLISH", "a", "message"),
    ],
    ids=lambda command: " ".join(map(str, command[:3])),
)
def test_keys_are_those_that_the_server_sees(server: ServerProcess, command: Command) -> None:
    assert sorted(keys_of(command)) == sorted(seen_by(server, command))


def seen_by(server: ServerProcess, command: Command) -> list[bytes]:
    if command[0] == "SPUBLISH":  # a channel is no key; but it has a slot
        return [b"a"]
    try:
        return list(server.call("COMMAND", "GETKEYS", *command))
    except Refused as refused:
        if "has no key arguments" not in refused.what:
            raise
        return []


@pytest.mark.parametrize(
    "command",
    [
        ("PING",),
        ("ECHO", "a"),
        ("PUBLISH", "channel", "message"),
        ("INFO", "memory"),
        ("SCRIPT", "FLUSH"),
        ("CONFIG", "GET", "*"),
        ("CLUSTER", "INFO"),
        ("SCAN", "0"),
        ("FLUSHALL",),
        ("MEMORY", "STATS"),
        # Not complete: the server says what is wrong with it.
        ("GET",),
        ("EVAL",),
        ("EVAL", "return 1"),
        ("EVAL", "return 1", "many"),
        ("ZUNION", "x"),
        ("XREAD", "a"),
        ("XREAD", "STREAMS"),
        ("BITOP", "AND"),
    ],
)
def test_no_keys_where_there_are_none(command: Command) -> None:
    assert keys_of(command) == []
