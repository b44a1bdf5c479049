"""`kizuna keys lint` and `kizuna keys describe`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.exit_codes import FAILURE, NOT_FOUND
from kizuna.cli.keys.opening import (
    counted,
    ends_in,
    nothing_matches,
    opened,
    progress_bar,
    quiet_option,
    warn_of_moved_slots,
)
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.settings import Settings
    from kizuna.store.inspection.looking import Facts
    from kizuna.survey.known import Known
    from kizuna.survey.lint import Finding

SHOWN = 100
BESIDE = "beside a root"


@click.command()
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--limit", type=click.IntRange(min=0), default=SHOWN, show_default=True, help="Name so many; 0 for all.")
@click.option("--beside", is_flag=True, help="Also name keys that begin like a root and are not below it.")
@quiet_option
@json_option
@click.pass_context
def lint(ctx: click.Context, patterns: tuple[str, ...], limit: int, beside: bool, quiet: bool, as_json: bool) -> None:
    """Find keys that are not as declared: in no family, of the wrong type, or ending otherwise. Exit code 1 if any.

    Keys such as `poppobuilder:…`, which begin like the root and are not below it, may be somebody else's: they are
    counted, and named with --beside.

    \b
    $ kizuna keys lint
    $ kizuna keys lint --json --limit 0 | jq -r .key
    """
    from kizuna.loop import run
    from kizuna.survey.known import Known

    invocation: Invocation = ctx.obj
    known = Known(invocation.settings)
    teller = Teller(known, limit, beside, as_json)
    run(examine(invocation.settings, known, patterns, teller, quiet=quiet or as_json))
    if not as_json:
        teller.say_the_sum(patterns)
    if teller.problems():
        ctx.exit(FAILURE)


class Teller:
    """Shows what is wrong as it is found, up to a limit, and counts all of it."""

    def __init__(self, known: Known, limit: int, beside: bool, as_json: bool) -> None:
        self._known, self._limit, self._beside, self._as_json = known, limit, beside, as_json
        self._looked_at = self._told = 0
        self._counts = Counter[str]()

    def look(self, facts: Facts) -> None:
        from kizuna.survey.lint import problem_with

        self._looked_at += 1
        finding = problem_with(self._known, facts, self._known.find(facts.key))
        if finding is None:
            return
        self._counts[finding.problem] += 1
        room = self._told < self._limit or not self._limit
        if room and finding.problem in self.problems():
            self._told += 1
            self._show(finding)

    def problems(self) -> dict[str, int]:
        """How many of each kind; what is beside a root counts if it was asked for."""
        return {name: count for name, count in self._counts.items() if self._beside or name != BESIDE}

    def say_the_sum(self, patterns: tuple[str, ...]) -> None:
        problems, beside = self.problems(), self._counts[BESIDE]
        told = ", ".join(f"{count:,} {name}" for name, count in problems.items()) or "all as declared"
        if self._looked_at:
            say(f"{counted(self._looked_at - beside)} looked at: {told}.")
        else:
            say(nothing_matches(self._known, patterns, anywhere=False))
        if sum(problems.values()) > self._told:
            say("--limit 0 names them all.")
        if beside and not self._beside:
            say(f"{beside:,} more begin like a root and are not below it; --beside names them.")

    def _show(self, finding: Finding) -> None:
        from kizuna.survey.known import shown

        if self._as_json:
            show({"key": shown(finding.key), "problem": finding.problem, "what": finding.what}, as_json=True)
        else:
            put(f"{click.style(f'{finding.problem:<13}', fg='red')}  {shown(finding.key)}: {finding.what}")


async def examine(settings: Settings, known: Known, patterns: tuple[str, ...], teller: Teller, *, quiet: bool) -> None:
    from kizuna.store.inspection.looking import look_at_all
    from kizuna.store.scanning import Scan

    async with opened(settings) as store:
        scan = Scan(store, known.wanted(*patterns) if patterns else known.lookalikes())
        await scan.begin()
        with progress_bar("looking", quiet=quiet) as progress:
            async for facts in look_at_all(store, scan, measure=False):
                for one in facts:
                    teller.look(one)
                progress(scan.passed, scan.total)
    warn_of_moved_slots(scan.moved_slots)


@click.command()
@click.argument("what", metavar="KEY|FAMILY")
@json_option
@click.pass_context
def describe(ctx: click.Context, what: str, as_json: bool) -> None:
    """Tell all about a key, or about a family of keys: its meaning, its type, how it ends, and how it is now.

    A key may be named without its root. Exit code 3 if there is neither such a key nor such a family.

    \b
    $ kizuna keys describe lock:issue:123
    $ kizuna keys describe QUEUE
    """
    from kizuna.loop import run
    from kizuna.survey.description import facts_of_family, family_named, how_it_ends
    from kizuna.survey.known import Known

    invocation: Invocation = ctx.obj
    known = Known(invocation.settings)
    family = family_named(what, known)
    if family is not None:
        facts = facts_of_family(family, known)
        show(facts if as_json else facts | {"ends": f"{facts['ends']}: {how_it_ends(family)}"}, as_json=as_json)
        return
    described = run(look_up(invocation.settings, known, what))
    show(described if as_json else as_screen(described), as_json=as_json)
    if "type" not in described and "family" not in described:
        ctx.exit(NOT_FOUND)


async def look_up(settings: Settings, known: Known, what: str) -> dict[str, Any]:
    from kizuna.survey.description import describe_key

    async with opened(settings) as store:
        return await describe_key(store, known, what)


def as_screen(described: dict[str, Any]) -> dict[str, Any]:
    screen: dict[str, Any] = {"key": described["key"]}
    if "family" in described:
        names = ", ".join(f"{name} = {value}" for name, value in described["names"].items())
        screen |= {
            "family": f"{described['family']} of {described['component']}",
            "pattern": described["pattern"],
            "meaning": described["meaning"],
            "names": names,
            "declared": f"{described['declared']}, {described['ends']}",
        }
    else:
        screen["family"] = "none: nobody has declared it"
        if described["nearest"]:
            screen["like"] = described["nearest"]
    return screen | (live(described) if "type" in described else {"now": "there is no such key"})


def live(described: dict[str, Any]) -> dict[str, str]:
    from kizuna.store.health.checks import size

    length = f"{described['length']:,} {described['unit']}, " if "length" in described else ""
    ends = "does not end" if described["ttl_ms"] is None else f"ends in {ends_in(described['ttl_ms'])}"
    return {
        "now": f"{described['type']} of {length}{size(described['bytes'] or 0)}, {ends}",
        "encoding": described["encoding"],
    }
