"""How commands get to the tickets, and how they show them."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from kizuna.cli.connecting import connected, looking
from kizuna.cli.readable import in_one_line
from kizuna.errors import NotInstalled

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation

T = TypeVar("T")

STATE_COLOURS = {"waiting": "green", "pending": "yellow", "assigned": "cyan", "deindexed": "red"}


def matching(invocation: Invocation, use: Callable[[Kizuna], Awaitable[T]]) -> T:
    """What `use` returns."""
    require("google.protobuf")
    return connected(invocation, use)


def looking_on(invocation: Invocation, ask: Callable[[Kizuna], Awaitable[T]]) -> T:
    """The same for whoever can only find something on a server that runs."""
    require("google.protobuf")
    return looking(invocation, ask)


def require(*modules: str) -> None:
    """Says how to get what is not installed."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise NotInstalled(module, "match") from error


def safe(text: str, most: int = 60) -> str:
    """In one line, and harmless: any player may have written it."""
    return in_one_line(text.encode(errors="surrogatepass"), most)


def in_words(fields: Mapping[str, object]) -> str:
    """`skill=1500 mode=ranked`"""
    return " ".join(f"{safe(name)}={_plain(value)}" for name, value in fields.items())


def waited(seconds: float | None) -> str | None:
    from kizuna.cli.processes import ago

    if seconds is None:
        return None
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else ago(seconds)


def coloured(state: str) -> str:
    return click.style(state, fg=STATE_COLOURS.get(state))


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else safe(str(value))
