"""What a command line names as a handler: a Python function, or a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click


def imported_function(place: str, option: str, syntax: str) -> Callable[..., Any]:
    """The function that `module:function` names, also in a module where we are. `option`, as it was given, and its
    `syntax` are for the usage error if there is none."""
    import importlib

    module, _, path = place.partition(":")
    if not module or not path:
        raise click.UsageError(f"{option}: write {syntax}")
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 - text, as the others in it
        sys.path.insert(0, here)
    try:
        function: Any = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"{option}: {error}") from error
    if not callable(function):
        raise click.UsageError(f"{option}: that is no function, but {function!r}")
    named: Callable[..., Any] = function
    return named


def program_arguments(command: str, more: Sequence[str] = ()) -> list[str]:
    """The words of a command as a shell would cut it; with `more` of them, it is one word. A usage error if there is no
    such program."""
    import shlex
    import shutil

    try:
        arguments = [command, *more] if more else shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--exec {command}: {error}") from None
    if not arguments or shutil.which(arguments[0]) is None:
        raise click.UsageError(f"--exec {command}: there is no such program")
    return arguments
