"""Ids of tickets and backfills: 20 characters that sort by the second they were made in, and are never made twice.

    4 bytes seconds | 3 bytes machine | 2 bytes process | 3 bytes count        in base32, digits before letters

So minimatch and Open Match make them, too.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import time
from base64 import b32hexdecode, b32hexencode
from collections.abc import Callable

is_xid = re.compile(r"[0-9a-v]{19}[0g]").fullmatch
_COUNTS = 1 << 24
_OLD_S = 60.0
_PAIRS = ["".join(pair) for pair in itertools.product("0123456789abcdefghijklmnopqrstuv", repeat=2)]


class XidMaker:
    """Of one process; threads may share it."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._counts = itertools.count(secrets.randbelow(_COUNTS))
        self._pid = -1
        self._machine_and_pid = b""
        # The first 14 characters change with the second only; the last two bits of the process stand behind them.
        self._head = (-1, -1, "", 0)

    def make(self) -> str:
        second, pid = int(self._now_s()), os.getpid()
        head = self._head
        if head[0] != second or head[1] != pid:
            head = self._head = self._make_head(second, pid)
        tail = head[3] | (next(self._counts) % _COUNTS) << 4
        return head[2] + _PAIRS[tail >> 20] + _PAIRS[tail >> 10 & 1023] + _PAIRS[tail & 1023]

    def _make_head(self, second: int, pid: int) -> tuple[int, int, str, int]:
        if self._pid != pid:
            # After a fork the child counts on from the same number: another machine keeps the two apart.
            self._pid, self._machine_and_pid = pid, secrets.token_bytes(3) + (pid & 0xFFFF).to_bytes(2, "big")
        raw = (second & 0xFFFFFFFF).to_bytes(4, "big") + self._machine_and_pid
        return second, pid, b32hexencode(raw)[:14].decode().lower(), (pid & 3) << 28


make_xid = XidMaker().make


def made_at(xid: str) -> float | None:
    """When an id was made, in whole seconds since the epoch; None for an id of another kind."""
    if not is_xid(xid):
        return None
    return float(int.from_bytes(b32hexdecode(xid.upper() + "====")[:4], "big"))


def is_old(xid: str) -> bool:
    """So that nobody can be about to write its ticket, by any clock; of other ids, nobody can say."""
    made = made_at(xid)
    return made is not None and made < time.time() - _OLD_S


def xid_at(seconds: float) -> str:
    """How ids begin that were made in this second: to sort others among them."""
    return b32hexencode((int(seconds) & 0xFFFFFFFF).to_bytes(4, "big"))[:7].decode().lower()
