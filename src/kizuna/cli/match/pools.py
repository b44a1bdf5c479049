"""`kizuna match pools`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kizuna.cli.match.matching import looking_on, require, safe, waited
from kizuna.cli.output import Row, json_option, say, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.match.overview import Crowd, Seen
    from kizuna.match.plan import Plan
    from kizuna.match.pools import Pool
    from kizuna.match.reports import BackendReport

_EVERY_S = 2.0
# A backend reports once a second, or once a tick if that is longer.
_LATE_S = 10.0


@click.command()
@click.argument("plan_file", required=False, metavar="[PLAN]")
@click.option("--tag", "tags", multiple=True, help="Without PLAN: those with this tag, as a pool; repeatable.")
@click.option(
    "--watch",
    "every_s",
    is_flag=False,
    flag_value=_EVERY_S,
    type=click.FloatRange(0.1),
    metavar="[SECONDS]",
    help=f"Look again and again, until Ctrl-C. Without SECONDS, every {_EVERY_S:g}.",
)
@json_option
@click.pass_obj
def pools(
    invocation: Invocation, plan_file: str | None, tags: tuple[str, ...], every_s: float | None, as_json: bool
) -> None:
    """Show who waits, where, and for how long.

    With a PLAN, who is in its pools now: how many wait, how many are being matched, and how long those wait who wait.
    Without one, everybody, and the pools as the backends at work last found them. WAITED of a backend is how long
    players had waited whom it has assigned since it began.

    \b
    $ kizuna match pools
    $ kizuna match pools plan.toml --watch
    $ kizuna match pools --tag region:eu --tag region:us
    $ kizuna match pools plan.toml --json | jq '.pools[] | select(.oldest_s > 60) | .pool'
    """
    require("google.protobuf")
    plan = loaded(plan_file)
    looking_on(invocation, lambda k: look(k, plan, tags, every_s, as_json=as_json))


def loaded(plan_file: str | None) -> Plan | None:
    from kizuna.match.plan import Plan

    return None if plan_file is None else Plan.load(plan_file)


async def look(k: Kizuna, plan: Plan | None, tags: Sequence[str], every_s: float | None, *, as_json: bool) -> None:
    import asyncio

    from kizuna.match.overview import Overview

    overview = Overview(k.match)
    while True:
        seen, reports = await overview.tickets(), await k.match.backends_report()
        now_s = await k.store.time_s()
        if every_s is not None and not as_json and sys.stdout.isatty():
            click.clear()
        show_pools(seen, list(wanted(plan, tags)), reports, now_s, as_json=as_json)
        if every_s is None:
            return
        sys.stdout.flush()
        await asyncio.sleep(every_s)


def wanted(plan: Plan | None, tags: Sequence[str]) -> Iterable[tuple[str, Pool]]:
    """Pools, with their profiles, that are counted here and now."""
    from kizuna.match.pools import EVERYONE, Pool

    if plan is not None:
        return plan.pools()
    return [("", Pool(tag, tags=[tag])) for tag in tags] or [("", EVERYONE)]


def show_pools(
    seen: list[Seen],
    pools: list[tuple[str, Pool]],
    reports: list[BackendReport],
    now_s: float,
    *,
    as_json: bool,
) -> None:
    from kizuna.match.overview import crowd_of

    crowds = [(profile, pool.name, crowd_of(pool, seen, now_s)) for profile, pool in pools]
    if as_json:
        show(as_data(crowds, reports, now_s), as_json=True)
        return
    show([as_row(*crowd) for crowd in crowds], as_json=False)
    reported = [] if any(profile for profile, *_ in crowds) else reported_pools(reports)
    for table in (reported, [backend_row(report, now_s) for report in reports]):
        if table:
            say("")
            show(table, as_json=False)
    if not reports:
        say("No backend is at work; `kizuna match backend PLAN` starts one.")


def as_data(crowds: list[tuple[str, str, Crowd]], reports: list[BackendReport], now_s: float) -> dict[str, Any]:
    import msgspec

    pools = [
        {"profile": profile or None, "pool": pool, **msgspec.to_builtins(crowd)} for profile, pool, crowd in crowds
    ]
    return {"at": now_s, "pools": pools, "backends": msgspec.to_builtins(reports)}


def as_row(profile: str, pool: str, crowd: Crowd) -> Row:
    return {
        **({"profile": safe(profile)} if profile else {}),
        "pool": safe(pool),
        "waiting": crowd.waiting,
        "pending": crowd.pending,
        "oldest": waited(crowd.oldest_s),
        "half_waits": waited(crowd.p50_s),
        "99_of_100": waited(crowd.p99_s),
    }


def reported_pools(reports: list[BackendReport]) -> list[Row]:
    """Of each pool what was found by the backend that looked last."""
    latest = {
        (pool.profile, pool.pool): pool
        for report in sorted(reports, key=lambda report: report.at)
        for pool in report.pools
    }
    return [
        {
            "profile": safe(pool.profile),
            "pool": safe(pool.pool),
            "waiting_at_last_tick": pool.waiting,
            "oldest": waited(pool.oldest_s) if pool.waiting else None,
        }
        for _, pool in sorted(latest.items())
    ]


def backend_row(report: BackendReport, now_s: float) -> Row:
    late_s = max(now_s - report.at, 0.0)
    heard = f"{waited(late_s)} ago"
    waits = (report.wait_p50_s, report.wait_p95_s, report.wait_p99_s)
    return {
        "backend": safe(report.name),
        "matches": report.matches,
        "assigned": report.assigned,
        "failures": click.style(str(report.failures), fg="red") if report.failures else 0,
        "waited_p50": waited(waits[0]),
        "p95": waited(waits[1]),
        "p99": waited(waits[2]),
        "heard": click.style(heard, fg="yellow") if late_s > _LATE_S else heard,
    }
