"""`kizuna keys backup` and `kizuna keys restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.keys.opening import (
    anywhere_option,
    counted,
    nothing_matches,
    opened,
    progress_bar,
    quiet_option,
    wanted_of,
    warn_of_moved_slots,
)
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.settings import Settings
    from kizuna.store.inspection.backup_file import Footer
    from kizuna.store.inspection.restore import Restored
    from kizuna.store.scanning import Wanted

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
@anywhere_option
@quiet_option
@json_option
@click.pass_obj
def backup(
    invocation: Invocation,
    file: Path,
    patterns: tuple[str, ...],
    force: bool,
    anywhere: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Write keys with their values and remaining times to one file, compressed and checksummed.

    The file appears when it is whole. Programs go on meanwhile: each key is as it was at some moment of the backup.

    \b
    $ kizuna keys backup nightly.kizuna
    $ kizuna keys backup issues.kizuna issue issues
    """
    from kizuna.loop import run
    from kizuna.survey.known import Known

    settings = invocation.settings
    known = Known(settings)
    wanted = wanted_of(known, patterns, anywhere=anywhere)
    footer = run(save(settings, file, wanted, list(known.names), force, quiet))
    size_bytes = file.stat().st_size
    if as_json:
        import msgspec

        show({"file": str(file), "bytes": size_bytes, **msgspec.to_builtins(footer)}, as_json=True)
    else:
        say_what_was_saved(file, size_bytes, footer)
    if not footer.keys:
        say(nothing_matches(known, patterns, anywhere=anywhere))
    warn_of_moved_slots(footer.moved_slots)


async def save(settings: Settings, file: Path, wanted: Wanted, roots: list[str], force: bool, quiet: bool) -> Footer:
    from kizuna.store.inspection.backup import back_up

    async with opened(settings) as store:
        with progress_bar("backing up", quiet=quiet) as progress:
            return await back_up(store, file, wanted, roots=roots, overwrite=force, progress=progress)


def say_what_was_saved(file: Path, size_bytes: int, footer: Footer) -> None:
    from kizuna.store.health.checks import size

    say(f"{counted(footer.keys)} in {file}, {size(size_bytes)}.")
    if footer.vanished:
        say(f"{footer.vanished:,} ended before they could be read.")
    for kind, count in footer.strange.items():
        say(f"{count:,} of type {kind} were left out: it is not a type that every server has.")


def read_roots(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`("poppo=copy",)` as a dictionary."""
    from kizuna.errors import IllegalName
    from kizuna.store.keys import Key

    roots = dict[str, str]()
    for text in given:
        old, new = text.partition("=")[::2]
        try:
            for root in (old, new):
                Key("x", "string", "removed", "").build(root)
                Key("x", "string", "removed", "", joined_by="/").build(root)
        except IllegalName as error:
            raise click.BadParameter(f"{text!r}: {error}; write OLD=NEW") from None
        if "{" in text:
            raise click.BadParameter(f"{text!r} names a shard; shards keep their numbers, so name the root alone")
        roots[old] = new
    return roots


@click.command()
@click.argument("file", type=FILE)
@click.option(
    "--root", "roots", metavar="OLD=NEW", multiple=True, callback=read_roots, help="To another root; repeatable."
)
@click.option("--skip", is_flag=True, help="Leave keys that exist as they are.")
@click.option("--replace", is_flag=True, help="Replace keys that exist.")
@click.option(
    "--ttl",
    type=click.Choice(["remaining", "absolute"]),
    default="remaining",
    show_default=True,
    help="Give keys the time they had left, or have them end when they would have.",
)
@click.option("--resume", is_flag=True, help="Go on where a restore of this file was interrupted.")
@click.option("--salvage", is_flag=True, help="Take what is whole in a damaged file.")
@quiet_option
@json_option
@click.pass_obj
def restore(
    invocation: Invocation,
    file: Path,
    roots: dict[str, str],
    skip: bool,
    replace: bool,
    ttl: str,
    resume: bool,
    salvage: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Put the keys of a backup back, on this server or another, below the same root or another.

    The whole file is checked first. If a key exists already, nothing at all is written (exit code 4), unless --skip or
    --replace is given; each value appears, or is replaced, in one step.

    \b
    $ kizuna keys restore nightly.kizuna
    $ kizuna keys restore nightly.kizuna --root poppo=copy
    $ kizuna --url redis://other:6379 keys restore nightly.kizuna --replace --ttl absolute
    """
    from kizuna.loop import run

    if skip and replace:
        raise click.UsageError("--skip and --replace exclude each other")
    conflict = "skip" if skip else "replace" if replace else "refuse"
    options = {"roots": roots, "conflict": conflict, "ttl": ttl, "resume": resume, "salvage": salvage}
    result = run(put_back(invocation.settings, file, quiet, options))
    if as_json:
        import msgspec

        show(msgspec.to_builtins(result), as_json=True)
    else:
        say_what_was_restored(result)


async def put_back(settings: Settings, file: Path, quiet: bool, options: dict[str, Any]) -> Restored:
    from kizuna.errors import StoreError
    from kizuna.store.inspection.restore import Restore

    async with opened(settings, may_start=True) as store:
        with progress_bar("restoring", quiet=quiet) as progress:
            restoring = Restore(store, file, progress=progress, **options)
            try:
                return await restoring.run()
            except StoreError:
                if restoring.result.restored:
                    say(f"{counted(restoring.result.restored)} restored so far; --resume goes on from there.")
                raise


def say_what_was_restored(result: Restored) -> None:
    say(f"{counted(result.restored)} restored.")
    if result.skipped:
        say(f"{result.skipped:,} existed already, and were left as they are.")
    if result.expired:
        say(f"{result.expired:,} would have ended by now, and were left out.")
    if result.incomplete:
        say(f"{result.incomplete:,} were left out because a part of them is missing.")
    for damage in result.damage:
        say(f"damaged: {damage}")
