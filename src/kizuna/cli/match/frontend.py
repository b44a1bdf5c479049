"""`kizuna match frontend`."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from kizuna.cli.match.serving import Served, require_servers, serve_until_signalled, with_match
from kizuna.cli.options import PORT, probes_option
from kizuna.cli.output import json_option, say, show

if TYPE_CHECKING:
    from kizuna.cli import Invocation
    from kizuna.match.serving.copies import Copies
    from kizuna.settings import Settings


@click.command()
@click.option("--host", help="Where to listen: short for --set match.host=HOST.")
@click.option("--port", type=PORT, metavar="PORT", help="gRPC: match.frontend_port; 0 picks a free one.")
@click.option("--http-port", type=PORT, metavar="PORT", help="HTTP: match.frontend_http_port.")
@click.option("--no-http", is_flag=True, help="gRPC alone.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="How many share the ports.")
@click.option("--copies", type=click.IntRange(1), default=1, hidden=True)
@probes_option
@json_option
@click.pass_obj
def frontend(
    invocation: Invocation,
    host: str | None,
    port: int | None,
    http_port: int | None,
    no_http: bool,
    processes: int,
    copies: int,
    with_probes: bool,
    as_json: bool,
) -> None:
    """Serve games, by gRPC and HTTP, until Ctrl-C or SIGTERM.

    FrontendService of Open Match and of minimatch: a game that speaks to one of these is given this address, and works
    as before. HTTP is JSON as Open Match's gateway has it, and Connect as minimatch's clients speak it. One process
    uses one core; --processes starts more of them, on the same ports, and again if one ends. With --probes each of them
    has its own, at probes.port and the numbers behind it.

    Told to stop, it lets calls end; those who wait for an assignment are told to connect again.

    \b
    $ kizuna match frontend
    $ kizuna match frontend --host 0.0.0.0 --processes 4 --probes
    $ curl -s localhost:51504/v1/frontendservice/tickets -d '{"ticket": {}}'
    """
    from kizuna.cli.logs import show_logs
    from kizuna.loop import run

    require_servers(with_http=not no_http)
    settings = with_match(invocation.settings, host=host, frontend_port=port, frontend_http_port=http_port)
    show_logs()
    if processes > 1:
        run(serve_copies(invocation, settings, processes, no_http=no_http, with_probes=with_probes, as_json=as_json))
    else:
        run(serve(settings, copies, with_http=not no_http, with_probes=with_probes, as_json=as_json))


async def serve(settings: Settings, copies: int, *, with_http: bool, with_probes: bool, as_json: bool) -> None:
    """Alone, or as one of several copies."""
    from kizuna.app import connect
    from kizuna.match.serving.frontend_calls import FrontendCalls
    from kizuna.match.tidying import Tidying

    async with connect(settings) as k:
        rpcs = FrontendCalls(k.match).rpcs()
        served = Served(k, rpcs, "frontend_port", with_http=with_http, reuse_port=copies > 1)
        await serve_until_signalled(
            k,
            [*served.services, Tidying(k.match.shards)],
            served.places,
            [k.match.measures, *served.sources],
            probes_ports=copies if with_probes else 0,
            as_json=as_json,
            is_alone=copies == 1,
        )


async def serve_copies(
    invocation: Invocation, settings: Settings, processes: int, *, no_http: bool, with_probes: bool, as_json: bool
) -> None:
    from kizuna.match.serving.copies import Copies, shared_port
    from kizuna.service import run_until_signalled

    match = settings.match
    with ExitStack() as ports:
        port = ports.enter_context(shared_port(match.host, match.frontend_port, "match.frontend_port"))
        words = ["--host", match.host, "--port", str(port), "--copies", str(processes), "--json"]
        if no_http:
            words.append("--no-http")
        else:
            shared = shared_port(match.host, match.frontend_http_port, "match.frontend_http_port")
            words += ["--http-port", str(ports.enter_context(shared))]
        copies = Copies([*same_kizuna(invocation), "match", "frontend", *words, *probes_words(with_probes)], processes)
        signal = await run_until_signalled(copies, on_started=lambda: announce(copies, as_json=as_json))
        say(f"Stopped by {signal.name}.")


def same_kizuna(invocation: Invocation) -> list[str]:
    """The command, with the options that stood before ours."""
    config = ["--config", invocation.config] if invocation.config else []
    assignments = [word for name, value in invocation.overrides.items() for word in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "kizuna", *config, *assignments]


def probes_words(with_probes: bool) -> list[str]:
    return ["--probes"] if with_probes else []


def announce(copies: Copies, *, as_json: bool) -> None:
    facts = [json.loads(line) for line in copies.first_lines]
    first = {name: place for name, place in facts[0].items() if name in ("grpc", "http")}
    probes = {"probes": sorted(one["probes"] for one in facts)} if "probes" in facts[0] else {}
    show(first | probes | {"pid": os.getpid(), "copies": sorted(one["pid"] for one in facts)}, as_json=as_json)
    say("Ctrl-C stops it.")
