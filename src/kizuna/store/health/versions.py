"""Which server it is, as INFO tells, and whether it is new enough. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

OLDEST = "Redis 6.2, Valkey 7.2"
_OLDEST_REDIS = (6, 2)
_OLDEST_VALKEY = (7, 2)


def is_valkey(info: Mapping[str, str]) -> bool:
    return "valkey_version" in info


def numbers(info: Mapping[str, str]) -> tuple[int, ...]:
    """(9, 1, 2) for 9.1.2; Valkey's own version, not that of the Redis it is compatible with."""
    text = info.get("valkey_version") or info.get("redis_version", "")
    return tuple(int(part) for part in re.findall(r"\d+", text.split("-")[0]))


def version_of(info: Mapping[str, str]) -> str:
    """`Valkey 9.1.2` or `Redis 7.0.15`."""
    if is_valkey(info):
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of an unknown version')}"


def is_too_old(info: Mapping[str, str]) -> bool:
    """A server that tells no version is not called old."""
    found = numbers(info)
    return bool(found) and found[:2] < (_OLDEST_VALKEY if is_valkey(info) else _OLDEST_REDIS)
