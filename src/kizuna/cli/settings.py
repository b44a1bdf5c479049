"""`kizuna settings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from kizuna.cli.output import Row, json_option, say, show
from kizuna.configuration import DEFAULT, known_settings, nearest
from kizuna.errors import SettingsError
from kizuna.sections import shown
from kizuna.settings import Loaded, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kizuna.cli import Invocation

KNOWN = known_settings(Settings)


@click.group()
def settings() -> None:
    """Show and check what is set, and where.

    \b
    $ kizuna settings show --origin
    $ kizuna settings check
    """


def complete_name(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in KNOWN if name.startswith(incomplete)]


@settings.command("show")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_name)
@click.option("--origin", is_flag=True, help="Also say where each is set.")
@json_option
@click.pass_obj
def show_settings(invocation: Invocation, names: Sequence[str], origin: bool, as_json: bool) -> None:
    """Show all settings, or those named; a section's name stands for all in it. Secrets are shown as ***.

    \b
    $ kizuna settings show
    $ kizuna settings show store.url embedded --origin
    $ kizuna settings show --origin --json | jq 'select(.origin != "default")'
    """
    chosen = chosen_names(names)
    show(rows(invocation.loaded, chosen, with_origin=origin), as_json=as_json)


@settings.command("check")
@json_option
@click.pass_obj
def check_settings(invocation: Invocation, as_json: bool) -> None:
    """Check all settings. Lists every problem and ends with exit code 78 if there is one.

    \b
    $ kizuna settings check
    $ kizuna --config production.toml settings check && systemctl restart myservice
    """
    loaded = invocation.loaded
    check_store(loaded)
    changed = [name for name, origin in loaded.origins.items() if origin != DEFAULT]
    show({"files": [str(path) for path in loaded.files], "changed": changed}, as_json=as_json)
    say("All settings are right.")


def check_store(loaded: Loaded) -> None:
    """The store alone knows which URLs it understands, and whether certificates are some."""
    from kizuna.store.dialing import tls_context
    from kizuna.store.targets import parse_target

    store = loaded.settings.store
    try:
        target = parse_target(store)
    except SettingsError as error:
        raise SettingsError(f"{error} ({loaded.origins['store.url']})") from error
    if target.tls:
        tls_context(store)


def chosen_names(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in KNOWN and name not in Settings.__struct_fields__:
            meant = nearest(name, KNOWN)
            raise click.BadParameter(f"{name} is not a setting{f'; did you mean {meant}?' if meant else ''}")
    return [name for name in KNOWN if not names or name in names or name.partition(".")[0] in names]


def rows(loaded: Loaded, names: Sequence[str], *, with_origin: bool) -> Iterator[Row]:
    for name in names:
        section, _, field = name.partition(".")
        row = {"name": name, "value": shown(getattr(getattr(loaded.settings, section), field))}
        yield row | {"origin": loaded.origins[name]} if with_origin else row
