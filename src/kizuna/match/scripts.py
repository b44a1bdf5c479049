"""The Lua scripts of matchmaking: each knows the names of all key families behind its prefix."""

from __future__ import annotations

from kizuna.match import keys
from kizuna.store.keys import Key
from kizuna.store.scripts import Script

FAMILIES = {name: value for name, value in vars(keys).items() if isinstance(value, Key)}


def script(name: str) -> Script:
    return Script.load(__package__, name, FAMILIES)
