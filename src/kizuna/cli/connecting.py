"""How commands get to the server and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.settings import Settings

T = TypeVar("T")


def connected(invocation: Invocation, use: Callable[[Kizuna], Awaitable[T]]) -> T:
    """What `use` returns."""
    from kizuna.app import connect
    from kizuna.loop import run

    async def main() -> T:
        async with connect(invocation.settings) as k:
            return await use(k)

    return run(main())


def looking(invocation: Invocation, ask: Callable[[Kizuna], Awaitable[T]]) -> T:
    """The same for whoever can only find something on a server that runs: no embedded one is started."""
    from kizuna.cli.status import refuse_to_start_it

    refuse_to_start_it(invocation.settings)
    return connected(invocation, ask)


def whoever_types(settings: Settings) -> str:
    """The person at the terminal, rather than a process that is gone in a moment: the same from one command to the
    next, so that who checked an issue out can complete it."""
    import getpass
    import re
    import socket

    if settings.processes.id:
        return settings.processes.id
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = "somebody"
    return re.sub(r"[^A-Za-z0-9.@-]", "-", f"{user}@{socket.gethostname()}")
