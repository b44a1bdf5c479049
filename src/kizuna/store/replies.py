"""What the server's replies mean, in our words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable

from kizuna.errors import (
    NotPrimary,
    OutOfMemory,
    PermissionDenied,
    Refused,
    SignInRefused,
    StorageFull,
    StoreError,
)

# The server did not run the command and may run it soon, here or elsewhere: repeating it is safe. In the words of
# Redis and Valkey, and not by the code alone: a script may have written before it says BUSY in words of its own.
_DID_NOT_RUN = re.compile(
    r"MOVED \d+ \S*:\d+$|ASK \d+ \S*:\d+$|LOADING \w+ is loading|BUSY \w+ is busy running"
    r"|READONLY You can't write|MASTERDOWN Link with|CLUSTERDOWN (?:The cluster|Hash slot)|TRYAGAIN Multiple keys"
)

_MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "OOM": (OutOfMemory, "free memory, raise maxmemory (CONFIG SET maxmemory 4gb), or let data end sooner"),
    "MISCONF": (StorageFull, "make room on the server's disk; it takes writes again by itself"),
    "READONLY": (NotPrimary, "this server is a replica: point store.url at the primary, or at the Sentinels"),
    "MASTERDOWN": (NotPrimary, "this replica has lost its primary; wait for the failover or restore the primary"),
    "NOREPLICAS": (NotPrimary, "too few replicas are in touch: restore one, or lower min-replicas-to-write"),
    "CLUSTERDOWN": (NotPrimary, "part of the cluster has no primary; see CLUSTER INFO"),
    "LOADING": (NotPrimary, "the server is still reading its data from disk; wait"),
    "NOPERM": (PermissionDenied, "grant it to this ACL user (ACL SETUSER), or sign in as another"),
    "WRONGPASS": (SignInRefused, "set store.username and store.password (or store.password_file)"),
    "NOAUTH": (SignInRefused, "set store.username and store.password (or store.password_file)"),
    "WRONGTYPE": (Refused, "the key was written by something else with another type; `TYPE <key>` shows it"),
    "CROSSSLOT": (Refused, "keys that are touched together must share a hash tag on a cluster"),
    "BUSY": (Refused, "a script is blocking the server; SCRIPT KILL ends it if it has not written yet"),
}  # fmt: skip


def paired(flat: list[bytes]) -> dict[bytes, bytes]:
    """Fields and values that take turns, as in an entry of a stream, or in what HSCAN returns."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def did_not_run(error: StoreError) -> bool:
    """The server said "not I" or "not now"."""
    return isinstance(error, Refused) and _DID_NOT_RUN.match(error.what) is not None


async def answered(ping: Awaitable[object]) -> None:
    """Wait for the answer to a PING. A server that cannot write to its disk refuses even that, which is one too."""
    with contextlib.suppress(StorageFull):
        await ping


def translate(text: str, server: str) -> StoreError:
    """The error for an error reply. A script's errors carry the inner code in their text."""
    code = text.split(" ", 1)[0]
    if "ACL failure in script" in text or "The user executing the script can't" in text:  # the latter up to Redis 7.0
        code = "NOPERM"
    elif code == "ERR" and "max number of clients reached" in text:
        return Refused(text, server, "raise maxclients, or close connections that nobody uses")
    kind, hint = _MEANINGS.get(code, (Refused, "the command does not fit this server or key"))
    return kind(text, server, hint)
