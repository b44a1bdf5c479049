"""How commands get to what is remembered: on the server; or while that is away, in the copy on this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from kizuna.cli.connecting import connected
from kizuna.cli.output import say

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.settings import Settings

T = TypeVar("T")


def remembering(invocation: Invocation, use: Callable[[Kizuna], Awaitable[T]]) -> T:
    """What `use` returns."""

    async def main(k: Kizuna) -> T:
        if k.memory.fallback is not None:
            # What was written while the server was away, by a process that is gone, happens first.
            await k.memory.fallback.open()
        return await use(k)

    return connected(invocation, main)


def reading(invocation: Invocation, look: Callable[[Kizuna], Awaitable[T]]) -> T:
    """The same for whoever only reads, also while the server is away. It may be tried twice, so it shows nothing before
    it has read."""
    from kizuna.errors import Unreachable
    from kizuna.loop import run

    try:
        return remembering(invocation, look)
    except Unreachable as error:
        if not invocation.settings.memory.backup_folder:
            raise
        say(f"This is from the copy on this machine, and may be old: {error.what} at {error.server}.")
    return run(from_copy(invocation.settings, look))


async def from_copy(settings: Settings, look: Callable[[Kizuna], Awaitable[T]]) -> T:
    """Nothing is connected, so there is nothing else to close."""
    from kizuna.app import Kizuna

    k = Kizuna(settings)
    backup = k.memory.fallback.backup  # type: ignore[union-attr] # there is a folder for it
    await backup.open()
    try:
        k.memory.keeper = backup.keeper
        return await look(k)
    finally:
        await backup.aclose()


def is_away(k: Kizuna) -> bool:
    """Whether it is the copy that answers."""
    fallback = k.memory.fallback
    return fallback is not None and (fallback.is_away or k.memory.keeper is not fallback)


async def now_by(k: Kizuna) -> float:
    """By the clock that says when things end. While the server cannot be asked, that is ours."""
    import time

    return time.time() if is_away(k) else await k.store.time_s()
