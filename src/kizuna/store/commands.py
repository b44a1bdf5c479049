"""What can be told from a command alone: which keys it touches, and whether a shared connection may carry it."""

from __future__ import annotations

from kizuna.errors import Refused
from kizuna.store.wire import Argument, Command

_BLOCKING = "would make everybody on this connection wait; use a connection of its own (k.redis())"
_CHANGES = "changes the connection that everybody shares; use a connection of its own (k.redis())"
_LISTENS = "turns the shared connection into a listener; use store.events"

_NOT_SHARED: dict[str, str] = {
    **dict.fromkeys(("BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP"), _BLOCKING),
    **dict.fromkeys(("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"), _CHANGES),
    **dict.fromkeys(("SELECT", "AUTH", "HELLO", "RESET", "QUIT", "ASKING", "READONLY", "READWRITE"), _CHANGES),
    **dict.fromkeys(("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"), _LISTENS),
    **dict.fromkeys(("MONITOR", "SYNC", "PSYNC"), _LISTENS),
}  # fmt: skip

# fmt: off
_NO_KEYS = frozenset({
    "PING", "ECHO", "TIME", "INFO", "CONFIG", "COMMAND", "CLIENT", "SCRIPT", "FUNCTION", "ACL", "CLUSTER", "SENTINEL",
    "DBSIZE", "SCAN", "KEYS", "FLUSHDB", "FLUSHALL", "PUBLISH", "PUBSUB", "LATENCY", "SLOWLOG", "MODULE", "ROLE",
    "LASTSAVE", "SAVE", "BGSAVE", "BGREWRITEAOF", "WAIT", "WAITAOF", "SHUTDOWN", "DEBUG", "REPLICAOF", "FAILOVER",
    "RANDOMKEY", "SWAPDB", "LOLWUT",
})
_ALL_KEYS = frozenset({
    "DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "SINTER", "SUNION", "SDIFF", "PFCOUNT", "PFMERGE",
    "SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE",
})
_TWO_KEYS = frozenset({
    "RENAME", "RENAMENX", "COPY", "LMOVE", "RPOPLPUSH", "SMOVE", "ZRANGESTORE", "GEOSEARCHSTORE",
})
_COUNTED = frozenset({"ZUNION", "ZINTER", "ZDIFF", "SINTERCARD", "ZINTERCARD", "LMPOP", "ZMPOP"})
_SCRIPTS = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_COUNTED_INTO = frozenset({"ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"})
_SUBCOMMAND_FIRST = frozenset({"OBJECT", "MEMORY", "XINFO", "XGROUP"})
# fmt: on


def keys_of(command: Command) -> list[bytes]:
    """The keys that a command touches, as far as that matters for order and place; most have just the first."""
    return [key if type(key) is bytes else str(key).encode() for key in _key_arguments(command)]


def _key_arguments(command: Command) -> Command:
    name = str(command[0]).upper()
    if name in _SCRIPTS:
        return command[3 : 3 + int(command[2])]
    if name in _NO_KEYS or len(command) < 2:
        return ()
    if name in _ALL_KEYS:
        return command[1:]
    if name in _TWO_KEYS:
        return command[1:3]
    if name in ("MSET", "MSETNX"):
        return command[1::2]
    if name in _COUNTED:
        return command[2 : 2 + int(command[1])]
    if name in _COUNTED_INTO:
        return (command[1], *command[3 : 3 + int(command[2])])
    if name in _SUBCOMMAND_FIRST:
        return command[2:3]
    if name in ("XREAD", "XREADGROUP"):
        return _streams(command)
    return command[1:2]


def check_shared(command: Command) -> None:
    """Refuse what would harm the others on a shared connection, with a sentence that says what to use instead."""
    name = str(command[0]).upper()
    problem = _NOT_SHARED.get(name)
    if problem is None and name in ("XREAD", "XREADGROUP") and b"BLOCK" in map(_upper, command):
        problem = _BLOCKING
    if problem is None and name == "CLIENT" and len(command) > 1 and _upper(command[1]) in (b"REPLY", b"TRACKING"):
        problem = _CHANGES
    if problem is not None:
        raise Refused(f"{name} {problem}", "this process", "nothing was sent")


def _streams(command: Command) -> Command:
    words = [_upper(word) for word in command]
    if b"STREAMS" not in words:
        return ()
    named = command[words.index(b"STREAMS") + 1 :]
    return named[: len(named) // 2]


def _upper(word: Argument) -> bytes:
    return (word if isinstance(word, bytes) else str(word).encode()).upper()
