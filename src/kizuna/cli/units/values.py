"""Values as bytes: how the commands of `kizuna units` take and show them."""

from __future__ import annotations

import os
import secrets
import sys

from kizuna.cli.output import put
from kizuna.cli.readable import text_or_stdin


def given_value(text: str | None) -> bytes:
    """The argument; or what comes on standard input, for `-`, and for no argument where that is no terminal."""
    if text is None and sys.stdin.isatty():
        return b""
    return text_or_stdin("-" if text is None else text)


def put_value(raw: bytes) -> None:
    """As it is; on a terminal, the prompt stands on the next line."""
    put(raw, nl=sys.stdout.isatty() and not raw.endswith(b"\n"))


def name_for_this_process() -> str:
    """A unit that nobody else is: two calls from two shells have nothing to do with each other."""
    return f"cli-{os.getpid()}-{secrets.token_hex(3)}"
