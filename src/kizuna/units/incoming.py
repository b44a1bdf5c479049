"""The keys of requests that others wrote, very many of them, and of what is written about each. Does no I/O."""

from __future__ import annotations

import re
from typing import NamedTuple

from kizuna.units.paths import ADDRESS_END, CLAIM, SHORT_LIVED, claim_id, read_path

_SHORT_LIVED = f"{ADDRESS_END}{SHORT_LIVED}".encode()
# What can stand in a part of a path without a second look: printable ASCII without capitals, and nothing special.
_PLAIN = bytes(set(range(0x21, 0x7F)) - set(b"/*?[]{}\\ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
# Of the name of whoever asks, also nothing that would be escaped in a claim; and both so short that the claim is.
_PLAIN_CALLER, _PLAIN_ID = (
    rb"([%s]{1,%d})" % (re.escape(characters), most)
    for characters, most in ((_PLAIN.translate(None, b".%"), 90), (_PLAIN, 150))
)


class Incoming(NamedTuple):
    """A request; `key` is as it was written, all else is in lower case."""

    key: bytes
    caller: bytes
    id: bytes
    claim: bytes
    is_short_lived: bool
    """It does not outlive an answer that lives for `SHORT_MS`."""


class Reader:
    """For one unit that serves."""

    def __init__(self, root: str, unit: str) -> None:
        self._root = root
        self._stem = f"{root}/".encode()
        self._unit, self._own_head = unit.encode(), f"{unit}{ADDRESS_END}".encode()
        self._keep = f"{root}/{unit}/keep/".encode()
        self._claim = self._keep + CLAIM.encode()
        self._plain = re.compile(rb"%s%s/req/%s" % (re.escape(self._stem), _PLAIN_CALLER, _PLAIN_ID)).fullmatch

    def read(self, key: bytes) -> Incoming | None:
        """None for what is no request, and for what this unit itself asks of others."""
        found = self._plain(key)
        if found is not None:
            # As nearly all are.
            caller, id_ = found.groups()
            claim = self._claim + caller + b"." + id_
        else:
            path = read_path(key, self._root)
            if path is None or path.status != "req":
                return None
            caller, id_ = path.unit.encode(), path.id.encode()
            claim = self._keep + claim_id(path.unit, path.id).encode()
        if caller == self._unit and not id_.startswith(self._own_head):
            # Heard because it listens to all.
            return None
        return Incoming(key, caller, id_, claim, _SHORT_LIVED in id_)

    def response(self, request: Incoming) -> bytes:
        return self._stem + request.caller + b"/res/" + request.id

    def error(self, request: Incoming) -> bytes:
        return self._stem + request.caller + b"/err/" + request.id
