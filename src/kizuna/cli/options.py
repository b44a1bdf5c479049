"""Options that many commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

PORT = click.IntRange(0, 65_535)
probes_option = click.option(
    "--probes", "with_probes", is_flag=True, help="Serve /healthz, /readyz and /metrics, as `kizuna up` does."
)


def seconds_option(
    flag: str, help_: str, *, default: float | None = None, may_be_zero: bool = False
) -> Callable[[F], F]:
    """A time: `--retry-in` gives a command the argument `retry_in_s`."""
    return click.option(
        flag,
        f"{flag.removeprefix('--').replace('-', '_')}_s",
        type=click.FloatRange(0, min_open=not may_be_zero),
        default=default,
        show_default=bool(default),
        metavar="SECONDS",
        help=help_,
    )
