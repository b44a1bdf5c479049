"""Fields of people's own, as options take them."""

from __future__ import annotations

from collections.abc import Sequence

import click


def read_fields(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """`("title=It leaks", …)` as a dictionary; of two for one name, the last counts."""
    for text in given:
        if not text.partition("=")[1]:
            raise click.BadParameter(f"there is no '=' in {text!r}; write NAME=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in given)}
