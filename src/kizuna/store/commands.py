"""What can be told from a command alone: which keys it touches, and whether a shared connection may carry it."""

from __future__ import annotations

from functools import lru_cache

from kizuna.errors import Refused
from kizuna.store.wire import Argument, Command

_BLOCKING = "would make everybody on this connection wait; use a connection of its own (k.redis())"
_CHANGES = "changes the connection that everybody shares; use a connection of its own (k.redis())"
_LISTENS = "turns the shared connection into a listener; use store.events"

_NOT_SHARED: dict[str, str] = {
    **dict.fromkeys(("BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP"), _BLOCKING),
    **dict.fromkeys(("WAIT", "WAITAOF"), _BLOCKING),
    **dict.fromkeys(("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"), _CHANGES),
    **dict.fromkeys(("SELECT", "AUTH", "HELLO", "RESET", "QUIT", "ASKING", "READONLY", "READWRITE"), _CHANGES),
    **dict.fromkeys(("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"), _LISTENS),
    **dict.fromkeys(("MONITOR", "SYNC", "PSYNC"), _LISTENS),
}  # fmt: skip
_CHANGING_CLIENT = frozenset(
    {b"REPLY", b"TRACKING", b"CACHING", b"SETNAME", b"SETINFO", b"NO-EVICT", b"NO-TOUCH", b"CAPA", b"IMPORT-SOURCE"}
)

# fmt: off
_NO_KEYS = frozenset({
    "PING", "ECHO", "TIME", "INFO", "CONFIG", "COMMAND", "CLIENT", "SCRIPT", "FUNCTION", "ACL", "CLUSTER", "SENTINEL",
    "DBSIZE", "SCAN", "KEYS", "FLUSHDB", "FLUSHALL", "PUBLISH", "PUBSUB", "LATENCY", "SLOWLOG", "MODULE", "ROLE",
    "LASTSAVE", "SAVE", "BGSAVE", "BGREWRITEAOF", "SHUTDOWN", "DEBUG", "REPLICAOF", "SLAVEOF", "FAILOVER",
    "RANDOMKEY", "SWAPDB", "LOLWUT", "COMMANDLOG",
})
_ALL_KEYS = frozenset({
    "DEL", "UNLINK", "EXISTS", "TOUCH", "MGET", "SINTER", "SUNION", "SDIFF", "PFCOUNT", "PFMERGE",
    "SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE",
})
_TWO_KEYS = frozenset({
    "RENAME", "RENAMENX", "COPY", "LCS", "LMOVE", "RPOPLPUSH", "SMOVE", "ZRANGESTORE", "GEOSEARCHSTORE",
})
_COUNTED = frozenset({"ZUNION", "ZINTER", "ZDIFF", "SINTERCARD", "ZINTERCARD", "LMPOP", "ZMPOP"})
_SCRIPTS = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_COUNTED_INTO = frozenset({"ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"})
_SUBCOMMAND_FIRST = frozenset({"OBJECT", "MEMORY", "XINFO", "XGROUP"})
_MAY_STORE = frozenset({"SORT", "GEORADIUS", "GEORADIUSBYMEMBER"})
_SHARED_MOSTLY = frozenset({"CLIENT", "XREAD", "XREADGROUP"})
# fmt: on

# What we send most, as we write it: known to be fit for a shared connection without looking closer.
HARMLESS = frozenset({"GET", "SET", "DEL", "MGET", "EVALSHA", "EVAL", "PUBLISH", "HGET", "HSET", "ZADD", "XADD"})


def keys_of(command: Command) -> list[bytes]:
    """The keys that a command touches, as far as that matters for order and place; most have just the first.

    None of a command that is not complete: the server will say so.
    """
    try:
        return [key if type(key) is bytes else str(key).encode() for key in _key_arguments(command)]
    except (ValueError, IndexError):
        return []


def _key_arguments(command: Command) -> Command:
    name = _name(command[0])
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
    if name == "BITOP":
        return command[2:]
    if name in _MAY_STORE:
        return command[1:2] + _after(command, b"STORE") + _after(command, b"STOREDIST")
    if name in ("XREAD", "XREADGROUP"):
        named = command[_streams_at(command) + 1 :]
        return named[: len(named) // 2]
    return command[1:2]


def check_shared(command: Command) -> None:
    """Refuse what would harm the others on a shared connection, with a sentence that says what to use instead."""
    name = _name(command[0])
    problem = _NOT_SHARED.get(name)
    if problem is None and name in _SHARED_MOSTLY:
        problem = _problem_with(name, command)
    if problem is not None:
        raise Refused(f"{name} {problem}", "this process", "nothing was sent")


def _problem_with(name: str, command: Command) -> str | None:
    if name == "CLIENT":
        return _CHANGES if len(command) > 1 and _upper(command[1]) in _CHANGING_CLIENT else None
    # A stream may be called BLOCK: only what stands before STREAMS is an option.
    options = command[: _streams_at(command)]
    return _BLOCKING if b"BLOCK" in map(_upper, options) else None


def _streams_at(command: Command) -> int:
    return next((at for at, word in enumerate(command) if _upper(word) == b"STREAMS"), len(command))


def _after(command: Command, option: bytes) -> Command:
    """The argument behind an option, if it is there."""
    at = next((at for at, word in enumerate(command) if at > 1 and _upper(word) == option), len(command))
    return command[at + 1 : at + 2]


# Every command passes here, and there are not many names.
@lru_cache(maxsize=1024)
def _name(word: Argument) -> str:
    return (word.decode(errors="replace") if isinstance(word, bytes) else str(word)).upper()


def _upper(word: Argument) -> bytes:
    return (word if isinstance(word, bytes) else str(word).encode()).upper()
