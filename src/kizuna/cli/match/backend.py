"""`kizuna match backend`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kizuna.cli.match.matching import matching, require, safe
from kizuna.cli.match.serving import together
from kizuna.cli.options import probes_option, seconds_option
from kizuna.cli.output import Row, json_option, put, say, show

if TYPE_CHECKING:
    from kizuna.app import Kizuna
    from kizuna.cli import Invocation
    from kizuna.match.backend import Backend, Tick
    from kizuna.match.matches import Match
    from kizuna.match.plan import Plan

_NAMED = 10


@click.command()
@click.argument("plan_file", metavar="PLAN")
@seconds_option("--tick-every", "How often to look although no ticket is new.  [default: match.tick_every_s]")
@click.option(
    "--fetch-limit", type=click.IntRange(1), help="How many tickets a tick takes.  [default: match.fetch_limit]"
)
@click.option("--once", is_flag=True, help="One tick, and what it did.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each match that is assigned.")
@probes_option
@json_option
@click.pass_obj
def backend(
    invocation: Invocation,
    plan_file: str,
    tick_every_s: float | None,
    fetch_limit: int | None,
    once: bool,
    verbose: bool,
    with_probes: bool,
    as_json: bool,
) -> None:
    """Make matches as a plan says, until Ctrl-C or SIGTERM.

    PLAN is a TOML file: profiles, their pools and match functions, and how game servers are found. Any number of
    backends may work on the same tickets, also with different plans, and beside those of minimatch.

    Told to stop, it finishes the tick that it is at. With --once a failing function, evaluator or assigner is exit
    code 1, after all others had their turn.

    \b
    $ kizuna match backend plan.toml
    $ kizuna match backend plan.toml -v --probes
    $ kizuna match backend plan.toml --once --json | jq .assigned
    """
    require("google.protobuf")
    from kizuna.cli.logs import show_logs
    from kizuna.match.plan import Plan

    plan = Plan.load(plan_file)
    if not once:
        show_logs()

    async def work(k: Kizuna) -> None:
        backend = plan.backend(k.match, tick_every_s=tick_every_s, fetch_limit=fetch_limit)
        if verbose:
            backend.on_tick = lambda tick: show_matches(tick, as_json=as_json)
        if once:
            show(as_data(await backend.tick()), as_json=as_json)
        else:
            await run_until_signalled(k, backend, plan, with_probes=with_probes, as_json=as_json)

    matching(invocation, work)


async def run_until_signalled(k: Kizuna, backend: Backend, plan: Plan, *, with_probes: bool, as_json: bool) -> None:
    from kizuna import service
    from kizuna.cli.up import make_probes

    probes = [make_probes(k, together(k.match.measures, backend.measures))] if with_probes else []

    def announce() -> None:
        facts = {"backend": backend.name, "profiles": [one.profile.name for one in plan.profiles]}
        show(facts | ({"probes": probes[0].url} if probes else {}) | {"pid": os.getpid()}, as_json=as_json)
        say("Ctrl-C stops it.")

    signal = await service.run_until_signalled(backend, *probes, on_started=announce)
    counts = backend.counts
    say(f"Stopped by {signal.name}: {counts.assigned} tickets assigned, {counts.failures} failures.")


def as_data(tick: Tick) -> Row:
    return {
        "fetched": tick.fetched,
        "matches": len(tick.matches),
        "assigned": tick.assigned,
        "released": tick.released,
        "busy": tick.busy,
        "took_ms": round(tick.took_s * 1000, 2),
    }


def show_matches(tick: Tick, *, as_json: bool) -> None:
    for match in tick.matches:
        if as_json:
            show(as_row(match), as_json=True)
        else:
            put(as_line(match))


def as_row(match: Match) -> Row:
    connection = match.assignment.connection if match.assignment else None
    return {"match": match.id, "profile": match.profile, "tickets": match.ticket_ids, "connection": connection}


def as_line(match: Match) -> str:
    from datetime import datetime

    at = click.style(f"{datetime.now().astimezone():%H:%M:%S.%f}"[:-3], dim=True)
    ids = " ".join(map(safe, match.ticket_ids[:_NAMED]))
    more = f" and {len(match.tickets) - _NAMED} more" if len(match.tickets) > _NAMED else ""
    # Who joins a running match is told by its game server.
    where = safe(match.assignment.connection, 200) if match.assignment else "-"
    return f"{at} {click.style(safe(match.profile), fg='green')}  {safe(match.id, 200)}  {ids}{more}  {where}"
