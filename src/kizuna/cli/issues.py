"""`kizuna issues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.connecting import connected, whoever_types
from kizuna.cli.exit_codes import CONFLICT, NOT_FOUND
from kizuna.cli.fields import read_fields
from kizuna.cli.output import Row, json_option, moment, say, show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from typing import TypeVar

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.coordination.issues import Issues
    from kizuna.coordination.issues.lists import Issue

    T = TypeVar("T")

as_option = click.option(
    "--as", "name", metavar="NAME", help="Who does it: processes.id, or else user@host, unless you say otherwise."
)
force_option = click.option("--force", is_flag=True, help="Also if somebody else has checked it out.")
set_option = click.option(
    "--meta", metavar="NAME=VALUE", multiple=True, callback=read_fields, help="Something to note; repeatable."
)


@click.group()
def issues() -> None:
    """Check issues out and in, and see who works on what.

    An issue is known by a number or a name. What is checked out here stays so until it is completed, failed or
    released under the same name.

    \b
    $ kizuna issues checkout 123
    $ kizuna issues complete 123 --meta pr=77
    $ kizuna issues ls --status processing
    """


# -- looking ----------------------------------------------------------------------------------------------


@issues.command("ls")
@click.option("--status", help="Only those with this status.")
@json_option
@click.pass_obj
def list_issues(invocation: Invocation, status: str | None, as_json: bool) -> None:
    """List the issues, and who works on them.

    \b
    $ kizuna issues ls
    $ kizuna issues ls --status failed --json | jq -r .issue
    """

    async def find(issues: Issues) -> list[Issue]:
        if status == "processing":
            return await all_of(issues, await issues.processing())
        return await all_of(issues, {name async for name, word in issues.all() if status in (None, word)})

    show_issues(with_issues(invocation, find), as_json=as_json)


@issues.command("show")
@click.argument("issue")
@json_option
@click.pass_context
def show_issue(ctx: click.Context, issue: str, as_json: bool) -> None:
    """Show an issue with its metadata. Exit code 3 if nothing is known about it.

    \b
    $ kizuna issues show 123
    $ kizuna issues show 123 --json | jq .metadata
    """
    found = with_issues(ctx.obj, lambda issues: issues.get(issue))
    if not found.status and not found.metadata:
        say(f"Nothing is known about issue {issue}.")
        ctx.exit(NOT_FOUND)
    show(found._asdict() if as_json else record_of(found), as_json=as_json)


@issues.command()
@json_option
@click.pass_obj
def today(invocation: Invocation, as_json: bool) -> None:
    """List the issues that were completed today, in coordination.time_zone.

    \b
    $ kizuna issues today
    $ kizuna --set coordination.time_zone=Asia/Tokyo issues today --json | wc -l
    """

    async def find(issues: Issues) -> list[Issue]:
        return await all_of(issues, await issues.completed_today())

    show_issues(with_issues(invocation, find), as_json=as_json)


@issues.command()
@click.option("--repair", is_flag=True, help="Put the lists right; statuses stay as they are.")
@json_option
@click.pass_context
def verify(ctx: click.Context, repair: bool, as_json: bool) -> None:
    """Compare the lists with the statuses, which somebody may have written by hand.

    Ends with exit code 4 if they differ and were not repaired.

    \b
    $ kizuna issues verify
    $ kizuna issues verify --repair
    """

    async def find(issues: Issues) -> list[Row]:
        return [fault._asdict() async for fault in issues.verify(repair=repair)]

    faults = with_issues(ctx.obj, find)
    show(faults, as_json=as_json)
    say("All is as it should be." if not faults else "Repaired." if repair else "`--repair` puts the lists right.")
    if faults and not repair:
        ctx.exit(CONFLICT)


@issues.command()
@json_option
@click.pass_obj
def watch(invocation: Invocation, as_json: bool) -> None:
    """Show each change of a status as it happens, until Ctrl-C.

    \b
    $ kizuna issues watch
    $ kizuna issues watch --json | jq 'select(.status == "failed")'
    """
    import sys

    async def follow(k: Kizuna) -> None:
        from kizuna.coordination.issues import EVENTS
        from kizuna.store.events.feeds import LookAgain

        async with k.store.events.listen(k.keys.channel(EVENTS)) as feed:
            say("Listening; Ctrl-C ends it.")
            async for event in feed:
                if isinstance(event, LookAgain):
                    say(f"Some changes may have been missed: {event.reason}.")
                else:
                    show_change(event.payload, as_json=as_json)
                    sys.stdout.flush()

    connected(invocation, follow)


# -- changing ---------------------------------------------------------------------------------------------


@issues.command()
@click.argument("issue")
@click.option("--expect", multiple=True, metavar="STATUS", help="Take it in this status; else pending or none.")
@set_option
@as_option
@click.pass_obj
def checkout(
    invocation: Invocation, issue: str, expect: tuple[str, ...], meta: dict[str, str], name: str | None
) -> None:
    """Take an issue. Of many who try, one gets it; the others end with exit code 4.

    \b
    $ kizuna issues checkout 123 && ./work-on 123
    $ kizuna issues checkout 123 --as mirin --expect failed --meta try=2
    """
    statuses = expect or ("pending", None)
    with_issues(invocation, lambda issues: issues.checkout(issue, meta, expect=statuses), name)
    say(f"Issue {issue} is yours.")


@issues.command()
@click.argument("issue")
@set_option
@as_option
@force_option
@click.pass_obj
def complete(invocation: Invocation, issue: str, meta: dict[str, str], name: str | None, force: bool) -> None:
    """Say that an issue is done. Exit code 4 if it is not, or no longer, checked out by you.

    \b
    $ kizuna issues complete 123 --meta pr=77
    """
    with_issues(invocation, lambda issues: issues.complete(issue, meta, force=force), name)
    say(f"Issue {issue} is completed.")


@issues.command()
@click.argument("issue")
@click.argument("reason", default="")
@as_option
@force_option
@click.pass_obj
def fail(invocation: Invocation, issue: str, reason: str, name: str | None, force: bool) -> None:
    """Say that an issue could not be done, and why.

    \b
    $ kizuna issues fail 123 "the tests do not pass"
    """
    with_issues(invocation, lambda issues: issues.fail(issue, reason, force=force), name)
    say(f"Issue {issue} has failed.")


@issues.command()
@click.argument("issue")
@as_option
@force_option
@click.pass_obj
def release(invocation: Invocation, issue: str, name: str | None, force: bool) -> None:
    """Give an issue back as it was before it was checked out.

    \b
    $ kizuna issues release 123
    $ kizuna issues release 123 --force
    """
    status = with_issues(invocation, lambda issues: issues.release(issue, force=force), name)
    say(f"Issue {issue} is {status} again.")


@issues.command()
@click.argument("issue")
@as_option
@click.pass_obj
def reopen(invocation: Invocation, issue: str, name: str | None) -> None:
    """Make an issue that has ended pending again.

    \b
    $ kizuna issues reopen 123
    """
    with_issues(invocation, lambda issues: issues.reopen(issue), name)
    say(f"Issue {issue} is pending again.")


@issues.command("set")
@click.argument("issue")
@click.argument("status")
@set_option
@as_option
@force_option
@click.pass_obj
def set_status(
    invocation: Invocation, issue: str, status: str, meta: dict[str, str], name: str | None, force: bool
) -> None:
    """Give an issue any status but processing: a new one, or one of your own words.

    \b
    $ kizuna issues set 123 pending --meta title="It leaks"
    $ kizuna issues set 123 cancelled
    """
    with_issues(invocation, lambda issues: issues.set_status(issue, status, meta, force=force), name)
    say(f"Issue {issue} is {status}.")


@issues.command()
@click.argument("issue")
@as_option
@force_option
@click.pass_obj
def forget(invocation: Invocation, issue: str, name: str | None, force: bool) -> None:
    """Remove all that is known about an issue.

    \b
    $ kizuna issues forget 123
    """
    with_issues(invocation, lambda issues: issues.forget(issue, force=force), name)
    say(f"Issue {issue} is forgotten.")


# -- inside -----------------------------------------------------------------------------------------------


def with_issues(invocation: Invocation, use: Callable[[Issues], Awaitable[T]], name: str | None = None) -> T:
    async def main(k: Kizuna) -> T:
        from kizuna.coordination.issues import Issues

        return await use(Issues(k.store, name or whoever_types(k.settings)))

    return connected(invocation, main)


async def all_of(issues: Issues, names: Collection[str]) -> list[Issue]:
    """In order, some hundreds at a time."""
    import asyncio

    from kizuna.coordination.issues.lists import in_order

    ordered, found = sorted(names, key=in_order), list[Any]()
    for start in range(0, len(ordered), 500):
        found += await asyncio.gather(*map(issues.get, ordered[start : start + 500]))
    return found


def show_issues(found: Collection[Issue], *, as_json: bool) -> None:
    if not found and not as_json:
        say("There are none.")
    show([one._asdict() if as_json else row_of(one) for one in found], as_json=as_json)


def row_of(one: Issue) -> Row:
    since = time_in(one.metadata, "endedAt") or time_in(one.metadata, "checkedOutAt")
    return {"issue": one.issue, "status": one.status, "by": one.by, "since": since}


def record_of(one: Issue) -> Row:
    """The fields of the user's own last; those that only programs need not at all."""
    ours = {"processId", "checkedOutAt", "endedAt", "lastChange", "statusBefore"}
    own = {name: text for name, text in one.metadata.items() if name not in ours | {"issue", "status", "by"}}
    times = {"checked out": time_in(one.metadata, "checkedOutAt"), "ended": time_in(one.metadata, "endedAt")}
    return {"issue": one.issue, "status": one.status, "by": one.by, **times, **own}


def time_in(metadata: Mapping[str, str], name: str) -> str | None:
    text = metadata.get(name, "")
    # Of what others have written, no more than thirteen digits are a time in ms.
    return moment(int(text) / 1000) if text.isdecimal() and len(text) <= 13 else text or None


def show_change(payload: bytes, *, as_json: bool) -> None:
    from kizuna.cli.output import put
    from kizuna.codecs import JSON
    from kizuna.errors import Undecodable

    try:
        change: dict[str, Any] = JSON.decode(payload)
        line = f"{change['issue']}  {change['status'] or 'forgotten'}  by {change['by']}"
    except (Undecodable, TypeError, KeyError):
        say(f"Something else was published: {payload[:80]!r}")
        return
    if as_json:
        show(change, as_json=True)
    else:
        put(line)
