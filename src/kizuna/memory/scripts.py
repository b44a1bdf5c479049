"""The Lua scripts of memory: each knows the names of all key families below its root."""

from __future__ import annotations

from kizuna.memory import keys
from kizuna.store.keys import Key
from kizuna.store.scripts import Script

FAMILIES = {name: value for name, value in vars(keys).items() if isinstance(value, Key)}


# Few, so that those who wait for the first rows go on while the server works on the next.
_MOST_ROWS = 16


def script(name: str) -> Script:
    return Script.load(__package__, name, FAMILIES, _MOST_ROWS)
