"""`kizuna memory verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kizuna.cli.exit_codes import CONFLICT
from kizuna.cli.memory.contents import safe
from kizuna.cli.memory.reading import remembering
from kizuna.cli.output import json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.memory.verifying.report import Report

_LONGEST = 1000


@click.command()
@click.option("--repair", is_flag=True, help="Mend what can be mended.")
@json_option
@click.pass_context
def verify(ctx: click.Context, repair: bool, as_json: bool) -> None:
    """Check that nothing is missing or left behind.

    Every item and context has to stand in each index where it belongs, at its right place, and nothing else. Exit
    code 4 if something is off, and was not repaired. What has ended while no program was there is put away first. It
    works beside programs that write: what looks wrong is looked at once more.

    \b
    $ kizuna memory verify
    $ kizuna memory verify --repair
    $ kizuna memory verify --json | jq '.findings[] | .key'
    """
    report = remembering(ctx.obj, lambda k: verified(k, repair))
    if as_json:
        show(report.as_dict(), as_json=True)
    else:
        show_report(report)
    if not report.exact:
        ctx.exit(CONFLICT)


async def verified(k: Kizuna, repair: bool) -> Report:
    # Where nobody else remembers at the moment, nobody ends what is due: that it still stands there is no fault.
    await k.memory.end_due()
    return await k.memory.verify(repair=repair)


def show_report(report: Report) -> None:
    for finding in report.repaired:
        put(f"{click.style('mended', fg='green')}  {safe(str(finding), _LONGEST)}")
    for finding in report.findings:
        put(f"{click.style('off', fg='red')}     {safe(str(finding), _LONGEST)}")
    say(
        f"{counted(report.items, 'item')} and {counted(report.contexts, 'context')}, with "
        f"{report.members:,} entries in {report.indexes:,} indexes: {verdict(report)}."
    )


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def verdict(report: Report) -> str:
    mended = f"{len(report.repaired):,} mended" if report.repaired else ""
    off = f"{len(report.findings):,} off" if report.findings else ""
    beyond = f"{report.not_looked_at:,} more that may be off; verify again" if report.not_looked_at else ""
    return ", ".join(filter(None, (off, mended, beyond))) or click.style("everything is exact", fg="green")
